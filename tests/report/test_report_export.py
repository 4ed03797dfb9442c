"""A run for other programs: each form is read back, with hostile text in it."""

import csv
import io
import json
import math
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_families

from report.test_report_causes import results
from seatrial.cli.report import command as report
from seatrial.job import RunResults, Verdict
from seatrial.report.csv import render_csv
from seatrial.report.ctrf import render_ctrf
from seatrial.report.openmetrics import render_openmetrics
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.run import RunView

RUNS = [sample.small, sample.green, sample.large, results]


def compared(made: RunResults) -> RunResults:
    return with_news(made, past_of_run(made), "r0")


@pytest.mark.parametrize("make", RUNS)
def test_the_table_has_a_row_for_each_cell_and_hole(make: Any) -> None:
    run = compared(make())
    rows = list(csv.DictReader(io.StringIO(render_csv(RunView(run)))))
    assert len(rows) == len(run.cells) + len(run.excluded)
    assert all(None not in row and None not in row.values() for row in rows)  # as many fields as columns
    assert [row["hash"] for row in rows if row["verdict"] != "hole"] == [cell.hash for cell in run.cells]
    assert [row["verdict"] for row in rows] == [
        *(cell.verdict.value for cell in run.cells),
        *["hole"] * len(run.excluded),
    ]
    for row, cell in zip(rows, run.cells, strict=False):
        assert row["change"] == (cell.news.change.value if cell.news else "")
        assert len(row["axis machine"]) >= 1 or "machine" not in cell.axes


