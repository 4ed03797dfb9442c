"""A process asks a kind once for the parts of a cell. The job of an attempt that is in the journal is read from its
`job.json`, never computed again."""

from collections import Counter
from pathlib import Path

import pytest
from scripted import Fate, Script
from simulation import SimKind, plugged

from seatrial.engine import RunOptions, create
from seatrial.job import Exit, Outcome, PartSpec
from seatrial.suite import Cell

LOST = Exit(Outcome.LOST)


def test_a_kind_is_asked_once_for_the_parts_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, asked = SimKind.parts, Counter[str]()

    def counted(self: SimKind, cell: Cell) -> tuple[PartSpec, ...]:
        asked[cell.axes["n"]] += 1
        return parts(self, cell)

    monkeypatch.setattr(SimKind, "parts", counted)
    script = Script(tmp_path, lambda job: Fate(end_s=5.0, exit=LOST), count=2, retries=1)
    life = script.life()
    with plugged(life.target, life.at):
        prepared = create(script.prepared.suite, script.prepared.plan, tmp_path / "runs", RunOptions())
    results = life.run(prepared)
    assert results is not None
    assert [len(cell.attempts) for cell in results.cells] == [2, 2]
    assert asked == {"1": 1, "2": 1}
