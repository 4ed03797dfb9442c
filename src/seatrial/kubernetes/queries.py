"""What is asked of a server: decoders of its answers, lists in pages, and the kinds that it serves."""

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
    """The same, for lines whose object is not what is watched: bookmarks and errors."""

    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def decoder(form: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(form)


def decode_answer(request: ApiRequest, form: type[_P], body: bytes) -> _P:
    try:
        made: _P = decoder(form).decode(body)
    except UNDECODABLE as error:
        problem = f"the answer is not what an API server gives ({error}){beginning(body)}"
        raise KubernetesError(f"cannot {request}: {problem}") from None
    return made


def beginning(body: bytes) -> str:
    """How a text begins that is no object. An object is not shown: it may be a Secret."""
    return "" if body.lstrip()[:1] == b"{" else f"; it begins with {body[:200].decode(errors='replace')!r}"


def accept(form: type[Object], many: bool = False) -> str:
    """A caller that reads metadata alone is sent metadata alone."""
    if form.__struct_fields__ != Object.__struct_fields__:
        return JSON
    return f"{JSON};as=PartialObjectMetadata{'List' if many else ''};g=meta.k8s.io;v=v1,{JSON}"


PAGE = 500
BEGIN_AGAIN = 3  # how often a list that expired in its middle begins again before it is asked for in one piece


class ObjectSelection(msgspec.Struct, frozen=True):
    """Which objects: of a resource, in a namespace ("" is all), by labels and fields as in kubectl's `-l`."""

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
    """All pages of one consistent list, so that no answer holds everything. The last page's resourceVersion
    is that of the whole.

    None says that the list begins again, and that what came so far counts no more: its snapshot expired while it was
    read (410). After some times it is asked for in one piece.
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
REDISCOVER_S = 2.0  # a miss asks the server again, but not more often than this


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
    """Which kinds a cluster serves, its own and those of custom resources. Read when needed, and again on a miss."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: list[Resource] | None = None
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of a manifest's `apiVersion` and `kind`."""
        known = BY_KIND.get((api_version, kind))
        if known is not None:
            return known
        for anew in (False, True):
            async with self._turn:
                if self._known is None or (anew and time.monotonic() - self._read_at >= REDISCOVER_S):
                    self._known = [*await self._group("/api"), *await self._group("/apis")]
                    self._read_at = time.monotonic()
            for resource in self._known or []:
                if (resource.api_version, resource.kind) == (api_version, kind):
                    return resource
        names = {f"{resource.api_version} {resource.kind}" for resource in self._known or []}
        wanted = f"{api_version} {kind}"
        near = difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.7)
        hint = f"it has {', '.join(near)}" if near else "is its custom resource definition installed?"
        raise UnknownKind(f"the cluster has no {wanted}; {hint}")

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
