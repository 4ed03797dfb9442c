"""The example suites, unchanged, on a real node by `--target`: what they come to here is what they come to locally.

Pods have no way out, so packages come from a folder of this machine, and images are made here under their names."""

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lent
import pytest
import yaml
from on_cluster import nothing_left

from cluster.cluster import Cluster
from seatrial.job import CellResult
from world import EVERY, World

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[3] / "examples"
NOTEBOOKS = "ipykernel nbclient"
DEMO = (NOTEBOOKS, "ipykernel numpy==2.2.* pandas==2.3.*", "ipykernel numpy>=2.3 scipy scikit-learn")
TRAINING = ("jax==0.10.*",)
GRADIENT = "docker.io/paperspace/gradient-base:pt112-tf29-jax0314-py39-20220803"
GPU, PRODUCT = "example.com/gpu", "nvidia.com/gpu.product"
TOKEN = "open-sesame-1001"
LONG_S = 3000.0

full = pytest.mark.skipif(not EVERY, reason="the whole example, with all its packages: minutes, SEATRIAL_TEST_ALL=1")


@contextmanager
def example(
    world: World, cluster: Cluster, namespace: str, packages: tuple[str, ...], *images: str, **more: Any
) -> Iterator[None]:
    """A copy of the examples beside `target.yaml`, which leads to the node."""
    folder = lent.wheels(*packages)
    lent.load_tools(cluster, folder, *(images or [lent.IMAGE]))
    shutil.copytree(EXAMPLES, world.folder / "examples", ignore=shutil.ignore_patterns("runs"))
    (world.folder / "target.yaml").write_text(yaml.safe_dump(lent.target(cluster, namespace, folder, **more)))
    yield


def run(world: World, suite: str, *more: str, check: int = 0) -> dict[str, CellResult]:
    """Longer than other tests may take: pods install what their runtimes ask for."""
    process = world.start("run", f"examples/{suite}/suite.yaml", "--target", "target.yaml", *more, DEMO_TOKEN=TOKEN)
    output, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == check, output
    return {cell.id: cell for cell in world.results().cells}


def problems(cell: CellResult) -> dict[str, tuple[str, str]]:
    """What did not pass, by its step: the verdict and the class."""
    good = ("passed", "skipped")
    return {one.step: (str(one.verdict), one.class_) for one in cell.findings if str(one.verdict) not in good}


KNOWN_SMALL = {
    "import numpy": ("xfail", "absent"),
    "notebook counts_once.ipynb rerun": ("xfail", "error"),
    "notebook big_table.ipynb fresh": ("xfail", "memory"),  # killed by the kernel at the pod's limit
}


async def test_a_cell_of_the_demo_runs_its_notebooks_in_a_pod(
    world: World, real_cluster: Cluster, open_namespace: str
) -> None:
    with example(world, real_cluster, open_namespace, (NOTEBOOKS,)):
        (cell,) = run(world, "demo", "--select", "known[runtime=bare,machine=small]").values()
    assert problems(cell) == KNOWN_SMALL
    memory = next(one for one in cell.findings if one.class_ == "memory")
    assert "killed at the limit of 512 MiB" in memory.message
    await nothing_left(real_cluster, open_namespace)


@pytest.mark.every
@full
async def test_the_whole_demo(world: World, real_cluster: Cluster, open_namespace: str) -> None:
    with example(world, real_cluster, open_namespace, DEMO):
        cells = run(world, "demo")
    assert Counter(str(cell.verdict) for cell in cells.values()) == {"passed": 5, "xfail": 4}
    assert problems(cells["known[runtime=bare,machine=small]"]) == KNOWN_SMALL
    assert problems(cells["known[runtime=tables,machine=large]"]) == {
        "notebook counts_once.ipynb rerun": ("xfail", "error")
    }
    works = cells["works[runtime=science,machine=large]"]
    assert problems(works) == {}
    log = (world.run().attempt(works.hash, 1) / "log.txt").read_text()
    assert "the token is •••" in log
    for path in (world.folder / "runs").rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    await nothing_left(real_cluster, open_namespace)