def test_no_text_of_the_table_is_a_formula() -> None:
    run = sample.small()
    cells = [msgspec.structs.replace(run.cells[0], why=why, attempts=[], id=why) for why in ("=1+1", "+1", "-1", "@x")]
    rows = list(
        csv.DictReader(io.StringIO(render_csv(RunView(msgspec.structs.replace(run, cells=cells, excluded=[])))))
    )
    assert [row["cell"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@x"]


def test_metrics_are_columns_with_their_units() -> None:
    run = sample.small()
    metrics = {"step_time": {"value": 2.5, "unit": "s", "better": "lower"}, "loss": -0.5}
    cells = [msgspec.structs.replace(run.cells[0], metrics=metrics), msgspec.structs.replace(run.cells[1], metrics={})]
    rows = list(
        csv.DictReader(io.StringIO(render_csv(RunView(msgspec.structs.replace(run, cells=cells, excluded=[])))))
    )
    assert [(row["figure step_time [s]"], row["figure loss"]) for row in rows] == [("2.5", "-0.5"), ("", "")]


# What the published schema of CTRF asks for: the fields that an object must have, and those that it may have.
STATUS = {"passed", "failed", "skipped", "pending", "other"}
COUNTS = {"tests", "passed", "failed", "skipped", "pending", "other", "start", "stop"}
TEST = {"name", "status", "duration"}
TEST_MAY = {
    "suite",
    "rawStatus",
    "flaky",
    "retries",
    "parameters",
    "steps",
    "extra",
    "retryAttempts",
    "message",
    "trace",
}
ATTEMPT_MAY = {"attempt", "status", "duration", "start", "message", "extra"}


def read_ctrf(text: str) -> dict[str, Any]:
    report = json.loads(text)
    assert set(report) == {"reportFormat", "specVersion", "reportId", "timestamp", "generatedBy", "results"}
    assert report["reportFormat"] == "CTRF"
    uuid.UUID(report["reportId"])
    found: dict[str, Any] = report["results"]
    assert set(found) == {"tool", "summary", "tests", "environment", "extra"}
    assert found["tool"]["name"] == "seatrial"
    assert set(found["summary"]) == COUNTS | {"flaky"}
    assert all(type(number) is int for number in found["summary"].values())
    for test in found["tests"]:
        assert set(test) >= TEST
        assert set(test) - TEST <= TEST_MAY
        assert test["status"] in STATUS
        assert test["name"]
        assert test["suite"]
        assert type(test["duration"]) is int
        assert all(set(step) == {"name", "status"} and step["status"] in STATUS for step in test.get("steps", []))
        for attempt in test.get("retryAttempts", []):
            assert set(attempt) <= ATTEMPT_MAY
            assert attempt["status"] in STATUS
            assert attempt["attempt"] >= 1
    return found


@pytest.mark.parametrize("make", RUNS)
def test_a_common_test_report_is_whole_and_its_counts_are_those_of_its_tests(make: Any) -> None:
    run = compared(make())
    found = read_ctrf(render_ctrf(RunView(run)))
    statuses = [test["status"] for test in found["tests"]]
    assert found["summary"]["tests"] == len(statuses)
    assert {status: found["summary"][status] for status in STATUS} == {one: statuses.count(one) for one in STATUS}
    bad = [cell for cell in run.cells if not cell.verdict.good]
    assert found["summary"]["failed"] == len(bad)
    assert found["summary"]["flaky"] == sum(cell.flaky for cell in run.cells)
    assert [one["id"] for one in found["extra"]["causes"]] == [cause.id for cause in run.causes]
    told = {test["extra"]["hash"]: test for test in found["tests"] if test["rawStatus"] != "hole"}
    assert all(told[cell.hash]["message"] for cell in bad)


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.parametrize("families", [text_string_to_metric_families, older_families])
def test_metrics_are_read_by_the_parsers_of_prometheus(make: Any, families: Any) -> None:
    run = compared(make())
    text = render_openmetrics(RunView(run))
    assert text.endswith("# EOF\n")
    found = {family.name: family for family in families(text)}
    counts = {one.labels["verdict"]: one.value for one in found["seatrial_run_cells"].samples}
    assert counts == {verdict.value: sum(cell.verdict is verdict for cell in run.cells) for verdict in Verdict}
    verdicts = {one.labels["hash"]: one.labels["verdict"] for one in found["seatrial_cell_verdict"].samples}
    assert verdicts == {cell.hash: cell.verdict.value for cell in run.cells}
    assert [one.value for one in found["seatrial_run_started_timestamp_seconds"].samples] == [run.started_s]
    assert len(found["seatrial_cell_good"].samples) == len(run.cells)


def test_metrics_and_since_when_are_metrics() -> None:
    run = results()
    metrics = {"tokens": {"value": 12.5, "unit": "1/s"}, "odd": math.nan}
    cells = [msgspec.structs.replace(cell, metrics=metrics) for cell in run.cells]
    run = msgspec.structs.replace(run, cells=cells, started_s=1000.0)
    found = {one.name: one for one in text_string_to_metric_families(render_openmetrics(RunView(compared(run))))}
    metrics = found["seatrial_figure"].samples
    assert {(one.labels["figure"], one.labels["unit"], one.value) for one in metrics} == {("tokens", "1/s", 12.5)}
    since = found["seatrial_cell_bad_since_timestamp_seconds"].samples
    assert [one.value for one in since] == [1000.0] * 11
    causes = {one.labels["cause"]: one.value for one in found["seatrial_cause_cells"].samples}
    assert causes == {cause.id: float(len(cause.cells)) for cause in run.causes}


def test_the_command_writes_each_form_and_metrics_at_once(tmp_path: Path) -> None:
    folder = sample.write_run(tmp_path / "r1", sample.small())
    (folder / "plan.json").touch()
    (tmp_path / "m.prom").write_text("old")
    (tmp_path / "m.prom").chmod(0o600)
    before = (tmp_path / "m.prom").stat().st_ino
    options = [f"--{form}={tmp_path / name}" for form, name in (("csv", "t.csv"), ("ctrf", "c.json"))]
    made = CliRunner().invoke(report, [str(folder), *options, f"--openmetrics={tmp_path / 'm.prom'}"])
    assert (made.exit_code, made.output) == (0, "")
    assert (tmp_path / "t.csv").read_text() == render_csv(RunView(sample.small()))
    assert (tmp_path / "c.json").read_text() == render_ctrf(RunView(sample.small()))
    assert (tmp_path / "m.prom").read_text() == render_openmetrics(RunView(sample.small()))
    assert (tmp_path / "m.prom").stat().st_ino != before  # another file took its name: nobody reads a half
    assert (tmp_path / "m.prom").stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob("*.part"))
    printed = CliRunner().invoke(report, [str(folder), "--csv=-"])
    assert printed.stdout == render_csv(RunView(sample.small()))
