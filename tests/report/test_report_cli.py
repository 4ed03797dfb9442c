"""`seatrial report` as a user calls it."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
import sample
from click.testing import CliRunner, Result

import seatrial.record
from seatrial.cli import main
from seatrial.job import Exit, Finding, Outcome, PartResult, Place, RunResults, Verdict
from seatrial.record.folder import summed_plan
from seatrial.report.terminal.cell import MOST_LOG_LINES, cell_lines
from seatrial.report.view.run import RunView


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run in (sample.small(), sample.green(4)):
        (sample.write_run(tmp_path / "runs" / run.run, run) / "plan.json").write_text("{}")
    return tmp_path / "runs"


def call(runs: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments, "--runs", str(runs)])


def test_a_run_is_found_by_id_beginning_path_or_as_the_last(runs: Path) -> None:
    for name in ("20260101-000000-7f3a", "2026", str(runs / "20260101-000000-7f3a")):
        done = call(runs, name)
        assert done.exit_code == 0
        assert "✗ failed  nightly" in done.stdout
    assert "✓ passed  simple" in call(runs, "last").stdout


def test_an_unknown_run_ends_with_2_and_the_nearest_ids(runs: Path) -> None:
    done = call(runs, "20260101-000000-7f3b")
    assert done.exit_code == 2
    assert "20260101-000000-7f3a" in done.stderr


def test_a_run_without_results_ends_with_2_and_the_way_on(runs: Path) -> None:
    (runs / "r1" / "results.json").unlink()
    cells = [{"id": name, "hash": name, "axes": {}, "trial": name} for name in ("one", "two")]
    (runs / "r1" / "plan.json").write_bytes(summed_plan({"cells": cells, "holes": []}))
    done = call(runs, "r1")
    assert done.exit_code == 2
    assert "0 of 2 cells done" in done.stderr
    assert "seatrial attach r1" in done.stderr


def test_json_is_valid_by_its_schema(runs: Path) -> None:
    data = json.loads(call(runs, "2026", "--json").stdout)
    schema = json.loads(Path(seatrial.record.__file__).with_name("results.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(data)
    assert data["run"] == "20260101-000000-7f3a"


def test_each_form_goes_to_a_file_or_to_standard_output(runs: Path, tmp_path: Path) -> None:
    assert call(runs, "2026", "--markdown", "-").stdout.startswith("## ❌ nightly: failed")
    assert ET.fromstring(call(runs, "2026", "--junit", "-").stdout).tag == "testsuites"
    files = [f"--html={tmp_path / 'a.html'}", f"--junit={tmp_path / 'a.xml'}", f"--markdown={tmp_path / 'a.md'}"]
    done = call(runs, "2026", *files)
    assert (done.exit_code, done.stdout) == (0, "")
    assert ET.parse(tmp_path / "a.xml").getroot().get("name") == "nightly"


def test_a_report_written_elsewhere_still_links_into_the_run_folder(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    call(runs, "2026", "--html", str(tmp_path / "other" / "a.html"))
    link = "../runs/20260101-000000-7f3a/cells/a1b2c3d4/1/log.txt"
    assert f'href="{link}"' in (tmp_path / "other" / "a.html").read_text()
    assert (tmp_path / "other" / link).is_file()


def test_a_file_that_cannot_be_written_is_said(runs: Path, tmp_path: Path) -> None:
    done = call(runs, "2026", "--junit", str(tmp_path / "none" / "a.xml"))
    assert done.exit_code == 2
    assert "cannot write " in done.stderr


def write_plan(folder: Path, run: RunResults) -> None:
    cells = [{"id": one.id, "hash": one.hash, "axes": one.axes, "trial": one.trial, "tags": []} for one in run.cells]
    (folder / "plan.json").write_bytes(summed_plan({"cells": cells, "holes": []}))


def test_a_cell_is_shown_with_all_that_is_known_of_it(runs: Path) -> None:
    write_plan(runs / "20260101-000000-7f3a", sample.small())
    said = call(runs, "2026", "--cell", "/a1b2c3d4").stdout
    assert said.startswith("✗ failed  generic[runtime=base,machine=large]  /a1b2c3d4\n")
    assert "  ✓ command git" in said
    assert (
        "    │     from scipy._lib._ccallback import LowLevelCallable" in said
    )  # of the evidence more than its first line
    assert "generic[runtime=base,machine=small]" not in said
    assert [line for line in said.splitlines() if line.startswith("  log    ")]
    data = json.loads(call(runs, "2026", "--cell", "runtime=base", "--json").stdout)
    assert {one["axes"]["runtime"] for one in data["cells"]} == {"base"}
    done = call(runs, "2026", "--cell", "runtime=bose")
    assert done.exit_code == 2
    assert "no runtime 'bose'; did you mean 'base'" in done.stderr


def test_of_several_parts_each_log_is_below_its_part_and_evidence_repeats_no_message(tmp_path: Path) -> None:
    part = PartResult(Place("here", ""), [], Exit(Outcome.EXITED, 0))
    tried = sample.attempt(verdict=Verdict.FAILED, parts={"server": part, "driver": part})
    moved = Finding("case one", "unary", Verdict.FAILED, "drift", "it moved", "it moved\nexpected 'a'\ngot 'b'")
    cell = sample.cell("69b56f04", "base", "small", Verdict.FAILED, moved, attempts=[tried])
    for name, lines in (("server", MOST_LOG_LINES), ("driver", 2)):
        folder = tmp_path / "cells" / cell.hash / "1" / name
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("".join(f"{name} said {number}\n" for number in range(lines)))
    (view,) = RunView(sample.results("s", Verdict.FAILED, [cell], []), tmp_path).cells
    lines = ["".join(text for text, _ in line) for line in cell_lines(view, 100)]
    shown = [line.removeprefix("    │ ") for line in lines if line.startswith("    │ ")]
    half = MOST_LOG_LINES // 2
    assert shown[:3] == ["expected 'a'", "got 'b'", f"== server … the last {half} lines"]
    assert shown[3 : half + 3] == [f"server said {number}" for number in range(half, MOST_LOG_LINES)]
    assert shown[half + 3 :] == ["== driver", "driver said 0", "driver said 1"]


def test_verbose_shows_all_that_is_known_of_what_did_not_pass(runs: Path) -> None:
    plain, verbose = call(runs, "2026").stdout, call(runs, "2026", "-v").stdout
    assert "from scipy._lib._ccallback import LowLevelCallable" not in plain
    assert "    │     from scipy._lib._ccallback import LowLevelCallable" in verbose
    assert plain.splitlines()[-3:] == verbose.splitlines()[-3:]
