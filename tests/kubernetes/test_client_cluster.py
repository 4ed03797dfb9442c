"""The client on a real API server: objects, kinds, watches, rights."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cutter import cutting

from cluster import Cluster, Unavailable, up
from seatrial.kubernetes import (
    ADDED,
    CONFIG_MAPS,
    DELETED,
    JOBS,
    MODIFIED,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    SYNCED,
    Access,
    AlreadyExists,
    ApiError,
    CredentialsError,
    Forbidden,
    Identity,
    Kubernetes,
    NotFound,
    Object,
    ObjectPart,
    Resource,
    Right,
    Tree,
    UnknownKind,
    grants,
    load_access,
)

pytestmark = pytest.mark.cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    """In a namespace of its own, gone afterwards."""
    async with Kubernetes(load_access(cluster.kubeconfig)) as admin, own_namespace(admin) as made:
        yield made


def own_namespace(admin: Kubernetes) -> "Namespace":
    return Namespace(admin)


class Namespace:
    def __init__(self, admin: Kubernetes) -> None:
        self.admin, self.name = admin, f"client-{uuid.uuid4().hex[:8]}"
        access = {**vars(admin.access), "namespace": self.name}
        self.client = Kubernetes(Access(**access))

    async def __aenter__(self) -> Kubernetes:
        await self.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        async with asyncio.timeout(600):
            account = "metadata.name=default"  # without which the server takes no pods
            while not await self.client.has_any(SERVICE_ACCOUNTS, fields=account):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return self.client

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.admin.delete(NAMESPACES, self.name)


def config_map(name: str, data: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data or {}}


def gated_pod(name: str, **labels: str) -> dict[str, Any]:
    """A pod that nobody works on."""
    spec = {
        "schedulingGates": [{"name": "test.example/gate"}],
        "containers": [{"name": "main", "image": "none", "env": [{"name": "A", "value": "1"}]}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


class Container(ObjectPart, frozen=True):
    name: str = ""
    image: str = ""
    env: tuple[dict[str, str], ...] = ()


class Spec(ObjectPart, frozen=True):
    containers: tuple[Container, ...] = ()
    active_deadline_seconds: int | None = None


class PodSeen(Object, frozen=True):
    spec: Spec = Spec()


async def test_an_object_is_made_read_changed_and_removed(client: Kubernetes) -> None:
    assert (await client.version()).startswith("v1.")
    made = await client.create(config_map("one", {"a": "1"}, run="r"))
    assert made.metadata.uid
    assert (await client.get(CONFIG_MAPS, "one", Tree)).data == {"a": "1"}
    with pytest.raises(AlreadyExists):
        await client.create(config_map("one"))
    merged = await client.patch(CONFIG_MAPS, "one", {"data": {"b": "2", "a": None}}, Tree)
    assert merged.data == {"b": "2"}
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"e": "5"}}
    with pytest.raises(ApiError, match="409 Conflict"):
        await client.patch(CONFIG_MAPS, "one", stale)
    assert await client.delete(CONFIG_MAPS, "one") is True
    assert await client.delete(CONFIG_MAPS, "one") is False
    with pytest.raises(NotFound, match='configmaps "one" not found'):
        await client.get(CONFIG_MAPS, "one")


async def test_a_dry_run_checks_and_leaves_nothing(client: Kubernetes) -> None:
    made = await client.create(gated_pod("one"), PodSeen, dry_run=True)
    assert made.spec.containers[0].image == "none"
    assert not [pod async for pod in client.list(PODS)]
    wrong = gated_pod("one")
    wrong["spec"]["restartPolcy"] = "Never"
    with pytest.raises(ApiError, match=r'unknown field "spec.restartPolcy".*400'):
        await client.create(wrong, dry_run=True)
    with pytest.raises(ApiError, match=r"spec.containers: Required value.*422"):
        await client.create({**gated_pod("one"), "spec": {}}, dry_run=True)


async def test_pages_and_deletion_by_label(client: Kubernetes) -> None:
    own = client.access.namespace  # other tests use the cluster at the same time
    await asyncio.gather(*(client.create(config_map(f"{own}-{n}", part=str(n % 2))) for n in range(60)))
    names = [item.metadata.name async for item in client.list(CONFIG_MAPS, labels="part=1", page=7)]
    assert sorted(names) == sorted(f"{own}-{n}" for n in range(1, 60, 2))
    everywhere = [item async for item in client.list(CONFIG_MAPS, namespace="", fields=f"metadata.name={own}-3")]
    assert [item.metadata.namespace for item in everywhere] == [client.access.namespace]
    await client.delete_some(CONFIG_MAPS, labels="part=1", most=12)
    assert len([item async for item in client.list(CONFIG_MAPS, labels="part=1")]) == 18
    await client.delete_some(CONFIG_MAPS, labels="part=1")
    left = [item.metadata.labels.get("part") async for item in client.list(CONFIG_MAPS, labels="part")]
    assert left == ["0"] * 30


async def test_kinds_of_the_cluster_and_of_custom_resources_are_found(client: Kubernetes) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.org"
    with pytest.raises(UnknownKind, match="custom resource definition"):
        await client.create({"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}})
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
    await client.create(definition)
    kinds = await client.resource_of(definition)
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"x": 1}}
    try:
        async with asyncio.timeout(600):
            while True:
                try:
                    widgets = await client.resource_of(widget)
                    break
                except UnknownKind:
                    await asyncio.sleep(0.2)
        assert widgets == Resource(group, "v1", "Widget", "widgets")
        await client.create(widget)
        events = aiter(client.watch(widgets, Tree))
        first = await anext(events)
        assert first.object is not None
        assert first.object.spec == {"x": 1}
        await events.aclose()  # type: ignore[attr-defined]
    finally:
        await client.delete(kinds, f"widgets.{group}")
    with pytest.raises(UnknownKind, match="did you mean apps/v1 Deployment"):
        await client.resource_of({"apiVersion": "apps/v1", "kind": "Deploment"})


async def watched(
    client: Kubernetes, until: str, ready: asyncio.Event | None = None, **options: Any
) -> list[tuple[str, str]]:
    """What a watch tells, until the object of that name is gone again. `ready`: it has begun."""
    seen = []
    async for event in client.watch(CONFIG_MAPS, **options):
        name = event.object.metadata.name if event.object else ""
        seen.append((event.kind, name))
        if event.kind == SYNCED and ready is not None:
            ready.set()
        if (event.kind, name) == (DELETED, until):
            return seen
    raise AssertionError("a watch does not end")


async def test_a_watch_over_a_way_that_is_cut_tells_each_change_once(client: Kubernetes) -> None:
    count = 150
    async with cutting(client.access) as cutter, Kubernetes(cutter.access) as far:
        cutter.least_bytes, cutter.most_bytes = 6_000, 40_000
        ready = asyncio.Event()
        watch = asyncio.ensure_future(watched(far, "last", ready, labels="run=cut"))
        await asyncio.wait_for(ready.wait(), 600)
        for number in range(count):
            await client.create(config_map(f"map-{number}", {"x": "y" * 500}, run="cut"))
            await client.patch(CONFIG_MAPS, f"map-{number}", {"data": {"n": str(number)}})
            if number % 3 == 0:
                await client.delete(CONFIG_MAPS, f"map-{number}")
        await client.create(config_map("last", run="cut"))
        await client.delete(CONFIG_MAPS, "last")
        seen = await asyncio.wait_for(watch, 600)
    for number in range(count):
        kinds = [kind for kind, name in seen if name == f"map-{number}"]
        assert kinds == [ADDED, MODIFIED, *([DELETED] if number % 3 == 0 else [])]
    assert cutter.cuts > 3


async def test_creates_over_a_way_that_is_cut_make_each_object_once(client: Kubernetes) -> None:
    async with cutting(client.access) as cutter, Kubernetes(cutter.access) as far:
        cutter.least_bytes, cutter.most_bytes = 3_000, 9_000
        made = await asyncio.gather(*(far.create(config_map(f"map-{n}", run="x", n=str(n))) for n in range(150)))
        assert cutter.cuts > 10
    there = {item.metadata.name: item.metadata.uid async for item in client.list(CONFIG_MAPS, labels="run=x")}
    assert there == {item.metadata.name: item.metadata.uid for item in made}
    assert len(there) == 150


async def test_a_missing_right_is_granted_by_the_yaml_of_its_message(client: Kubernetes) -> None:
    robot = await service_account(client, "robot")
    async with robot:
        assert await robot.can(Right("list", "", "configmaps", client.access.namespace)) is False
        await client.create(config_map("one"))
        with pytest.raises(Forbidden) as refused:
            await robot.get(CONFIG_MAPS, "one")
        await grant(client, refused.value, robot)
        assert (await robot.get(CONFIG_MAPS, "one")).metadata.name == "one"
        with pytest.raises(Forbidden) as refused:
            [item async for item in robot.list(CONFIG_MAPS)]
        await grant(client, refused.value, robot)
        assert "one" in [item.metadata.name async for item in robot.list(CONFIG_MAPS)]
        assert await robot.can(Right("list", "", "configmaps", client.access.namespace)) is True
        with pytest.raises(Forbidden, match="lacks permission to delete configmaps in namespace"):
            await robot.delete(CONFIG_MAPS, "one")
        with pytest.raises(Forbidden, match="lacks permission to watch configmaps"):
            await asyncio.wait_for(watched(robot, "x"), 600)


async def grant(admin: Kubernetes, refused: Forbidden, to: Kubernetes) -> None:
    """As an administrator would, from the text of the message, but under a name of its own."""
    assert refused.missing is not None
    message = str(refused)
    for document in yaml.safe_load_all(message[message.index("apiVersion:") :]):
        document["metadata"]["name"] += f"-{refused.missing.right.verb}"
        if "roleRef" in document:
            document["roleRef"]["name"] += f"-{refused.missing.right.verb}"
        await admin.create(document)
    await until_allowed(to, refused.missing.right)


async def test_rights_for_everything_are_granted_together(client: Kubernetes) -> None:
    namespace = client.access.namespace
    wanted = [Right(verb, "batch", "jobs", namespace) for verb in ("create", "get", "list", "watch", "delete")]
    wanted += [Right("get", "", "pods/log", namespace), Right("create", "", "pods/exec", namespace)]
    robot = await service_account(client, "robot")
    async with robot:
        for document in grants(wanted, f"system:serviceaccount:{namespace}:robot"):
            await client.create(document)
        for right in wanted:
            await until_allowed(robot, right)
        assert not [job async for job in robot.list(JOBS)]
        assert await robot.can(Right("get", "", "secrets", namespace)) is False


async def service_account(client: Kubernetes, name: str) -> Kubernetes:
    """A client as a service account of the namespace."""

    class Token(ObjectPart, frozen=True):
        token: str = ""

    class TokenRequest(Object, frozen=True):
        status: Token = Token()

    await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    options = {"resource": SERVICE_ACCOUNTS, "name": name, "subresource": "token"}
    made = await client.create(request, TokenRequest, **options)  # type: ignore[arg-type]
    access = {**vars(client.access), "identity": Identity(name, token=made.status.token)}
    return Kubernetes(Access(**access))


async def until_allowed(client: Kubernetes, right: Right) -> None:
    async with asyncio.timeout(600):
        while not await client.can(right):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_wrong_token_is_told(client: Kubernetes) -> None:
    access = {**vars(client.access), "identity": Identity("nobody", token="not-a-token")}
    async with Kubernetes(Access(**access)) as nobody:
        with pytest.raises(CredentialsError, match=r"rejected the credentials.*they come from .*user nobody"):
            await nobody.get(PODS, "x")


async def test_a_watch_and_its_writers_outlive_the_api_server(tmp_path: Path, cluster: Cluster) -> None:
    """On a cluster of its own: its API server is killed and comes back, twice."""
    try:
        own = await asyncio.to_thread(up, "outlive", place=tmp_path)
    except Unavailable as error:
        pytest.skip(f"no cluster here: {error.what}")
    try:
        async with Kubernetes(load_access(own.kubeconfig)) as client:
            ready = asyncio.Event()
            watch = asyncio.ensure_future(watched(client, "last", ready, labels="run=outlive"))
            await asyncio.wait_for(ready.wait(), 600)

            async def write() -> None:
                for number in range(120):
                    await client.create(config_map(f"map-{number}", run="outlive"))
                    await asyncio.sleep(0.05)

            writer = asyncio.ensure_future(write())
            for _ in range(2):
                await asyncio.sleep(1.0)
                await asyncio.to_thread(own.kill, next(part for part in own.parts() if "apiserver" in part))
                await asyncio.to_thread(up, "outlive", place=tmp_path)
            await asyncio.wait_for(writer, 600)
            await client.create(config_map("last", run="outlive"))
            await client.delete(CONFIG_MAPS, "last")
            seen = await asyncio.wait_for(watch, 600)
        names = [name for kind, name in seen if kind == ADDED]
        assert names == [f"map-{number}" for number in range(120)] + ["last"]
        assert (SYNCED, "") in seen
    finally:
        await asyncio.to_thread(own.down)
