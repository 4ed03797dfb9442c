"""GPU models on nodes that are labelled as real ones are: each cell on the right node, and what is said if none is."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from manifest_shapes import changed, gpus
from on_cluster import nothing_left, opened

from cluster.cluster import Cluster
from seatrial.job import Outcome, Resources
from seatrial.targets import DiagnosticLevel, TargetError
from world import EVERY, World

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[3] / "examples"
PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
# The machines of examples/gradient that were tested, and how GPU feature discovery labels such nodes.
MACHINES = {
    "P4000": ("Quadro-P4000", 8192),
    "RTX4000": ("Quadro-RTX-4000", 8192),
    "P5000": ("Quadro-P5000", 16384),
    "P6000": ("Quadro-P6000", 24576),
    "A4000": ("NVIDIA-RTX-A4000", 16376),
    "V100": ("Tesla-V100-SXM2-16GB", 16384),
    "V100-32G": ("Tesla-V100-SXM2-32GB", 32768),
    "A5000": ("NVIDIA-RTX-A5000", 24564),
    "A6000": ("NVIDIA-RTX-A6000", 49140),
    "A100": ("NVIDIA-A100-SXM4-40GB", 40960),
    "A100-80G": ("NVIDIA-A100-SXM4-80GB", 81920),
}
# Nodes that are almost right.
OTHERS = {
    "ada": ("NVIDIA-RTX-4000-Ada-Generation", 20475),
    "ada-6000": ("NVIDIA-RTX-6000-Ada-Generation", 49140),
    "turing-6000": ("Quadro-RTX-6000", 24576),
    "mig": ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 9856),
    "shared": ("NVIDIA-A100-SXM4-40GB-SHARED", 40960),
    "a10": ("NVIDIA-A10", 23028),
}


@contextmanager
def labelled(cluster: Cluster, nodes: dict[str, dict[str, str]]) -> Iterator[None]:
    """Fake nodes with these labels."""
    for remove in (False, True):
        for node, labels in nodes.items():
            texts = [f"{key}-" if remove else f"{key}={value}" for key, value in labels.items()]
            cluster.kubectl("label", "node", node, *texts)
        if not remove:
            yield


async def test_every_cell_of_gradient_runs_on_the_gpu_that_it_declares(
    world: World, cluster: Cluster, fake_namespace: str
) -> None:
    shutil.copytree(EXAMPLES / "gradient", world.folder / "gradient")
    target = {"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig), "namespace": fake_namespace}
    (world.folder / "target.yaml").write_text(yaml.safe_dump(target))
    products = {**MACHINES, **OTHERS}
    node_of = dict(zip(products, (f"fake-{number}" for number in range(len(products))), strict=True))
    labels = {node_of[name]: {PRODUCT: product, MEMORY: str(mib)} for name, (product, mib) in products.items()}
    runtimes = "*" if EVERY else "pytorch"
    chosen = ("--tag", "tested", "--select", f"generic[runtime={runtimes},*]", "--retries", "0")
    with labelled(cluster, labels):
        world.seatrial("run", "gradient/suite.yaml", "--target", "target.yaml", *chosen)
    cells = [cell for cell in world.results().cells if cell.axes["machine"] in MACHINES]
    assert len(cells) == len(MACHINES) * (9 if EVERY else 1)
    found = {cell.id: cell.attempts[0].place.host for cell in cells}
    assert found == {cell.id: node_of[cell.axes["machine"]] for cell in cells}
    await nothing_left(cluster, fake_namespace)


async def refusal(cluster: Cluster, namespace: str, resources: Resources) -> str:
    async with opened(cluster, namespace) as target:
        with pytest.raises(TargetError) as raised:
            await target.verify(changed(resources=resources))
    assert raised.value.outcome is Outcome.REFUSED
    return str(raised.value)


async def test_a_model_that_nothing_maps_is_refused_with_the_labels_of_the_nodes(
    cluster: Cluster, fake_namespace: str
) -> None:
    with labelled(cluster, {"fake-0": {PRODUCT: "NVIDIA-Mystery-7"}, "fake-1": {PRODUCT: "NVIDIA-Mystery-7"}}):
        message = await refusal(cluster, fake_namespace, gpus(1, "Mystery 7"))
    assert f"labels of the nodes: {PRODUCT}=NVIDIA-Mystery-7 (2 nodes)" in message
    assert "`gpu_models: {Mystery 7: {select: {LABEL: VALUE}}}`" in message


async def test_without_jobset_doctor_says_what_is_missing_and_who_needs_it(
    cluster: Cluster, fake_namespace: str
) -> None:
    async with opened(cluster, fake_namespace, workload="jobset") as target:
        (found,) = [one for one in await target.examine() if one.level is DiagnosticLevel.PROBLEM]
        with pytest.raises(TargetError, match="JobSet is not installed") as raised:
            await target.verify(changed())
    assert found.why.startswith(
        "JobSet is not installed on this cluster; all trials of a target with `workload: jobset`"
    )
    assert found.fix.startswith("install JobSet 0.11 or later (kubernetes-sigs/jobset)")
    assert "404" not in json.dumps([found.why, found.fix, str(raised.value)])
