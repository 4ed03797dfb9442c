"""Every form of report says what the failures of a run come down to, and where."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec

from seatrial.checks import find_causes
from seatrial.job import VERSION, AttemptResult, CellResult, Exit, Finding, Outcome, Place, RunResults, Verdict
from seatrial.report.junit import render_junit
from seatrial.report.markdown import render_markdown
from seatrial.report.terminal.summary import summary_lines
from seatrial.report.view.run import RunView
from seatrial.report.view.sentences import causes_sentence

HOSTILE = "RuntimeError: \x1b[2J<script>alert('x')</script> `|` driver 12080 is too old"


def cell(number: int, axes: dict[str, str], text: str) -> CellResult:
    verdict = Verdict.FAILED if text else Verdict.PASSED
    finding = Finding("run a", "exit", verdict, "exit", "exited 1 (expected 0)" if text else "", text)
    attempt = AttemptResult(1, Place("here", "m", "host"), [], Exit(Outcome.EXITED), verdict, headline=text)
    name = ",".join(f"{axis}={value}" for axis, value in axes.items())
    return CellResult(
        f"t[{name}]", f"{number:08x}", axes, verdict, "t", "runtime", attempts=[attempt], findings=[finding]
    )


def results() -> RunResults:
    """A driver that is too old on one machine, and one cell that fails for a reason of its own."""
    cells = []
    for number in range(60):
        axes = {"model": f"m{number // 6}", "machine": f"x{number % 6}"}
        alone = "AssertionError: diverged" if number == 7 else ""
        cells.append(cell(number, axes, HOSTILE if axes["machine"] == "x3" else alone))
    return RunResults(VERSION, "r", "s", Verdict.FAILED, cells, causes=find_causes(cells), suite_path="s.yaml")


def test_the_last_lines_on_a_terminal_are_the_causes_and_the_totals(tmp_path: Path) -> None:
    lines = ["".join(text for text, _ in line) for line in summary_lines(RunView(results(), tmp_path), 100)]
    last = lines[-30:]
    place = next(number for number, line in enumerate(last) if "only machine=x3 (10 of 10 cells)" in line)
    assert last[place - 1].startswith("   10 ")
    assert "driver 12080 is too old" in last[place - 1]
    assert "11 of 60 cells need attention: 1 cause explains 10" in last[place - 2]
    assert "t[model=m1,machine=x1]" in last[place + 2]
    assert not any("\x1b" in line for line in lines)


def test_markdown_begins_with_the_causes(tmp_path: Path) -> None:
    text = render_markdown(RunView(results(), tmp_path))
    head, table, _ = text.partition("| model |")
    assert table
    assert "only machine=x3 (10 of 10 cells)" in head
    assert "<script>" not in head


def test_junit_has_the_cause_of_each_failed_cell(tmp_path: Path) -> None:
    suites = ET.fromstring(render_junit(RunView(results(), tmp_path))).findall("testsuite")
    causes = [{one.get("name"): one.get("value") for one in suite.iter("property")}.get("cause") for suite in suites]
    assert causes[3] == results().causes[0].id == causes[9]
    assert causes[0] is None


def test_what_is_well_has_no_sentence_and_old_results_have_no_causes(tmp_path: Path) -> None:
    green = msgspec.structs.replace(results(), cells=results().cells[:3], causes=[])
    assert causes_sentence(green) == ""
    old = msgspec.structs.replace(results(), causes=[])
    assert "11 of 60 cells need attention" in causes_sentence(old)
    assert "### 11 of" not in render_markdown(RunView(old, tmp_path))


def test_the_command_for_a_cause_goes_to_the_target_that_the_run_was_moved_to(tmp_path: Path) -> None:
    moved = RunView(msgspec.structs.replace(results(), target="cluster"), tmp_path)
    assert moved.causes[0].rerun == "seatrial run s.yaml --target cluster --select machine=x3"
    assert RunView(results(), tmp_path).causes[0].rerun == "seatrial run s.yaml --select machine=x3"
