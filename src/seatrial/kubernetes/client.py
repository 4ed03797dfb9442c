"""The client: requests to an API server for any kind of object.

1. A manifest is plain data, or JSON encoded before a measurement starts. Results have only the fields of the caller's
   struct; the default is `Object`, with metadata only.
2. `namespace=None` is that of the access; `namespace=""` is all namespaces, where that is possible.
3. `create` with a name survives broken connections: on a retry, an object with the same name and labels is ours. With
   `generateName` it raises `Unreachable`, which says that the object may have been created.
4. Deleting a missing object is not an error.
"""

import copy
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, TypedDict, Unpack

import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.kubernetes.access import Access
from seatrial.kubernetes.connection import AT_ONCE, Connection
from seatrial.kubernetes.errors import PATIENCE_S, AlreadyExists, Forbidden, NotFound
from seatrial.kubernetes.objects import ACCESS_REVIEWS, OBJECT, ApiRequest, O, Object, ObjectPart, Resource, Tree
from seatrial.kubernetes.pod import Pod
from seatrial.kubernetes.queries import PAGE, Discovery, ObjectSelection, accept, decode_answer, decoder, pages
from seatrial.kubernetes.rights import Right
from seatrial.kubernetes.watch import WATCH_PATIENCE_S, Watch

FIELD_MANAGER = "seatrial"  # name in the server's record of changes
DELETED_AT_ONCE = 500  # a server that deletes thousands at once is busy with nothing else
MERGE = "application/merge-patch+json"


class Chosen(TypedDict, total=False):
    """Selects objects of a resource by namespace, labels and fields, as kubectl's `-l`."""

    namespace: str | None
    labels: str
    fields: str


class Measured(TypedDict, total=False):
    """For measurements: `retry=False` sends one request; `attempts` gets every attempt with its times."""

    retry: bool
    attempts: list[RequestAttempt] | None


class Version(ObjectPart, frozen=True):
    git_version: str = ""


