"""Every form of report says what the failures of a run come down to, and where."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec

from seatrial.checks import find_causes
from seatrial.job import (
    VERSION,
    AttemptResult,
    CellResult,
    Excluded,
    Exit,
    Finding,
    Outcome,
    Place,
    RunResults,
    Verdict,
)
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
    assert last[place + 1].startswith("        e.g.   t[")
    assert last[place + 2].startswith("        rerun  seatrial run ")
    assert "t[model=m1,machine=x1]" in last[place + 4]
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


def test_a_cause_of_many_answers_says_how_many_and_how_far() -> None:
    def drift(size: float) -> Finding:
        text = f"a log-probability of token 1 moved by {size} (tolerance 0.008)"
        data = {"size": size, "tolerance": 0.008}
        return Finding(f"case {size}", "unary", Verdict.FAILED, "drift", text, data=data)

    drifted = [drift(0.01), drift(0.019), drift(0.012)]
    one = cell(1, {"model": "m"}, drifted[0].message)
    one = msgspec.structs.replace(one, findings=[*drifted, Finding("case exact", "unary", Verdict.PASSED)])
    run = RunView(RunResults(VERSION, "r", "s", Verdict.FAILED, [one], causes=find_causes([one])))
    assert [cause.text for cause in run.causes] == ["3 of 4 cases drifted, worst 0.019, tolerance 0.008"]


def test_a_cause_of_slower_cells_says_the_metric_and_by_how_much() -> None:
    def slower(number: int, value: float) -> CellResult:
        data = {"value": value, "center": 0.064, "lower": 0.06, "upper": 0.07}
        finding = Finding("figures", "bounds step_time", Verdict.SLOWER, "slower", "step_time: above", data=data)
        made = cell(number, {"model": str(number)}, "bounds step_time: slower")
        last = msgspec.structs.replace(made.attempts[0], verdict=Verdict.SLOWER)
        metrics = {"step_time": {"value": value, "unit": "s", "better": "lower"}}
        changes = {"verdict": Verdict.SLOWER, "attempts": [last], "findings": [finding], "metrics": metrics}
        return msgspec.structs.replace(made, **changes)

    for cells, text in (
        ([slower(1, 0.095)], "step_time 95 ms, +48 %"),
        ([slower(1, 0.095), slower(2, 0.08)], "step_time 95 ms, +25 % to +48 %"),
    ):
        run = RunView(RunResults(VERSION, "r", "s", Verdict.SLOWER, cells, causes=find_causes(cells)))
        assert [cause.text for cause in run.causes] == [text]


def test_combinations_that_were_not_run_are_grouped_by_reason_with_their_axis_values() -> None:
    needs = [
        Excluded(
            "t", {"runtime": "torch", "machine": name}, f"runtime torch needs gpu >=1, machine {name} has 0", "needs"
        )
        for name in ("a", "b")
    ]
    others = [Excluded("t", {"machine": f"m{n}"}, "not selected", "select") for n in range(6)]
    run = RunView(RunResults(VERSION, "r", "s", Verdict.PASSED, [], excluded=[*needs, *others]))
    assert [(why, len(some), where) for why, some, where in run.exclusions] == [
        ("deselected: not selected", 6, "machine m0, m1, m2, m3 and 2 more"),
        ("needs gpu >=1", 2, "runtime torch; machine a, b"),
    ]
    assert run.not_run == "2 excluded, 6 deselected"
