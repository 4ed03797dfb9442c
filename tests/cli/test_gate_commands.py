"""What a gate needs beside its bounds: runs of an outage added later, curves, strictness, checks that are kept."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli.check import command as check
from seatrial.job import VERSION, CellResult, Finding, RunResults, Verdict
from seatrial.kinds.training.curve import read_curve
from seatrial.record.history import open_history
from seatrial.report.view.series import unbounded_metrics
from world import World

SUITE = """\
name: gate
trials:
  tiny:
    kind: training
    command: "for n in 1 2 3; do echo step: $n loss: 0.$n; done; echo step_time 2.45"
    loss: {}
    metrics: {step_time: {log: 'step_time (\\S+)', unit: s, better: lower}}
"""


def test_a_run_that_the_history_missed_is_added_by_the_next_one(world: World) -> None:
    world.suite(SUITE)
    place = world.folder / "away" / "history.db"
    place.parent.write_text("no folder")
    told = world.seatrial("run", "suite.yaml", "--history", str(place), check=0).stderr
    assert "could not update the history" in told
    missed = world.results().run
    place.parent.unlink()
    place.parent.mkdir()
    told = world.seatrial("run", "suite.yaml", "--history", str(place), check=0).stderr
    assert f"also added to the history (it was unavailable when these runs finished): {missed}" in told
    assert {one.run for one in open_history(place).runs()} == {missed, world.results().run}
    assert "nothing to add" in world.seatrial("history", "add", "--history", str(place), check=0).stdout
    other = world.folder / "other.db"
    assert f"added {missed}" in world.seatrial("history", "add", missed, "--history", str(other), check=0).stdout
    assert [one.run for one in open_history(other).runs()] == [missed]


def test_the_losses_of_a_run_are_saved_as_the_curve_of_the_next(world: World) -> None:
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", check=0)
    saved = world.seatrial("baseline", "curve", "last", "curve.json", check=0).stdout
    assert "saved 3 losses of tiny, steps 1 to 3, to curve.json" in saved
    assert read_curve(world.folder / "curve.json") == {1: 0.1, 2: 0.2, 3: 0.3}
    assert "already exists" in world.seatrial("baseline", "curve", "last", "curve.json", check=1).stderr
    world.suite(SUITE.replace("loss: {}", "loss: {curve: curve.json, tolerance: 1%}"))
    world.seatrial("run", "suite.yaml", check=0)
    world.suite(SUITE.replace("loss: {}", "loss: {curve: curve.json, tolerance: 1%}").replace("loss: 0.", "loss: 0.9"))
    world.seatrial("run", "suite.yaml", check=1)
    refused = world.seatrial("baseline", "curve", "last", "other.json", check=1).stderr
    assert "use --force" in refused


def test_a_strict_run_does_not_pass_with_a_metric_without_bounds(world: World) -> None:
    world.suite(SUITE)
    told = world.seatrial("run", "suite.yaml", "--strict", check=1)
    assert "strict: tiny step_time has no bounds: its trial has no `baseline`" in told.stderr
    assert world.verdicts() == {"tiny": "passed"}
    for done in (told, world.seatrial("attach", "last", check=1)):  # the line agrees with the exit code
        assert "✗ passed, but --strict found 1 problem  gate" in done.stdout
        assert "✓ passed" not in done.stdout
    world.suite(f"{SUITE}    baseline: bounds.yaml\n")
    world.suite("baselines: {tiny: {step_time: {lower: 2, upper: 3}}}\n", "bounds.yaml")
    assert "✓ passed  gate" in world.seatrial("run", "suite.yaml", "--strict", check=0).stdout


@pytest.mark.parametrize(
    ("verdict", "open_"), [("passed", False), ("slower", False), ("skipped", True), ("invalid", True)]
)
def test_what_nothing_judged_is_what_has_no_bounds(verdict: str, open_: bool) -> None:
    finding = Finding("figures", "bounds t", Verdict(verdict), message="because")
    metrics = {"t": {"value": 1.0, "better": "lower"}, "other": 3}
    cell = CellResult("c", "0", {}, Verdict.PASSED, findings=[finding], metrics=metrics, benchmark="c")
    found = unbounded_metrics(RunResults(VERSION, "r", "s", Verdict.PASSED, [cell]))
    assert found == (["c t has no bounds: because"] if open_ else [])


def test_a_check_is_recorded_once_and_written_for_a_ci(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.log").write_text("step: 1 loss: 0.5\nstep_time 2.45\n")
    (tmp_path / "suite.yaml").write_text(SUITE)
    outputs = ["--junit", str(tmp_path / "j.xml"), "--markdown", str(tmp_path / "s.md")]
    arguments = [str(job), "--suite", str(tmp_path / "suite.yaml"), "--trial", "tiny", *outputs]
    recorded = ["--record", "--history", str(tmp_path / "h.db"), "--commit", "abc"]
    for _ in range(2):
        done = CliRunner().invoke(check, [*arguments, *recorded])
        assert done.exit_code == 0, done.output
    (run,) = open_history(tmp_path / "h.db").runs()
    assert (run.commit, run.at_s) == ("abc", (job / "train.log").stat().st_mtime)
    (series,) = open_history(tmp_path / "h.db").series(metric="step_time")
    assert (series.benchmark, series.values) == ("tiny", [2.45])
    root = ET.parse(tmp_path / "j.xml").getroot()
    assert root.get("failures") == "0"
    assert {case.get("name") for case in root.iter("testcase")} >= {"train"}
    assert "tiny" in (tmp_path / "s.md").read_text()
    shutil.copytree(job, tmp_path / "job2")
    (tmp_path / "job2" / "train.log").write_text("step: 1 loss: nan\nstep_time 2.55\n")
    arguments[0] = str(tmp_path / "job2")
    done = CliRunner().invoke(check, [*arguments, *recorded, "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["run"].startswith("check-job2-")
    assert ET.parse(tmp_path / "j.xml").getroot().get("failures") == "1"
    assert len(open_history(tmp_path / "h.db").runs()) == 2