@pytest.mark.every
@full
async def test_the_whole_training_example(world: World, real_cluster: Cluster, open_namespace: str) -> None:
    with example(world, real_cluster, open_namespace, TRAINING):
        cells = run(world, "training")
    verdicts = {cell.trial: str(cell.verdict) for cell in cells.values()}
    assert verdicts == {"steady": "passed", "diverges": "xfail", "hangs": "xfail"}
    by_trial = {cell.trial: cell for cell in cells.values()}
    assert by_trial["steady"].metrics["step_time"]["value"] > 0
    profile = [one for one in by_trial["steady"].findings if "profile" in f"{one.step} {one.check}"]
    assert profile
    assert {str(one.verdict) for one in profile} == {"passed"}
    assert {"nan", "stall"} == {one.class_ for cell in cells.values() for one in cell.findings if one.class_}
    await nothing_left(real_cluster, open_namespace)


def test_the_example_of_a_target_can_be_used_with_all_that_it_shows(world: World) -> None:
    text = (EXAMPLES / "kubernetes" / "target.yaml").read_text()
    shown = re.sub(r"^# (?=[a-z_]+:|  +[a-z-])", "", text.partition("kind:")[2], flags=re.MULTILINE)
    (world.folder / "all.yaml").write_text(f"kind:{shown}")
    assert len(yaml.safe_load(f"kind:{shown}")) > len(yaml.safe_load(text)) + 5
    for target in (EXAMPLES / "kubernetes" / "target.yaml", "all.yaml"):
        plan = world.seatrial("plan", str(EXAMPLES / "demo" / "suite.yaml"), "--target", str(target), "--json", check=0)
        assert {cell["target"] for cell in json.loads(plan.stdout)["cells"]} == {Path(target).stem}


@contextmanager
def gpu(cluster: Cluster) -> Iterator[None]:
    """The node says that it has one; under a name of ours, because other tests count on there being none."""
    for amount in ("1", None):
        cluster.kubectl("label", "node", "real-0", f"{PRODUCT}=NVIDIA-RTX-A4000" if amount else f"{PRODUCT}-")
        patch = json.dumps({"status": {"capacity": {GPU: amount}, "allocatable": {GPU: amount}}})
        cluster.kubectl("patch", "node", "real-0", "--subresource=status", "--type=merge", "-p", patch)
        if amount:
            yield


async def test_cells_of_gradient_get_a_gpu_and_say_what_their_image_lacks(
    world: World, real_cluster: Cluster, open_namespace: str
) -> None:
    cells = ("generic[runtime=scratch,machine=A4000]", "generic[runtime=pytorch,machine=A4000]")
    chosen = [word for cell in cells for word in ("--select", cell)]
    around = example(world, real_cluster, open_namespace, (NOTEBOOKS,), GRADIENT, gpu_resource=GPU)
    with around, gpu(real_cluster):
        suite = ("examples/gradient/suite.yaml", "--target", "target.yaml", "--retries", "0")
        process = world.start("run", *suite, *chosen)
        asked = asked_for(real_cluster, open_namespace)
        output, _ = process.communicate(timeout=LONG_S)
    assert asked == {GPU: "1"}, output
    scratch, pytorch = (next(one for one in world.results().cells if one.id == cell) for cell in cells)
    for cell in (scratch, pytorch):
        assert [str(one.stage) for one in cell.attempts[0].stages][-2:] == ["started", "finished"], output
        assert problems(cell)["command aws"] == ("failed", "absent")
        assert problems(cell)["facts"] == ("failed", "gpu")  # one is declared, and the node only says that it has one
        assert "command git" not in problems(cell)
    assert str(scratch.verdict) == "failed"
    assert str(pytorch.verdict) == "infra"
    workspace = next(one for one in pytorch.findings if one.check == "workspace")
    assert workspace.message == "cannot clone https://github.com/gradient-ai/PyTorch"
    assert "github.com" in workspace.evidence
    await nothing_left(real_cluster, open_namespace)


def asked_for(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The limits of the first trial that is there."""
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        pods = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json").stdout)["items"]
        for pod in pods:
            limits: dict[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
            return limits
        time.sleep(0.2)
    return {}
