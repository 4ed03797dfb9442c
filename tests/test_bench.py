"""Every bench works: each is run in its tiny form, whose metrics say nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from world import EVERY

BENCHES = sorted((Path(__file__).resolve().parent.parent / "bench").glob("[a-z]*.py"))
ON_CLUSTERS = {"cluster", "error", "kubernetes_cells", "kubernetes_client", "kubernetes_load", "limit", "scale_cluster"}
WITH_PEERS = {"cells", "changes", "plan", "scan", "start"}
SLOW = {"history", "load", "notebooks"}
on_demand = pytest.mark.skipif(not EVERY, reason="takes long, even in its tiny form: with SEATRIAL_TEST_ALL=1")


def marked(bench: Path) -> object:
    marks = [pytest.mark.cluster] if bench.stem in ON_CLUSTERS else []
    if bench.stem == "report":
        marks.append(pytest.mark.browser)
    if bench.stem in ON_CLUSTERS | WITH_PEERS | SLOW:
        marks.append(on_demand)
    return pytest.param(bench, id=bench.stem, marks=marks)


@pytest.mark.parametrize("bench", [marked(bench) for bench in BENCHES])
def test_a_bench_runs_in_its_tiny_form(bench: Path, tmp_path: Path) -> None:
    env = {**os.environ, "SEATRIAL_BENCH_TINY": "1", "SEATRIAL_STATE": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, bench], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout
    first = done.stdout.splitlines()[0]
    if first.startswith("left out: "):
        pytest.skip(first)
