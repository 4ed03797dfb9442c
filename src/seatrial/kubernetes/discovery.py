"""Which kinds this cluster serves, its own and those of custom resources. Read when needed, and again on a miss."""

import asyncio
import difflib
import time
from collections.abc import Iterable

import msgspec

from seatrial.kubernetes.connection import JSON, Connection
from seatrial.kubernetes.errors import ApiError, Asked, KubernetesError, ProtocolError
from seatrial.kubernetes.objects import Meta, Part
from seatrial.kubernetes.resources import BY_KIND, Resource

ALL_AT_ONCE = ",".join(
    [f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")] + [JSON]
)
AGAIN_S = 2.0  # a miss asks the server again, but not more often than this


class UnknownKind(KubernetesError):
    """The cluster serves no such kind."""

    lasting = True

    def __init__(self, wanted: str, near: tuple[str, ...]) -> None:
        self.wanted, self.near = wanted, near
        hint = f"; it has {', '.join(near)}" if near else "; is its custom resource definition installed?"
        super().__init__(f"the cluster has no {wanted}{hint}")


class _Kind(Part, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Sub(Part, frozen=True):
    subresource: str = ""


class _Found(Part, frozen=True):
    resource: str
    response_kind: _Kind | None = None
    scope: str = "Namespaced"
    singular_resource: str = ""
    verbs: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    subresources: tuple[_Sub, ...] = ()


class _Version(Part, frozen=True):
    version: str
    resources: tuple[_Found, ...] = ()


class _Group(Part, frozen=True):
    metadata: Meta = Meta()
    versions: tuple[_Version, ...] = ()


class _Groups(Part, frozen=True):
    """APIGroupDiscoveryList, and in `groups` and `versions` the older forms that a server may answer with instead."""

    kind: str = ""
    items: tuple[_Group, ...] = ()
    groups: tuple["_OldGroup", ...] = ()
    versions: tuple[str, ...] = ()


class _OldVersion(Part, frozen=True):
    group_version: str


class _OldGroup(Part, frozen=True):
    name: str
    versions: tuple[_OldVersion, ...] = ()


class _OldResource(Part, frozen=True):
    name: str
    kind: str = ""
    namespaced: bool = True
    singular_name: str = ""
    verbs: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()


class _OldList(Part, frozen=True):
    resources: tuple[_OldResource, ...] = ()


class Discovery:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: list[Resource] | None = None
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def all(self) -> list[Resource]:
        """Every resource in the versions served, the server's preferred version of each first."""
        await self._read(anew=False)
        return list(self._known or [])

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
        raise UnknownKind(f"{api_version} {kind}", _near(f"{api_version} {kind}", names))

    async def named(self, name: str) -> Resource:
        """By any name that kubectl takes: `jobs`, `job`, `po`, `jobs.batch`, `Job`, `pytorchjobs.v1.kubeflow.org`."""
        for anew in (False, True):
            await self._read(anew)
            for resource in self._known or []:
                if name.lower() in _names(resource):
                    return resource
        raise UnknownKind(name, _near(name, {resource.title for resource in self._known or []}))

    async def has(self, api_version: str, kind: str) -> bool:
        try:
            await self.of_kind(api_version, kind)
        except UnknownKind:
            return False
        return True

    async def _read(self, anew: bool) -> None:
        async with self._turn:
            if self._known is not None and (not anew or time.monotonic() - self._read_at < AGAIN_S):
                return
            self._known = [*await self._group("/api"), *await self._group("/apis")]
            self._read_at = time.monotonic()

    async def _group(self, path: str) -> list[Resource]:
        asked = Asked("discover", path=path)
        answer = await self._connection.request(asked, "GET", path, accept=ALL_AT_ONCE)
        try:
            groups = msgspec.json.decode(answer.body, type=_Groups)
            if groups.kind != "APIGroupDiscoveryList":
                return await self._one_by_one(groups)
        except msgspec.DecodeError as error:
            raise ProtocolError(asked, f"the answer is not that of an API server: {error}") from None
        return [
            _resource(group.metadata.name, version.version, found)
            for group in groups.items
            for version in group.versions
            for found in version.resources
        ]

    async def _one_by_one(self, groups: _Groups) -> list[Resource]:
        """For servers before 1.27. A group whose own server is down is left out, as kubectl does."""
        places = [("", version) for version in groups.versions]
        for group in groups.groups:
            places += [(group.name, version.group_version.rpartition("/")[2]) for version in group.versions]
        found: list[Resource] = []
        for name, version in places:
            path = f"/apis/{name}/{version}" if name else f"/api/{version}"
            try:
                answer = await self._connection.request(Asked("discover", path=path), "GET", path, patience_s=2)
            except ApiError:
                continue
            listed = msgspec.json.decode(answer.body, type=_OldList).resources
            found += _old_resources(name, version, listed)
        return found


def _resource(group: str, version: str, found: _Found) -> Resource:
    kind = found.response_kind.kind if found.response_kind else ""
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=found.resource,
        namespaced=found.scope == "Namespaced",
        verbs=found.verbs,
        subresources=frozenset(sub.subresource for sub in found.subresources),
        short_names=found.short_names,
        singular=found.singular_resource,
    )


def _old_resources(group: str, version: str, listed: Iterable[_OldResource]) -> list[Resource]:
    listed = list(listed)
    return [
        Resource(
            group=group,
            version=version,
            kind=item.kind,
            plural=item.name,
            namespaced=item.namespaced,
            verbs=item.verbs,
            subresources=frozenset(o.name.partition("/")[2] for o in listed if o.name.startswith(f"{item.name}/")),
            short_names=item.short_names,
            singular=item.singular_name,
        )
        for item in listed
        if "/" not in item.name
    ]


def _names(resource: Resource) -> set[str]:
    group = resource.group
    names = {resource.plural, resource.singular, resource.kind.lower(), *resource.short_names}
    if group:
        names |= {f"{name}.{group}" for name in names if name}
        names.add(f"{resource.plural}.{resource.version}.{group}")
    return names - {""}


def _near(wanted: str, names: set[str]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(wanted, sorted(names), n=3, cutoff=0.7))
