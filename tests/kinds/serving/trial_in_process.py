"""A serving trial in this process: the client's own code asks a running server, and the kind judges its notes."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import msgspec

from seatrial import plugins
from seatrial.job import Exit, Observation, ObservedStep, Outcome, Place
from seatrial.kinds.driver import Driver, Given
from seatrial.kinds.job import DRIVER
from seatrial.kinds.protocol import Judgement
from seatrial.kinds.serving.driver import drive
from seatrial.kinds.serving.gather import gather_cases
from seatrial.kinds.serving.kind import kind
from seatrial.kinds.serving.parts import work_of
from seatrial.kinds.serving.recording import TrustedCell, answers_in, calibrate_cells, new_texts, record_cell
from seatrial.kinds.serving.tolerance_file import with_tolerances
from seatrial.plan import expand
from seatrial.suite import Cell, load

EXITED = Exit(Outcome.EXITED, 0)


def cell_of(folder: Path, url: str, cases: Path, **fields: Any) -> Cell:
    """The cell of a trial of the server at this address."""
    trial = {"kind": "serving", "model": "tiny", "server": {"url": url}, "cases": [str(cases)], **fields}
    (folder / "suite.yaml").write_text(json.dumps({"name": "s", "trials": {"t": trial}}))
    (cell,) = expand(load(folder / "suite.yaml", *plugins.models())).cells
    return dataclasses.replace(cell, gathered=gather_cases(cell))


async def observe(cell: Cell, folder: Path) -> dict[str, Observation]:
    """Asks the server what the client of the trial would ask it."""
    path = folder / "notes.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        await drive(Driver(Given(msgspec.to_builtins(work_of(cell)), str(folder)), fd))
    finally:
        os.close(fd)
    notes = [json.loads(line) for line in path.read_bytes().splitlines()]
    step = ObservedStep(DRIVER, "drive", outcome=Outcome.EXITED, code=0, notes=notes)
    return {DRIVER: Observation("job", 1, Place("here", ""), EXITED, steps=[step])}


async def judged(cell: Cell, folder: Path) -> Judgement:
    return kind.judge(cell, await observe(cell, folder))


async def record(folder: Path, url: str, cases: Path) -> None:
    """Writes the answers of the server into the case file, as `seatrial record` does."""
    cell = cell_of(folder, url, cases, purpose="record")
    recorded = record_cell(TrustedCell(cell, answers_in(cell, await observe(cell, folder))))
    refused = [(one.case.name, one.lines) for one in recorded if str(one.state) == "refused"]
    assert not refused, refused
    for path, text in new_texts(cell, recorded).items():
        path.write_text(text)


async def calibrate(folder: Path, url: str, cases: Path, repeats: int) -> None:
    """Writes `tolerances.yaml`, as `seatrial calibrate` does."""
    cell = cell_of(folder, url, cases, purpose="calibrate")
    trusted = [TrustedCell(cell, answers_in(cell, await observe(cell, folder))) for _ in range(repeats)]
    for series in calibrate_cells(trusted):
        assert series.seen.tolerance is not None
        series.path.write_text(with_tolerances("", str(series.path), {series.name: series.seen.tolerance}))
