"""Since when a cell fails is since when it fails so: another failure is not known because there was one before."""

from pathlib import Path

import msgspec
import pytest

from record.past import cell, run
from seatrial.checks import find_causes
from seatrial.job import CellNews, Finding, Moment, RunResults, Verdict
from seatrial.record.history import History, open_history
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.sentences import cause_news_text, cell_news_text

IMPORT, MEMORY = "ImportError: No module named 'torch'", "torch.OutOfMemoryError: CUDA out of memory"


def night(number: int, said: str) -> RunResults:
    """A run of one cell at commit `c<number>`, which failed saying that; nothing: it passed."""
    verdict = Verdict.FAILED if said else Verdict.PASSED
    finding = Finding("run a", "exit", verdict, "exit" if said else "", said, said)
    one = cell("a", 1.0, verdict=verdict, started_s=number * 100.0, metrics={}, findings=[finding])
    one = msgspec.structs.replace(one, attempts=[msgspec.structs.replace(one.attempts[0], headline=said)])
    made = run(f"r{number}", one, started_s=number * 100.0, commit=f"c{number}")
    return msgspec.structs.replace(made, causes=find_causes([one]))


def nights(history: History, *said: str) -> RunResults:
    """The last of them, with what is new in it."""
    for number, text in enumerate(said, 1):
        made = night(number, text)
        made = with_news(made, history.past(made))
        history.add(made)
    return made


def news(results: RunResults) -> CellNews:
    found = results.cells[0].news
    assert found is not None
    return found


def commit(moment: Moment | None) -> str:
    return moment.commit if moment else ""


@pytest.fixture
def history(tmp_path: Path) -> History:
    return open_history(tmp_path / "history.db")


def test_a_cell_that_fails_otherwise_is_not_known_since_it_began_to_fail(history: History) -> None:
    made = nights(history, "", IMPORT, MEMORY)
    assert commit(news(made).since) != "c2"
    assert "known since" not in cell_news_text(made.cells[0])
    assert cause_news_text(made.causes[0]) == "new"


def test_a_cell_is_known_since_it_failed_so_for_the_first_time(history: History) -> None:
    made = nights(history, "", IMPORT, IMPORT, MEMORY, MEMORY)
    assert commit(news(made).since) == "c4"
    assert "commit c4" in cell_news_text(made.cells[0])
    assert "commit c4" in cause_news_text(made.causes[0])


def test_a_failure_longer_ago_than_is_looked_at_does_not_count_either(history: History) -> None:
    made = nights(history, "", *[IMPORT] * 2, *[MEMORY] * 30)
    assert commit(news(made).since) == "c4"


def test_against_one_run_another_failure_is_not_known(history: History) -> None:
    before = nights(history, "", IMPORT, IMPORT)
    made = with_news(night(4, MEMORY), past_of_run(before), before.run)
    assert commit(news(made).since) not in ("c2", "c3")
    assert "known since" not in cell_news_text(made.cells[0])


def test_a_cell_that_fails_as_it_did_is_known_since_then(history: History) -> None:
    before = nights(history, "", IMPORT, IMPORT)
    assert commit(news(before).since) == "c2"
    made = with_news(night(4, IMPORT), past_of_run(before), before.run)
    assert commit(news(made).since) == "c2"


def test_what_is_fixed_says_since_when_it_had_failed(history: History) -> None:
    assert commit(news(nights(history, "", IMPORT, IMPORT, "")).since) == "c2"
