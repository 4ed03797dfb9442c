"""Every form of report says what is new, causes first, and stays within what it may take."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from record.past import run, timed
from report.test_report_causes import cell, results
from seatrial.checks import find_causes
from seatrial.job import VERSION, Bound, CellResult, RunResults, Verdict
from seatrial.record.history import PastResult, RunPast, open_history
from seatrial.report.junit import render_junit
from seatrial.report.markdown import MARKDOWN_BYTES, render_markdown
from seatrial.report.terminal.comparison import compare_lines
from seatrial.report.terminal.history import history_lines
from seatrial.report.terminal.lines import paint
from seatrial.report.terminal.live import Board
from seatrial.report.terminal.summary import LAST_LINES, summary_lines
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.compare import RunPair
from seatrial.report.view.run import RunView
from seatrial.report.view.sentences import cause_news_text, cell_news_text, news_sentences
from seatrial.report.view.series import run_series, view_series, write_series
from seatrial.report.view.words import width

NOVEMBER_S = 1_794_873_600.0  # 17 Nov 2026


def past(name: str, *verdicts: str) -> tuple[str, list[PastResult]]:
    """A verdict a night."""
    return name, [
        PastResult(f"night-{n}", NOVEMBER_S + n * 86_400, verdict, False, (), f"{n}" * 40)
        for n, verdict in enumerate(verdicts, 1)
    ]


def nightly() -> RunResults:
    """Ten cells of one machine fail, one of them since three nights, and one that failed is well again."""
    made = results()
    cells = dict([past(one.id, "passed", "passed", "passed") for one in made.cells])
    cells |= dict([past(made.cells[3].id, "passed", "failed", "failed"), past(made.cells[0].id, "failed")])
    streaks = {
        (name, ""): of[1 if len(of) > 1 else 0].moment for name, of in cells.items() if of[-1].verdict == "failed"
    }
    first = cells[made.cells[3].id][1].moment
    known = {made.causes[0].id: (first, cells[made.cells[3].id][2].moment)}
    del cells[made.cells[1].id]
    return with_news(made, RunPast(cells, streaks, known))


def test_what_is_new_is_said_in_words() -> None:
    made = nightly()
    assert news_sentences(made) == [
        "10 cells newly fail: t[model=m1,machine=x1], t[model=m1,machine=x3], t[model=m2,machine=x3] and 7 more",
        "1 cell is fixed: t[model=m0,machine=x0]",
        "1 cell ran for the first time; all passed",
        "1 cell still needs attention",
    ]
    assert cell_news_text(made.cells[3]) == (
        "known since 19 Nov 2026 00:00 UTC, run night-2, commit 2222222222; did not pass in 3 of its last 4 runs"
    )
    assert cell_news_text(made.cells[9]).startswith(
        "new: previously passed, 20 Nov 2026 00:00 UTC, run night-3, commit 3333333333"
    )
    assert cell_news_text(made.cells[0]).startswith("fixed: failed since 18 Nov 2026")
    assert cause_news_text(made.causes[0]).startswith("known since 19 Nov 2026 00:00 UTC, run night-2")
    assert cause_news_text(made.causes[1]) == "new"


def test_without_a_past_nothing_is_said() -> None:
    assert news_sentences(results()) == []
    assert news_sentences(with_news(results(), RunPast())) == []  # a first run
    same = with_news(results(), past_of_run(results()), "r0")
    assert news_sentences(same) == ["no verdict changed", "11 cells still need attention"]


def many(cells: int, words: str = "") -> RunResults:
    """Bad cells, of 26 causes."""
    said = [f"{chr(65 + n)}Error: {words}" for n in range(26)]
    made = [cell(n, {"model": f"m{n // 50}", "machine": f"x{n % 50}"}, said[n % 26]) for n in range(cells)]
    return RunResults(VERSION, "r", "s", Verdict.FAILED, made, causes=find_causes(made), suite_path="s.yaml")


def test_the_last_30_lines_of_a_run_are_causes_what_is_new_totals_and_the_report(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    known = many(200)
    before = msgspec.structs.replace(
        known, run="r0", causes=[], cells=[cell(n, one.axes, "") for n, one in enumerate(known.cells)]
    )
    made = with_news(known, past_of_run(before), "r0")
    lines = ["".join(text for text, _ in line) for line in summary_lines(RunView(made, tmp_path), 100)]
    last = lines[-LAST_LINES:]
    assert LAST_LINES == 30
    assert "200 of 200 cells need attention: 26 causes" in last
    assert any("new" in line and "no clear pattern" in line for line in last)
    assert "changes since run r0" in last
    assert any(line.startswith("  200 cells newly fail: ") for line in last)
    assert any("200 failed" in line for line in last)
    assert last[-1].endswith("report.html")
    assert all(width(line) <= 100 for line in last[:-1])


def test_markdown_stays_small_with_causes_and_grid_first_whatever_the_run_is(tmp_path: Path) -> None:
    words = "漢|`<b>@" * 150_000
    huge = many(5_000, words)
    alone = [msgspec.structs.replace(huge.causes[n % 26], text=words, cells=[f"{n:08x}"]) for n in range(5_000)]
    huge = msgspec.structs.replace(huge, causes=alone)
    text = render_markdown(RunView(with_news(huge, past_of_run(results()), "r0"), tmp_path))
    assert len(text.encode()) <= MARKDOWN_BYTES == 60_000
    causes, grid, failures = text.index("need attention"), text.index("| model |"), text.index("### Failures")
    assert causes < grid < failures
    assert "more causes" in text
    assert "100 × 50" in text
    assert "more cells that did not pass" in text
    assert "<details>" in text


@pytest.mark.parametrize("trials", [3, 400])
def test_markdown_stays_small_with_many_trials_long_names_and_reasons(tmp_path: Path, trials: int) -> None:
    cells = [
        msgspec.structs.replace(cell(n, {"a": "v" * 4_000, "b": f"{n}"}, "x" * 90_000), trial=f"{n}{'t' * 3_000}")
        for n in range(trials)
    ]
    cells += [
        CellResult(f"s{n}{'i' * 2_000}", f"f{n:07x}", {}, Verdict.SKIPPED, f"s{n}", why=f"{n}{'w' * 5_000}", flaky=True)
        for n in range(trials)
    ]
    made = RunResults(VERSION, "r" * 5_000, "s" * 5_000, Verdict.FAILED, cells, causes=find_causes(cells))
    assert len(render_markdown(RunView(made, tmp_path)).encode()) <= MARKDOWN_BYTES


def test_markdown_marks_what_is_new_in_the_grid_and_says_since_when(tmp_path: Path) -> None:
    text = render_markdown(RunView(nightly(), tmp_path))
    assert "### Changes since each cell's previous run\n\n- 10 cells newly fail: t\\[model=m1,machine=x1\\]" in text
    assert "| m0 | ✅ | ✅ | ✅ | ❌ | ✅ | ✅ |" in text  # as the last time
    assert "| m1 | ✅ | ❌ 🆕 | ✅ | ❌ 🆕 | ✅ | ✅ |" in text
    assert "Since: known since 19 Nov 2026 00:00 UTC, run night-2, commit 2222222222" in text
    assert "(10 of 10 cells) · known since 19 Nov 2026" in text


def test_junit_has_the_news_of_each_cell(tmp_path: Path) -> None:
    suites = ET.fromstring(render_junit(RunView(nightly(), tmp_path))).findall("testsuite")
    facts = [{one.get("name"): one.get("value") for one in suite.iter("property")} for suite in suites]
    assert [of["news"] for of in facts[:4]] == ["fixed", "first", "same", "known"]
    assert facts[3]["news-since"] == "19 Nov 2026 00:00 UTC, run night-2, commit 2222222222"
    assert facts[3]["cause-news"] == f"known since {facts[3]['news-since']}"
    assert facts[9]["news"] == "new"
    out = suites[3].findtext("system-out")
    assert out is not None
    assert out.startswith("status: known since 19 Nov 2026")


def test_a_comparison_says_which_causes_are_new_or_gone_and_what_newly_fails() -> None:
    before, after = results(), results()
    fixed = [cell(n, one.axes, "") for n, one in enumerate(before.cells)]
    fixed[5] = cell(5, before.cells[5].axes, "NCCL error: unhandled")
    before = msgspec.structs.replace(before, run="r0", cells=fixed, causes=find_causes(fixed))
    text = paint(compare_lines(RunPair(before, after).compare()))
    assert "12 verdicts changed (11 newly failing, 1 fixed)" in text
    assert "✗ new  0 → 10 cells  RuntimeError: " in text
    assert "✗ gone  1 → 0 cells  NCCL error: unhandled" in text


def test_a_cell_counts_as_failing_from_its_first_failure() -> None:
    made = results()
    board = Board(made.cells)
    for one in made.cells[:35]:
        board.update(one.id, "running")
        board.update(one.id, "retrying", "exited 1 (expected 0)")
        board.update(one.id, "waiting", "a place")
    text = paint(board.lines(100, 30))
    assert "↻ 35 failed, retrying" in text
    assert "exited 1 (expected 0)" in text
    assert "35 × exited 1 (expected 0)  e.g. " in text
    for one in made.cells[:35]:
        board.update(one.id, "running")
        board.update(one.id, "passed" if one is made.cells[0] else "failed", "again")
    text = paint(board.lines(100, 30))
    assert "retrying" not in text
    assert "34 failed" in text


def test_history_and_report_agree_that_a_regression_is_open(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    for number, value in enumerate([2.0, 2.01, 1.99, 2.0, 2.02, 2.01, 2.5, 2.51, 2.49, 2.5], 1):
        last = run(f"r{number}", timed(value, at_s=number * 1000.0, benchmark="t"), started_s=number * 1000.0)
        history.add(last)
    (series,) = history.series()
    given = {"t": (Bound("step_time", 0.0, 9.0, "lower", "s", 2.0, 5, None, 0.005),)}
    for bounds in (None, given):
        write_series(tmp_path, run_series(history, last, bounds))
        assert RunView(last, tmp_path).regressions == ["t step_time: open regression since run r7"]
        told = paint(history_lines([view_series(series, bounds and bounds["t"])], [], 0, 100, False))
        assert "open regression since run r7" in told
        shown = paint(summary_lines(RunView(last, tmp_path), 100))
        assert "t step_time: open regression since run r7" in shown
        assert "open regression since run r7" in render_markdown(RunView(last, tmp_path))


def test_the_metrics_of_one_run_are_no_line(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    repeats = [timed(2.0 + n / 100, hash_=f"a{n}", at_s=n * 10.0, benchmark="t") for n in range(3)]
    history.add(run("r1", *repeats))
    (series,) = history.series()
    told = paint(history_lines([view_series(series)], [], 0, 100, False))
    assert "2.02 s last, 3 values of 1 run" in told
    assert "│" not in told
