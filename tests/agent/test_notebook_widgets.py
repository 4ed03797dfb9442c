"""Notebooks with widgets: what they print goes back to the kernel while its reply is awaited, and none is lost."""

from pathlib import Path

import pytest
from driven import StepRunner

from seatrial.targets.agent_file import agent_file
from world import EVERY


@pytest.fixture
def runner(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> StepRunner:
    return StepRunner(tmp_path, agent_file(tmp_path_factory.getbasetemp() / "agent", compiled=True))


def test_widgets_print_into_themselves_and_every_reply_arrives(runner: StepRunner) -> None:
    driven = runner.notebook("widgets", passes=["fresh", "rerun", "restart"], cell_timeout_s=60)
    assert [seen["state"] for seen in driven.passes.values()] == ["passed"] * 3, driven.passes
    assert all(text in driven.output for text in ("inside", "called with 10", "outside"))
    kept = driven.kept("widgets")
    state = kept["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    printed = [output.get("text") for widget in state.values() for output in widget["state"].get("outputs") or []]
    assert "inside\n" in printed


@pytest.mark.every
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not EVERY, reason="200 kernels: minutes, with SEATRIAL_TEST_ALL=1")
def test_no_reply_is_lost_in_200_notebooks(runner: StepRunner) -> None:
    for number in range(200):
        seen = runner.notebook("widgets", cell_timeout_s=60).passes["fresh"]
        assert seen["state"] == "passed", (number, seen)


def test_no_reply_is_lost_in_many_cells_of_one_kernel(runner: StepRunner) -> None:
    driven = runner.cells("from ipywidgets import Output", *["with Output():\n    print('x')"] * 50, cell_timeout_s=60)
    assert driven.passes["fresh"]["state"] == "passed", driven.passes
