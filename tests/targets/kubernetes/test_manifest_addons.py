"""JobSet and Kueue: what their own controllers make of our manifests."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from manifest_shapes import SHAPES, changed, gpus, made, made_of, objects, options_of, seen
from on_cluster import namespace_of

from cluster.cluster import Cluster
from cluster.fixtures import addons_cluster, needs_addon, queue
from seatrial.kubernetes import JOBS, PODS, SERVICES, ApiError, Kubernetes, Tree, load_access
from seatrial.targets.kubernetes import manifest
from seatrial.targets.kubernetes.names import NAME_CHARACTERS

__all__ = ["addons_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.addons]


@pytest.fixture
def addons_namespace(addons_cluster: Cluster) -> Iterator[str]:
    with namespace_of(addons_cluster) as name:
        yield name


@pytest.fixture
async def client(addons_cluster: Cluster) -> AsyncIterator[Kubernetes]:
    async with Kubernetes(load_access(addons_cluster.kubeconfig)) as made:
        yield made


async def submit(client: Kubernetes, namespace: str, hosts: int, written: str) -> dict[str, Any]:
    """As the target does it."""
    job, options = changed(hosts=hosts, resources=gpus(1)), options_of(written)
    run = await client.create(manifest.run_object(job.run, 600.0, options, namespace))
    root, *others = objects(made_of(job, options, namespace))
    owner = manifest.owner(JOBS, run.metadata.name, run.metadata.uid)
    found = await client.create(manifest.owned_by(root, owner))
    resource = manifest.root_resource(options)
    reference = manifest.owner(resource, found.metadata.name, found.metadata.uid)
    for one in others:
        await client.create(manifest.owned_by(one, reference))
    if options.queue is None:
        await client.patch(resource, found.metadata.name, manifest.RELEASE, namespace=namespace)
    return root


async def pods_of(client: Kubernetes, namespace: str, root: dict[str, Any], count: int) -> list[Tree]:
    """In the order of their names, as soon as there are so many."""
    labels = f"seatrial/job={root['metadata']['name']}"
    return await seen(client, PODS, lambda pods: len(pods) == count, into=Tree, namespace=namespace, labels=labels)


async def services_of(client: Kubernetes, namespace: str, wanted: set[str]) -> None:
    """Waits for them: controllers make them a moment after the pods."""
    await seen(client, SERVICES, lambda there: wanted <= {one.metadata.name for one in there}, namespace=namespace)


def variables(pod: Tree) -> dict[str, str]:
    (found,) = (one for one in pod.spec["containers"] if one["name"] == "trial")
    names = [one["name"] for one in found["env"]]
    assert len(names) == len(set(names)), names
    return {one["name"]: one.get("value", "") for one in found["env"]}


async def test_the_server_takes_every_field_of_custom_kinds_and_the_longest_names(
    client: Kubernetes, addons_namespace: str
) -> None:
    long = changed(name=f"{'nightly-' * 30}69b56f04-1", hosts=100)
    needs_addon("jobset")
    root = made_of(long, options_of("{workload: jobset}"), addons_namespace).root
    assert len(root["metadata"]["name"]) == NAME_CHARACTERS
    await client.create(root, dry_run=True)
    for shape in SHAPES:
        root_of_shape = made(shape, addons_namespace).root
        if root_of_shape["kind"] == "JobSet":
            await client.create(root_of_shape, dry_run=True)
    root["spec"]["resourses"] = {}
    with pytest.raises(ApiError, match="resourses"):
        await client.create(root, dry_run=True)


async def test_a_job_set_gives_its_pods_the_names_that_they_are_told(client: Kubernetes, addons_namespace: str) -> None:
    needs_addon("jobset")
    root = await submit(client, addons_namespace, 2, "{workload: jobset}")
    pods = await pods_of(client, addons_namespace, root, 2)
    known = [f"{pod.spec['hostname']}.{pod.spec['subdomain']}.{addons_namespace}.svc" for pod in pods]
    assert variables(pods[0])["SEATRIAL_HOSTNAMES"].split(",") == known
    assert variables(pods[0])["MASTER_ADDR"] == known[0]
    assert [variables(pod).get("JOB_COMPLETION_INDEX") is not None for pod in pods] == [True, True]
    await services_of(client, addons_namespace, {root["metadata"]["name"]})


@pytest.mark.parametrize(("workload", "addons"), [("job", ()), ("jobset", ("jobset",))])
async def test_a_queue_releases_a_job_when_it_has_room(
    client: Kubernetes, addons_cluster: Cluster, addons_namespace: str, workload: str, addons: tuple[str, ...]
) -> None:
    for addon in ("kueue", *addons):
        needs_addon(addon)
    with queue(addons_cluster, addons_namespace, gpus=8) as name:
        root = await submit(client, addons_namespace, 1, f"{{workload: {workload}, queue: {name}}}")
        (pod,) = await pods_of(client, addons_namespace, root, 1)
        assert pod.metadata.labels["seatrial/part"] == "pod"


async def test_nothing_is_left_of_a_job_set_when_its_root_goes(client: Kubernetes, addons_namespace: str) -> None:
    needs_addon("jobset")
    root = await submit(client, addons_namespace, 2, "{workload: jobset}")
    await pods_of(client, addons_namespace, root, 2)
    resource = manifest.root_resource(options_of("{workload: jobset}"))
    await client.delete(resource, root["metadata"]["name"], namespace=addons_namespace)
    await client.delete(JOBS, root["metadata"]["ownerReferences"][0]["name"], namespace=addons_namespace)
    await pods_of(client, addons_namespace, root, 0)
    await seen(client, JOBS, lambda jobs: not jobs, namespace=addons_namespace)
