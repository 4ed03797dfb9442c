"""Since when: each cell against the last time that it ran, and each cause against when it was seen; on SQLite and on
PostgreSQL alike."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from past import cell, run

from seatrial.checks import find_causes
from seatrial.job import CellNews, CellResult, Change, Finding, Moment, RunResults, Verdict
from seatrial.record.history import History, open_history
from seatrial.report.view.changes import past_of_run, with_news

WORDS = {
    "P": Verdict.PASSED,
    "F": Verdict.FAILED,
    "T": Verdict.TIMEOUT,
    "S": Verdict.SLOWER,
    "U": Verdict.FASTER,
    "X": Verdict.XFAIL,
    "~": Verdict.PASSED,
}


def named(name: str, letter: str, number: int, said: str = "RuntimeError: CUDA out of memory") -> CellResult:
    """A cell in the run of that number; ~ is a pass on a retry."""
    verdict = WORDS[letter]
    one = cell(name, 1.0, verdict=verdict, started_s=number * 100.0, flaky=letter == "~", metrics={})
    headline = "" if verdict.good else said
    return msgspec.structs.replace(one, attempts=[msgspec.structs.replace(one.attempts[0], headline=headline)])


def night(number: int, *cells: CellResult, suite: str = "suite") -> RunResults:
    made = run(f"r{number}", *cells, started_s=number * 100.0, commit=f"c{number}")
    return msgspec.structs.replace(made, causes=find_causes(cells), suite=suite)


def told(history: History, results: RunResults) -> RunResults:
    """As a run does it: what is new is found out, then the run is kept."""
    made = with_news(results, history.past(results))
    history.add(made)
    return made


def news(results: RunResults, name: str = "a") -> CellNews:
    found = next(one.news for one in results.cells if one.hash == name)
    assert found is not None
    return found


def moment(number: int) -> Moment:
    return Moment(f"r{number}", number * 100.0 + 1, f"c{number}")


@pytest.mark.parametrize(
    ("letters", "change", "since"),
    [
        ("P", Change.FIRST, None),
        ("F", Change.FIRST, None),
        ("PP", Change.SAME, None),
        ("PX", Change.SAME, None),
        ("PF", Change.NEW, None),
        ("PFF", Change.KNOWN, 2),
        ("PFFPF", Change.NEW, None),
        ("PFTF", Change.OTHER_CAUSE, None),
        ("PFTT", Change.KNOWN, 3),
        ("PFTP", Change.FIXED, 2),
        ("PFFP", Change.FIXED, 2),
        ("PS", Change.SLOWER, None),
        ("FS", Change.SLOWER, None),
        ("PSS", Change.KNOWN, 2),
        ("FSS", Change.KNOWN, 2),
        ("SF", Change.NEW, None),
        ("PU", Change.FASTER, None),
        ("SSP", Change.FIXED, 1),
    ],
)
def test_each_cell_says_what_became_of_it_since_the_last_time(
    tmp_path: Path, letters: str, change: Change, since: int | None
) -> None:
    history = open_history(tmp_path / "history.db")
    for number, letter in enumerate(letters, 1):
        found = news(told(history, night(number, named("a", letter, number))))
    assert (found.change, found.since) == (change, moment(since) if since else None)
    assert found.last == (moment(len(letters) - 1) if len(letters) > 1 else None)
    assert found.before == (WORDS[letters[-2]].value if len(letters) > 1 else "")


def test_the_last_time_is_that_of_the_cell_not_of_the_suite(place: str) -> None:
    history = open_history(place)
    told(history, night(1, named("a", "P", 1), named("b", "F", 1)))
    told(history, night(2, named("b", "P", 2)))
    told(history, night(3, named("c", "P", 3), suite="another"))
    made = told(history, night(4, named("a", "F", 4), named("b", "F", 4), named("c", "P", 4)))
    assert [(one.news.change, one.news.last) for one in made.cells if one.news] == [
        (Change.NEW, moment(1)),
        (Change.NEW, moment(2)),
        (Change.FIRST, None),
    ]
    assert made.changes == {"new": 2, "first": 1}
    assert made.against == "history"
    assert [one.run for one in made.past_runs] == ["r1", "r2"]
    assert news(made, "b").past == [(0, "failed"), (1, "passed")]


def test_how_often_of_the_last_runs(place: str) -> None:
    history = open_history(place)
    for number, letter in enumerate("PPFPPPPPPPPPPPPPPPPPPPPP~P", 1):
        made = told(history, night(number, named("a", letter, number)))
    found = news(told(history, night(40, named("a", "~", 40))))
    assert (found.flaky, found.bad, found.runs) == (2, 0, 21)
    assert [word for _, word in found.past] == ["passed"] * 18 + ["flaky", "passed"]
    assert len(made.past_runs) == 20


def test_what_fails_longer_than_that_is_known_since_its_first_failure(place: str) -> None:
    history = open_history(place)
    for number, letter in enumerate("FP" + "F" * 30, 1):
        made = told(history, night(number, named("a", letter, number), named("b", "F", number)))
    assert news(made).since == moment(3)
    assert news(made, "b").since == moment(1)
    assert news(made, "b").bad == news(made, "b").runs == 21


def test_a_cell_is_known_since_it_has_this_cause_however_long_ago_that_is(place: str) -> None:
    history = open_history(place)
    for number in range(1, 34):
        said = "ImportError: torch" if number < 5 else "RuntimeError: CUDA out of memory"
        made = told(history, night(number, named("a", "F", number, said), named("b", "F", number)))
    assert news(made).since == moment(5)
    assert news(made, "b").since == moment(1)


def test_every_cause_of_a_cell_is_kept(place: str) -> None:
    """What was second in a cell is not new on the day on which what was first is fixed."""
    history = open_history(place)

    def failing(number: int, *said: str) -> RunResults:
        findings = [Finding(f"run {text}", "exit", Verdict.FAILED, "exit", text) for text in said]
        one = named("a", "F", number, said[0])
        return told(history, night(number, msgspec.structs.replace(one, findings=findings), named("b", "P", number)))

    told(history, night(0, named("a", "P", 0), named("b", "P", 0)))
    missing = ["nvtop: not found", "htop: not found", "git: not found"]
    failing(1, *missing)
    second = failing(2, *missing)
    assert [(cause.news.change, cause.news.since) for cause in second.causes if cause.news] == [
        (Change.KNOWN, moment(1))
    ] * 3
    third = failing(3, *missing[1:])
    assert [(cause.text, cause.news.change) for cause in third.causes if cause.news] == [
        (text, Change.KNOWN) for text in missing[1:]
    ]
    assert (news(third).change, news(third).since) == (Change.KNOWN, moment(1))


def test_repeats_that_fail_otherwise_are_known_each_with_its_cause(place: str) -> None:
    history = open_history(place)
    for number in range(1, 25):
        repeats: list[Any] = [
            msgspec.structs.replace(named(f"a{n}", "F", number, said), id=f"t[n=1,repeat={n}]")
            for n, said in ((1, "ImportError: torch"), (2, "RuntimeError: CUDA out of memory"))
        ]
        made = told(history, night(number, *repeats))
    assert [(one.news.change, one.news.since) for one in made.cells if one.news] == [(Change.KNOWN, moment(1))] * 2


def test_repeats_are_one_cell_whose_worst_counts(place: str) -> None:
    history = open_history(place)
    repeats: list[Any] = [
        msgspec.structs.replace(named(f"a{n}", letter, 1), id=f"t[n=1,repeat={n}]")
        for n, letter in ((1, "P"), (2, "F"))
    ]
    told(history, night(1, *repeats))
    once = msgspec.structs.replace(named("a", "P", 2), id="t[n=1]")
    found = news(told(history, night(2, once)))
    assert (found.change, found.before, found.runs) == (Change.FIXED, "failed", 2)


def test_what_did_not_run_is_neither_compared_nor_compared_with(place: str) -> None:
    history = open_history(place)
    told(history, night(1, named("a", "F", 1)))
    skipped = cell("a", verdict=Verdict.SKIPPED, started_s=200.0)
    assert told(history, night(2, skipped)).cells[0].news is None
    found = news(told(history, night(3, named("a", "F", 3))))
    assert (found.change, found.last) == (Change.KNOWN, moment(1))


def test_a_run_that_is_kept_already_says_the_same_again(place: str) -> None:
    history = open_history(place)
    told(history, night(1, named("a", "P", 1)))
    first = told(history, night(2, named("a", "F", 2)))
    told(history, night(3, named("a", "P", 3)))  # and what came later says nothing of it
    assert with_news(first, history.past(first)) == first


def test_a_cause_is_new_known_or_back(place: str) -> None:
    history = open_history(place)
    oom, nccl = "RuntimeError: CUDA out of memory. Tried 512 MiB", "NCCL error: unhandled system error"
    told(history, night(0, named("a", "P", 0), named("b", "P", 0)))
    first = told(history, night(1, named("a", "F", 1, oom), named("b", "P", 1)))
    (cause,) = first.causes
    assert cause.news is not None
    assert (cause.news.change, cause.news.since) == (Change.NEW, None)
    # In another cell, with another number: it is the same cause.
    second = told(history, night(2, named("a", "P", 2), named("b", "F", 2, oom.replace("512", "64"))))
    assert second.causes[0].id == cause.id
    assert second.causes[0].news is not None
    assert (second.causes[0].news.change, second.causes[0].news.since) == (Change.KNOWN, moment(1))
    told(history, night(3, named("a", "P", 3), named("b", "F", 3, nccl)))
    fourth = told(history, night(4, named("a", "F", 4, oom), named("b", "F", 4, nccl)))
    found = {one.text: one.news for one in fourth.causes}
    assert found[oom] is not None
    assert (found[oom].change, found[oom].since, found[oom].last) == (Change.BACK, moment(1), moment(2))
    assert found[nccl] is not None
    assert (found[nccl].change, found[nccl].since) == (Change.KNOWN, moment(3))


def test_a_cause_of_another_suite_is_not_known_here(place: str) -> None:
    history = open_history(place)
    told(history, night(1, named("a", "F", 1), suite="another"))
    assert told(history, night(0, named("a", "P", 0))).causes == []
    (cause,) = told(history, night(2, named("a", "F", 2))).causes
    assert cause.news is not None
    assert cause.news.change is Change.NEW


def test_cells_keep_their_headline_and_cause(place: str) -> None:
    history = open_history(place)
    made = told(history, night(1, named("a", "F", 1), named("b", "P", 1)))
    rows = {row.id: (row.headline, row.cause) for row in history.cells("t")}
    assert rows == {"t[n=a]": ("RuntimeError: CUDA out of memory", made.causes[0].id), "t[n=b]": ("", "")}


def test_against_one_run_that_run_alone_counts() -> None:
    before = night(1, named("a", "P", 1), named("b", "F", 1), named("c", "F", 1))
    after = night(5, named("a", "F", 5), named("b", "F", 5), named("d", "P", 5))
    made = with_news(after, past_of_run(before), before.run)
    start = Moment("r1", 100.0, "c1")
    assert made.against == "r1"
    assert [(one.news.change, one.news.since) for one in made.cells if one.news] == [
        (Change.NEW, None),
        (Change.KNOWN, start),
        (Change.FIRST, None),
    ]
    assert made.causes[0].news is not None
    assert (made.causes[0].news.change, made.causes[0].news.since) == (Change.KNOWN, start)


def test_a_run_whose_cells_started_after_another_began_is_compared_with_it(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    short = night(3, named("a", "F", 3))
    told(history, short)
    long = msgspec.structs.replace(night(4, named("a", "P", 4)), started_s=10.0)  # began before, came to it later
    assert news(told(history, long)).change is Change.FIXED


def test_rows_of_an_older_version_are_followed_too(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    history = open_history(path)
    told(history, night(1, named("a", "P", 1)))
    told(history, night(2, named("a", "F", 2)))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX cells_through_time")
        connection.execute("DROP TABLE causes")
        for column in ("cell", "headline", "cause"):
            connection.execute(f"ALTER TABLE cells DROP COLUMN {column}")
        connection.execute("ALTER TABLE series DROP COLUMN checked")
        connection.execute("DROP INDEX cells_in_trouble")
        for column in ("counts", "targets"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 5")
        connection.commit()
    found = told(open_history(path), night(3, named("a", "F", 3)))
    assert (news(found).change, news(found).since) == (Change.KNOWN, moment(2))
    assert found.causes[0].news is not None
    assert found.causes[0].news.change is Change.NEW  # nobody kept what was said before


def test_the_past_of_a_cell_in_a_large_history_is_found_by_an_index(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    told(open_history(path), night(1, named("a", "F", 1)))
    with closing(sqlite3.connect(path)) as connection:

        def plan(query: str) -> str:
            return "; ".join(str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))

        last = "SELECT run, at_s, verdict, flaky, cause FROM cells WHERE cell = 1 AND at_s < 9.0"
        last += " AND verdict <> 'skipped' AND run <> 'r' ORDER BY at_s DESC, run DESC LIMIT 20"
        assert "USING COVERING INDEX cells_through_time (cell=? AND at_s<?)" in plan(last)
        seen = "SELECT run FROM causes WHERE cause IN ('a', 'b') AND at_s < 9.0"
        assert "USING PRIMARY KEY (cause=? AND at_s<?)" in plan(seen)
