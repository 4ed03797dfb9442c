"""Queries to a server: decoding of answers, paged lists, and discovery of kinds."""

import asyncio
import difflib
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from seatrial.kubernetes.connection import JSON, Connection
from seatrial.kubernetes.errors import ApiError, KubernetesError, UnknownKind
from seatrial.kubernetes.objects import (
    BY_KIND,
    UNDECODABLE,
    ApiRequest,
    ListMeta,
    Meta,
    O,
    Object,
    ObjectPart,
    Resource,
)

_P = TypeVar("_P", bound=ObjectPart)


class ListPage(ObjectPart, Generic[O], frozen=True, gc=False):
    metadata: ListMeta = ListMeta()
    items: list[O] | None = None


class WatchLine(ObjectPart, Generic[O], frozen=True, gc=False):
    """A line of a watch."""

    type: str
    object: O


class RawWatchLine(ObjectPart, frozen=True, gc=False):
    """A line of a watch with another object than the watched kind: bookmarks and errors."""

    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def decoder(form: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(form)


def decode_answer(request: ApiRequest, form: type[_P], body: bytes) -> _P:
    try:
        made: _P = decoder(form).decode(body)
    except UNDECODABLE as error:
        problem = f"the answer is not that of an API server ({error}){beginning(body)}"
        raise KubernetesError(f"cannot {request}: {problem}") from None
    return made


def beginning(body: bytes) -> str:
    """The beginning of a text for a message. Empty for an object, because it may be a Secret."""
    return "" if body.lstrip()[:1] == b"{" else f"; it begins with {body[:200].decode(errors='replace')!r}"


def accept(form: type[Object], many: bool = False) -> str:
    """Accept header that requests only metadata if the caller reads nothing else."""
    if form.__struct_fields__ != Object.__struct_fields__:
        return JSON
    return f"{JSON};as=PartialObjectMetadata{'List' if many else ''};g=meta.k8s.io;v=v1,{JSON}"


PAGE = 500
BEGIN_AGAIN = 3  # restarts of a list that expired midway before it is requested in one piece


class ObjectSelection(msgspec.Struct, frozen=True):
    """Selects objects of a resource by namespace ("" is all), labels and fields, as kubectl's `-l`."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def request(self, verb: str) -> ApiRequest:
        return ApiRequest(verb, self.resource, self.namespace)

    def query(self) -> dict[str, str]:
        query = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in query.items() if value}


async def pages(
    connection: Connection, selection: ObjectSelection, form: type[O], size: int = PAGE
) -> AsyncIterator[ListPage[O] | None]:
    """All pages of one consistent list, so that no answer holds everything. The last page's resourceVersion is that of
    the whole.

    None means that the list starts over and earlier pages are void: its snapshot expired while it was read (410). After
    several restarts the list is requested in one piece.
    """
    request = selection.request("list")
    token, begun_again = "", 0
    while True:
        query = selection.query()
        if begun_again <= BEGIN_AGAIN:
            query["limit"] = str(size)
        if token:
            query["continue"] = token
        try:
            answer = await connection.request(request, query.items(), accept=accept(form, many=True))
        except ApiError as error:
            if not token or not error.expired:
                raise
            token, begun_again = "", begun_again + 1
            yield None
            continue
        page: ListPage[O] = decode_answer(request, ListPage[form], answer.body)  # type: ignore[valid-type]
        yield page
        token = page.metadata.continue_
        if not token:
            return


ALL_AT_ONCE = ",".join(
    [f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")] + [JSON]
)
REDISCOVER_S = 2.0  # least time between queries after a miss


class _Kind(ObjectPart, frozen=True):
    kind: str = ""


class _Found(ObjectPart, frozen=True):
    resource: str
    response_kind: _Kind | None = None
    scope: str = "Namespaced"


class _Version(ObjectPart, frozen=True):
    version: str
    resources: tuple[_Found, ...] = ()


class _Group(ObjectPart, frozen=True):
    metadata: Meta = Meta()
    versions: tuple[_Version, ...] = ()


class _Groups(ObjectPart, frozen=True):
    items: tuple[_Group, ...] = ()


class Discovery:
    """The kinds that a cluster serves, including custom resources. Read when needed, and again after a miss."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known = BY_KIND
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of a manifest's `apiVersion` and `kind`."""
        key = (api_version, kind)
        if key not in self._known:
            async with self._turn:
                if time.monotonic() - self._read_at >= REDISCOVER_S:
                    served = [*await self._group("/api"), *await self._group("/apis")]
                    self._known = {(one.api_version, one.kind): one for one in reversed(served)} | BY_KIND
                    self._read_at = time.monotonic()
        if key in self._known:
            return self._known[key]
        names, wanted = {" ".join(one) for one in self._known}, " ".join(key)
        near = difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.7)
        hint = f"did you mean {', '.join(near)}?" if near else "is its custom resource definition installed?"
        raise UnknownKind(f"unknown kind {wanted} on the cluster; {hint}")

    async def _group(self, path: str) -> list[Resource]:
        request = ApiRequest("discover", bare_path=path)
        answer = await self._connection.request(request, accept=ALL_AT_ONCE)
        return [
            Resource(
                group=group.metadata.name,
                version=version.version,
                kind=found.response_kind.kind if found.response_kind else "",
                plural=found.resource,
                namespaced=found.scope == "Namespaced",
            )
            for group in decode_answer(request, _Groups, answer.body).items
            for version in group.versions
            for found in version.resources
        ]
