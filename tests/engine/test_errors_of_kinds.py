"""An error that a kind raises costs the cell that it was raised for, whatever its class: an `OSError` of a kind says
nothing of the run folder or of a target."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from scripted import Fate, Script
from simulation import SimKind

from seatrial.job import Observation, PartSpec, RunResults, Verdict
from seatrial.kinds.protocol import Judgement
from seatrial.suite import Cell

ERRORS = [
    OSError(5, "Input/output error"),
    TimeoutError("nobody answered"),
    ConnectionRefusedError("nobody listens"),
    FileNotFoundError(2, "No such file or directory", "cases.json"),
]


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest) -> Exception:
    found: Exception = request.param
    return found


@pytest.fixture(params=["parts", "judge"])
def broken(request: pytest.FixtureRequest, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that raises for the second cell."""
    parts, judge = SimKind.parts, SimKind.judge

    def broken_parts(self: SimKind, cell: Cell) -> tuple[PartSpec, ...]:
        if cell.axes["n"] == "2":
            raise error
        return parts(self, cell)

    def broken_judge(self: SimKind, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        if cell.axes["n"] == "2":
            raise error
        return judge(self, cell, observed)

    monkeypatch.setattr(SimKind, request.param, {"parts": broken_parts, "judge": broken_judge}[request.param])


def script(folder: Path) -> Script:
    return Script(folder, lambda job: Fate(end_s=5.0), count=3, parallel=1, retries=1)


def assert_one_cell_is_broken(results: RunResults | None, error: Exception) -> None:
    assert results is not None, "the run stopped"
    cells = {cell.axes["n"]: cell for cell in results.cells}
    assert {n: cell.verdict for n, cell in cells.items()} == {
        "1": Verdict.PASSED,
        "2": Verdict.INVALID,
        "3": Verdict.PASSED,
    }
    assert len(cells["2"].attempts) == 1
    (finding,) = cells["2"].findings
    assert finding.class_ == "seatrial"
    assert f"{type(error).__name__}: {error}" in finding.message
    assert "Traceback" in finding.evidence


@pytest.mark.usefixtures("broken")
def test_other_cells_are_run_to_their_end(tmp_path: Path, error: Exception) -> None:
    made = script(tmp_path)
    assert_one_cell_is_broken(made.run(), error)
    assert made.folder.read_results() is not None
    assert all(job.removed for job in made.world.jobs.values())


@pytest.mark.usefixtures("broken")
def test_a_run_with_such_a_cell_can_be_taken_up(tmp_path: Path, error: Exception) -> None:
    made = script(tmp_path)
    assert made.run(made.life(kill_when=lambda point: point == "written broken")) is None
    assert_one_cell_is_broken(made.run(), error)
    assert all(job.removed for job in made.world.jobs.values())
