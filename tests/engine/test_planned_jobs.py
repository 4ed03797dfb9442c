"""A process asks a kind once for the parts of a cell. The job of an attempt that is in the journal is read from its
`job.json`, never computed again."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from scripted import Fate, Script
from simulation import SimKind, plugged

from seatrial.engine import RunOptions, create
from seatrial.job import Exit, Outcome, PartSpec, Verdict
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


def test_a_planned_attempt_is_submitted_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SimKind.parts
    script = Script(tmp_path, lambda job: Fate(end_s=5.0), count=2, parallel=1)
    assert script.run(script.life(kill_when=lambda point: point == "synced planned")) is None
    written = [msgspec.json.decode(file.read_bytes()) for file in script.folder.path.glob("cells/*/1/job.json")]

    def other(self: SimKind, cell: Cell) -> tuple[PartSpec, ...]:
        if cell.axes["n"] == "1":
            raise RuntimeError("the parts of an attempt that is in the journal are not needed")
        return tuple(replace(part, job=replace(part.job, title="other")) for part in parts(self, cell))

    monkeypatch.setattr(SimKind, "parts", other)
    life = script.life()
    results = script.run(life)
    assert results is not None
    assert [cell.verdict for cell in results.cells] == [Verdict.PASSED] * 2
    assert [job.title for job in life.target.submissions] == [written[0]["job"]["title"], "other"]
    assert msgspec.json.decode(msgspec.json.encode(life.target.submissions[0])) == written[0]["job"]
