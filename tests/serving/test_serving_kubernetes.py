"""llama.cpp in a pod, asked by a driver on this machine through the API server: its answers are right, and when the
driver is killed or the pod deleted no answer is lost, none is asked for again, and nothing is left in either place."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama import CASES, SERVER, model

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from engine.asking import WAIT_S, pid_of, until
from engine.cluster_world import SHARED, ClusterWorld, cluster_world
from seatrial.job import Verdict
from target.kubernetes.on_cluster import namespace_of
from world import World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]
COUNT = 300


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        spec = importlib.util.find_spec("xllamacpp")
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, made.shared / "xllamacpp")
        copy_libraries(next(Path(spec.origin).parent.glob("*.so")), made.shared / "lib")
        shutil.copy(SERVER / "serve.py", made.shared)
        shutil.copy(model("f32"), made.shared)
        yield made


def copy_libraries(of: Path, into: Path) -> None:
    """Those that the image, which has only what Python needs, may not have."""
    into.mkdir()
    listed = subprocess.run(["ldd", str(of)], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name, _, path = line.strip().partition(" => ")
        if path.startswith("/") and not name.startswith("libc.so"):
            shutil.copy(path.split(" ")[0], into / name)


def trials(far: ClusterWorld, cases: str) -> None:
    far.trials(f"""
  tiny:
    kind: serving
    model: tiny
    retries: 0
    matrix: {{runtime: python, machine: one}}
    env: {{PYTHONPATH: {SHARED}, LD_LIBRARY_PATH: {SHARED}/lib, HOST: 0.0.0.0}}
    server: {{command: "exec python3 {SHARED}/serve.py {SHARED}/tiny-f32.gguf", ready: {{http: /health, within: 5m}}}}
    cases: [{cases}]
    concurrency: 4
""")


def many(far: ClusterWorld) -> None:
    cases = [
        {
            "name": f"case {number}",
            "skip_check": True,
            "request": {"params": {"stopping": {"maxNewTokens": 16}}, "requests": [{"text": f"Number {number} is"}]},
            "response": {"responses": [{"inputTokenCount": 0}]},
        }
        for number in range(COUNT)
    ]
    (far.folder / "many.yaml").write_text(json.dumps(cases))
    trials(far, "many.yaml")


def answered(far: ClusterWorld) -> int:
    return sum(path.read_bytes().count(b'"finished"') for path in far.state.glob("jobs/*/*-driver/records.jsonl"))


def test_a_server_in_a_pod_answers_as_it_does_here(far: ClusterWorld) -> None:
    trials(far, str(CASES))
    far.seatrial("run", "suite.yaml", check=0)
    (cell,) = far.results().cells
    assert cell.attempts[0].parts["server"].place.target == "cluster"
    assert sum(finding.step.startswith("case ") for finding in cell.findings) == 18
    assert far.left() == []
    far.gone()


def test_a_driver_that_is_killed_goes_on_and_no_answer_is_asked_for_again(far: ClusterWorld) -> None:
    many(far)
    process = far.start("run", "suite.yaml")
    until(lambda: answered(far) > COUNT // 3)
    driver = pid_of(far, "-m seatrial.drive")
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    (records,) = far.run().path.glob("cells/*/1/driver/records.jsonl")
    notes = [json.loads(line).get("data", {}) for line in records.read_text().splitlines()]
    finished = Counter(note["thing"] for note in notes if note.get("note") == "finished")
    assert len(finished) == COUNT + 1
    assert set(finished.values()) == {1}
    assert far.left() == []
    far.gone()


def test_a_server_whose_pod_is_deleted_is_infra_and_so_are_the_cases_that_it_did_not_answer(far: ClusterWorld) -> None:
    many(far)
    process = far.start("run", "suite.yaml")
    until(lambda: answered(far) > COUNT // 3)
    far.kubectl("delete", "pods", "--all", "--wait=false")
    process.communicate(timeout=WAIT_S)
    (cell,) = far.results().cells
    cases = [finding for finding in cell.findings if finding.step.startswith("case ")]
    assert len(cases) == COUNT
    assert cell.verdict is Verdict.INFRA, cell.why
    assert {finding.verdict for finding in cases} == {Verdict.PASSED, Verdict.INFRA}
    assert far.left() == []
    far.gone()