class Kubernetes(AbstractAsyncContextManager["Kubernetes"]):
    """One cluster as one identity. Use it as an async context manager, or `close` it."""

    def __init__(self, access: Access, *, patience_s: float = PATIENCE_S, at_once: int = AT_ONCE) -> None:
        """At most `at_once` requests run at a time; others wait."""
        self.access = access
        self.connection = Connection(access, patience_s, at_once)
        self.discovery = Discovery(self.connection)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def within(self, namespace: str) -> "Kubernetes":
        """The same connection with another default namespace. Do not close it separately."""
        made = copy.copy(self)
        made.access = replace(self.access, namespace=namespace)
        return made

    async def close(self) -> None:
        await self.connection.close()

    async def version(self, **how: Unpack[Measured]) -> str:
        """Version of the server, such as v1.35.4; proves that it is reachable and accepts us."""
        request = ApiRequest("get", bare_path="/version")
        answer = await self.connection.request(request, **how)
        return decode_answer(request, Version, answer.body).git_version

    async def now_s(self) -> float:
        """The server's clock in whole seconds since the epoch; ours if an answer has no date."""
        answer = await self.connection.request(ApiRequest("get", bare_path="/version"))
        with suppress(ValueError, TypeError):
            return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        return time.time()

    # Objects

    async def create(
        self,
        manifest: Mapping[str, Any] | bytes,
        into: type[O] = OBJECT,
        *,
        resource: Resource | None = None,
        namespace: str | None = None,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        **how: Unpack[Measured],
    ) -> O:
        """Creates an object. A manifest in JSON needs `resource`, and `name` to be safe to retry."""
        if isinstance(manifest, bytes):
            if resource is None:
                raise TypeError("a manifest in JSON needs `resource`")
            body = manifest
        else:
            metadata = manifest.get("metadata") or {}
            resource = resource or await self.resource_of(manifest)
            namespace = namespace or metadata.get("namespace")
            name = name or metadata.get("name", "")
            body = msgspec.json.encode(manifest)
        request = self._request("create", resource, namespace, name, subresource)
        try:
            return await self._write(request, body, into, dry_run, repeatable=bool(name), **how)
        except AlreadyExists as error:
            if not error.uncertain or not how.get("retry", True):
                raise
            return await self._find_created(error, body, into)

    async def create_missing(self, manifest: Mapping[str, Any]) -> None:
        """Creates an object unless one with its name exists."""
        with suppress(AlreadyExists):
            await self.create(manifest)

    async def get(self, resource: Resource, name: str, into: type[O] = OBJECT, *, namespace: str | None = None) -> O:
        request = self._request("get", resource, namespace, name)
        answer = await self.connection.request(request, accept=accept(into))
        return decode_answer(request, into, answer.body)

    async def list(
        self, resource: Resource, into: type[O] = OBJECT, *, page: int = PAGE, **chosen: Unpack[Chosen]
    ) -> AsyncIterator[O]:
        """Each object once, page by page."""
        given: set[str] = set()
        async for found in pages(self.connection, self._selection(resource, chosen), into, page):
            for item in found.items or () if found else ():
                if item.metadata.uid not in given:
                    given.add(item.metadata.uid)
                    yield item

    async def has_any(self, resource: Resource, **chosen: Unpack[Chosen]) -> bool:
        """Whether any such object exists."""
        async for _ in self.list(resource, page=1, **chosen):
            return True
        return False

    def watch(
        self,
        resource: Resource,
        into: type[O] = OBJECT,
        *,
        patience_s: float = WATCH_PATIENCE_S,
        keep: bool = True,
        **chosen: Unpack[Chosen],
    ) -> Watch[O]:
        return Watch(self.connection, self._selection(resource, chosen), into, patience_s, keep)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        into: type[O] = OBJECT,
        *,
        namespace: str | None = None,
        subresource: str = "",
        **how: Unpack[Measured],
    ) -> O:
        """Applies a merge patch: the fields to change, null for those to remove."""
        request = self._request("patch", resource, namespace, name, subresource)
        return await self._write(request, msgspec.json.encode(patch), into, content_type=MERGE, **how)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        grace_s: int | None = None,
        **how: Unpack[Measured],
    ) -> bool:
        """Deletes an object; objects that it owns follow. False if it did not exist."""
        request = self._request("delete", resource, namespace, name)
        try:
            await self.connection.request(request, body=_delete_options(grace_s), accept=accept(Object), **how)
        except NotFound:
            return False
        return True

    async def delete_some(self, resource: Resource, *, most: int = DELETED_AT_ONCE, **chosen: Unpack[Chosen]) -> bool:
        """Deletes as many objects as a server handles well in one request; whether there are more. Labels are required,
        because without them it would delete everything."""
        selection = self._selection(resource, chosen)
        if not selection.labels:
            raise ValueError("delete_some without labels would delete everything")
        query = {**selection.query(), "limit": str(most)}
        request, options = selection.request("deletecollection"), _delete_options(grace_s=0)
        await self.connection.request(request, query.items(), body=options, accept=accept(Object, many=True))
        return await self.has_any(resource, **chosen)

    # Permissions and kinds

    async def resource_of(self, manifest: Mapping[str, Any]) -> Resource:
        return await self.discovery.of_kind(str(manifest.get("apiVersion", "")), str(manifest.get("kind", "")))

    async def can(self, right: Right) -> bool:
        """Whether we have a permission."""
        resource, _, subresource = right.resource.partition("/")
        where = {"group": right.group, "resource": resource, "subresource": subresource, "namespace": right.namespace}
        spec = {"resourceAttributes": {"verb": right.verb, **where}}
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
        return bool((await self.create(review, Tree)).status["allowed"])

    def pod(self, name: str, container: str = "", *, namespace: str | None = None) -> Pod:
        """Access to a pod: logs, commands, ports, files."""
        return Pod(self.connection, self.access.namespace if namespace is None else namespace, name, container)

    # Inner

    def _place(self, resource: Resource, namespace: str | None) -> str:
        if not resource.namespaced:
            return ""
        return self.access.namespace if namespace is None else namespace

    def _selection(self, resource: Resource, chosen: Chosen) -> ObjectSelection:
        place = self._place(resource, chosen.get("namespace"))
        return ObjectSelection(resource, place, chosen.get("labels", ""), chosen.get("fields", ""))

    def _request(
        self, verb: str, resource: Resource, namespace: str | None, name: str, subresource: str = ""
    ) -> ApiRequest:
        return ApiRequest(verb, resource, self._place(resource, namespace), name, subresource)

    async def _write(self, request: ApiRequest, body: bytes, into: type[O], dry_run: bool = False, **how: Any) -> O:
        """`how` as for `Connection.request`."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        answer = await self.connection.request(request, query.items(), body=body, accept=accept(into), **how)
        return decode_answer(request, into, answer.body)

    async def _find_created(self, error: AlreadyExists, body: bytes, into: type[O]) -> O:
        """The object that an earlier, interrupted attempt created; raises `error` if it is another's."""
        resource, namespace, name = error.request.resource, error.request.namespace, error.request.name
        assert resource is not None
        wanted = decoder(Object).decode(body).metadata.labels
        try:
            found = await self.get(resource, name, into, namespace=namespace)
        except Forbidden:  # no permission to read what we may create
            raise error from None
        if any(found.metadata.labels.get(key) != value for key, value in wanted.items()):
            raise error
        return found


def _delete_options(grace_s: int | None) -> bytes:
    grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **grace}
    return msgspec.json.encode(options)
