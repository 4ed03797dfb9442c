"""Which verdict wins: one table, for the findings of a cell and for the cells of a run."""

import itertools

import pytest

from seatrial.job import CELLS_WORST_FIRST, EXIT_CODES, Verdict, worst, worst_cell


def test_every_verdict_has_its_row() -> None:
    assert set(EXIT_CODES) == set(CELLS_WORST_FIRST) == set(Verdict)


@pytest.mark.parametrize(
    ("findings", "cell"),
    [
        (["passed", "failed", "infra"], "infra"),  # nothing that a broken place said can be trusted
        (["passed", "failed", "timeout"], "failed"),
        (["passed", "xfail"], "xfail"),
        (["passed", "skipped"], "passed"),
        ([], "skipped"),
    ],
)
def test_of_a_cell(findings: list[str], cell: str) -> None:
    assert worst(map(Verdict, findings)) == cell


@pytest.mark.parametrize(
    ("cells", "run"),
    [
        (["passed", "failed", "infra"], "failed"),  # another cell's place says nothing of this one's failure
        (["infra", "timeout"], "timeout"),
        (["infra", "passed"], "infra"),
        (["passed", "xfail", "skipped"], "passed"),
        (["xfail", "skipped"], "xfail"),
        ([], "skipped"),
    ],
)
def test_of_a_run(cells: list[str], run: str) -> None:
    assert worst_cell(map(Verdict, cells)) == run


def test_a_run_never_ends_better_than_any_of_its_cells() -> None:
    for one, other in itertools.product(Verdict, repeat=2):
        run = worst_cell([one, other])
        assert EXIT_CODES[run] in {EXIT_CODES[one], EXIT_CODES[other]}
        assert run.good == (one.good and other.good)
