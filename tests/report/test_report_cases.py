"""Cases by configurations: one matrix of the tables of cases that the cells of a trial have."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sample import HOSTILE, cell, small

from seatrial.job import CellResult, Finding, RunResults, Table, Verdict
from seatrial.report.html.page import RunPage
from seatrial.report.markdown import render_markdown
from seatrial.report.view.run import RunView
from seatrial.report.view.tables import MOST_COLUMNS, MOST_ROWS, JudgedField, JudgedTable

COLUMNS = ["case", "verdict", "agreement", "ways", "message"]


def configuration(number: int, machine: str, *rows: list[Any], **changes: Any) -> CellResult:
    values = {"trial": "tiny", "charts": [Table("Cases", COLUMNS, list(rows))] if rows else []} | changes
    verdict = values.pop("verdict", Verdict.FAILED if any(row[1] == "failed" for row in rows) else Verdict.PASSED)
    return cell(f"{number:08x}", "llama", machine, verdict, *values.pop("findings", ()), **values)


def run(*cells: CellResult) -> RunResults:
    return msgspec.structs.replace(small(), cells=list(cells), causes=[], excluded=[], axes={})


def tables(results: RunResults) -> list[JudgedTable]:
    return RunView(results).tables


FINE = ["fine", "passed", "exact", 7, ""]
TIED = ["tied", "passed", "near_tie", 7, "near tie at token 1"]
WORSE = ["worse", "failed", "drift", 7, "moved by 0.1"]
MINE = ["worse", "passed", "exact", 7, ""]


def test_what_is_wrong_comes_first_then_what_is_not_exact() -> None:
    (made,) = tables(run(configuration(1, "f32", FINE, TIED, MINE), configuration(2, "q8", FINE, WORSE)))
    assert [label for label, _ in made.columns] == ["f32", "q8"]
    assert [(row.name, row.wrong) for row in made.rows] == [("worse", True), ("tied", False), ("fine", False)]
    assert made.rows[0].fields == (
        JudgedField(Verdict.PASSED, "exact"),
        JudgedField(Verdict.FAILED, "drift", "moved by 0.1"),
    )
    assert made.rows[1].fields == (JudgedField(Verdict.PASSED, "near tie", "near tie at token 1"), None)
    assert (made.wrong, made.cases, made.agreements) == (1, 3, {"exact": 3, "near tie": 1, "drift": 1})


def test_a_configuration_that_came_to_no_answers_is_a_column_of_cases_that_were_not_asked() -> None:
    lost = configuration(2, "f16", verdict=Verdict.INFRA, why="no place")
    (made,) = tables(run(configuration(1, "f32", FINE), lost))
    assert made.rows[0].fields[1] == JudgedField(Verdict.INFRA, "not asked", "no place")
    assert tables(run(lost)) == []


def test_a_failure_that_was_declared_is_one_here_too() -> None:
    known = [Finding("case worse", "unary", Verdict.XFAIL, "drift"), Finding("case worse", "stream", Verdict.PASSED)]
    (made,) = tables(run(configuration(1, "q8", WORSE, findings=known, verdict=Verdict.XFAIL)))
    assert made.rows[0].fields == (JudgedField(Verdict.XFAIL, "drift", "moved by 0.1"),)
    assert made.wrong == 0


def test_long_lists_are_cut_and_counted_and_nothing_that_is_wrong_is_cut_before_what_is_right() -> None:
    rows = [[f"case {number}", "passed", "exact", 1, ""] for number in range(MOST_ROWS + 5)]
    cells = [configuration(number, f"m{number}", *rows) for number in range(MOST_COLUMNS + 1)]
    cells.append(configuration(99, "last", *rows, WORSE))
    (made,) = tables(run(*cells))
    assert (len(made.rows), made.cases) == (MOST_ROWS, MOST_ROWS + 6)
    assert (len(made.columns), made.configurations) == (MOST_COLUMNS, MOST_COLUMNS + 2)
    assert made.rows[0].name == "worse"
    assert made.columns[-1][0] == "last"
    page = RunPage(RunView(run(*cells), Path("nowhere")), fetched_from="/runs/one").html()
    assert f"{MOST_ROWS} of {MOST_ROWS + 6} cases and {MOST_COLUMNS} of {MOST_COLUMNS + 2} configurations" in page
    assert "Too many for this page" in render_markdown(RunView(run(*cells), Path("nowhere")))


def test_every_report_has_the_rungs_in_words_and_the_way_to_the_cell() -> None:
    results = run(configuration(1, "f32", FINE, MINE), configuration(2, "q8", FINE, WORSE))
    page = RunPage(RunView(results, Path("nowhere"))).html()
    assert '<a href="#cell/00000002" title="failed: moved by 0.1">' in page
    assert "drift: log-probabilities outside the tolerance" in page
    said = render_markdown(RunView(results, Path("nowhere")))
    assert "2 cases × 2 configurations: 3 exact, 1 drift" in said
    assert "| worse | ✅ exact | ❌ drift |\n| fine | ✅ exact | ✅ exact |" in said


@pytest.mark.parametrize("odd", [[], [None], [HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE], [{"a": 1}, [2], 10**400]])
def test_whatever_a_table_holds_it_is_shown_and_does_nothing(odd: list[Any]) -> None:
    results = run(configuration(1, "f32", FINE, verdict=Verdict.PASSED))
    charts = [Table("Cases", COLUMNS, [FINE, odd]), Table("Cases", [], [odd])]
    results = run(msgspec.structs.replace(results.cells[0], charts=charts))
    (made,) = tables(results)
    assert made.wrong == 1  # what cannot be read is not right
    page = RunPage(RunView(results, Path("nowhere"))).html()
    assert "<script>alert" not in page
    assert "<img" not in page
    said = render_markdown(RunView(results, Path("nowhere")))
    assert "<script>" not in said
    assert "<img" not in said
