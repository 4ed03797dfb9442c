"""Which kinds this cluster serves, its own and those of custom resources. Read when needed, and again on a miss."""

import asyncio
import difflib
import time

from seatrial.kubernetes.errors import KubernetesError
from seatrial.kubernetes.http.connection import JSON, Connection
from seatrial.kubernetes.objects import Meta, ObjectPart
from seatrial.kubernetes.resources import BY_KIND, ApiRequest, Resource
from seatrial.kubernetes.wire import decode_answer

ALL_AT_ONCE = ",".join(
    [f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")] + [JSON]
)
REDISCOVER_S = 2.0  # a miss asks the server again, but not more often than this


class UnknownKind(KubernetesError):
    """The cluster serves no such kind."""

    lasting = True

    def __init__(self, wanted: str, near: tuple[str, ...]) -> None:
        self.wanted, self.near = wanted, near
        hint = f"; it has {', '.join(near)}" if near else "; is its custom resource definition installed?"
        super().__init__(f"the cluster has no {wanted}{hint}")


class _Kind(ObjectPart, frozen=True):
    group: str = ""
    version: str = ""
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
            await self._read(anew)
            for resource in self._known or []:
                if (resource.api_version, resource.kind) == (api_version, kind):
                    return resource
        names = {f"{resource.api_version} {resource.kind}" for resource in self._known or []}
        wanted = f"{api_version} {kind}"
        raise UnknownKind(wanted, tuple(difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.7)))

    async def _read(self, anew: bool) -> None:
        async with self._turn:
            if self._known is not None and (not anew or time.monotonic() - self._read_at < REDISCOVER_S):
                return
            self._known = [*await self._group("/api"), *await self._group("/apis")]
            self._read_at = time.monotonic()

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
