"""Many cells through the whole engine on fake nodes: each has its verdict, its node and its stages; nothing is left."""

import pytest
from on_cluster import namespace_of, nothing_left, objects

import cluster as clusters
from cluster.cluster import Cluster
from world import EVERY, World

pytestmark = pytest.mark.cluster

STAGES = ["created", "queued", "scheduled", "started", "finished"]
GPUS = 8


async def run(world: World, cluster: Cluster, namespace: str, cells: int, parallel: int) -> None:
    world.suite(
        f"""
        name: many
        targets:
          fake:
            kind: kubernetes
            kubeconfig: {cluster.kubeconfig}
            namespace: {namespace}
            image: registry.example/any
            parallel: {parallel}
        machines: {{gpu: {{target: fake, gpu: {{count: {GPUS}}}}}}}
        trials:
          many: {{kind: runtime, facts: false, machine: gpu, matrix: {{n: {list(range(cells))}}}, run: ["true"]}}
        """
    )
    done = world.seatrial("run", "suite.yaml", check=0)
    assert f"✓ {cells} passed" in done.stdout
    results = world.results()
    assert {str(cell.verdict) for cell in results.cells} == {"passed"}
    places = set()
    for cell in results.cells:
        (attempt,) = cell.attempts
        stages = {str(one.stage): one.wall_s for one in attempt.stages}
        assert list(stages) == STAGES, cell.id
        assert all(one.source for one in attempt.stages)
        assert stages["created"] <= stages["scheduled"] <= stages["started"] <= stages["finished"]
        assert attempt.place.host.startswith("fake-")
        places.add(attempt.place.host)
    # Each takes a whole node, so those that ran at the same time had one of their own.
    assert len(places) > parallel // 4
    jobs = [entry["handle"] for entry in world.journal() if entry["event"] == "submitted"]
    assert len(set(jobs)) == len(jobs) == cells
    await nothing_left(cluster, namespace)


async def test_many_cells_on_a_few_fake_nodes(world: World, cluster: Cluster, fake_namespace: str) -> None:
    """Three times as many as there are nodes: the rest waits in the cluster for its turn."""
    await run(world, cluster, fake_namespace, cells=60, parallel=60 if EVERY else 30)


@pytest.mark.every
@pytest.mark.skipif(not EVERY, reason="brings up 1,000 fake nodes: minutes, with SEATRIAL_TEST_ALL=1")
async def test_500_cells_on_1000_fake_nodes(world: World) -> None:
    made = clusters.up("many-cells", place=world.folder / "clusters", fake_nodes=1000, gpus=GPUS)
    with made, namespace_of(made) as namespace:
        await run(world, made, namespace, cells=500, parallel=500)
        assert objects(made, namespace) == []
