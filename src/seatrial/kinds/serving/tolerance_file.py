"""The tolerance file that `seatrial calibrate` writes: one entry per cell, with its source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import Field

from seatrial.kinds.serving.answers import Tolerance
from seatrial.suite import Model, Problem, SuiteError, Text
from seatrial.suite.yaml.document import Document
from seatrial.suite.yaml.source import Source, read_source

_NEW = "# Written by `seatrial calibrate`. Everything else in this file is kept.\nversion: 1\ntolerances:\n"
Nats = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ToleranceEntry(Model):
    precision: Text = Field(description="Precision of the server's computations.")
    drift: Nats = Field(description="Maximum change of one log-probability.")
    rms: Nats = Field(description="Maximum root mean square of all changes.")
    near_tie: Nats = Field(description="Maximum gap between the two most likely tokens where texts diverge.")
    near_ties: Annotated[float, Field(ge=0, le=1)] | None = Field(None, description="Share of such answers.")
    source: Text = Field("", description="How it was measured.")


class ToleranceFile(Model):
    version: int = Field(1, ge=1, le=1)
    tolerances: dict[Text, ToleranceEntry] = Field({}, description="Tolerances by cell, without `repeat`.")


def read_tolerance(path: Path, cell: str) -> Tolerance:
    """Reads the tolerance of one cell. Raises SuiteError."""
    source = read_source(path)
    entries = _entries(source)
    if cell not in entries:
        why = f"no tolerance for {cell}; run `seatrial calibrate` with a trusted server to measure it"
        raise SuiteError([Problem(why, source.mark(1, 1))])
    return Tolerance(**entries[cell].model_dump())


def _entries(source: Source) -> Mapping[str, ToleranceEntry]:
    data = source.data if isinstance(source.data, dict) else {"tolerances": source.data}
    file = source.validated(ToleranceFile, data if data.get("tolerances") is not None else {**data, "tolerances": {}})
    if file is None or source.problems:
        raise SuiteError(source.problems)
    return file.tolerances


def with_tolerances(text: str, file: str, tolerances: Mapping[str, Tolerance]) -> str:
    """The file's text with these entries; an empty `text` is a new file. Raises SuiteError and CannotEdit."""
    source = Source(file, text or _NEW)
    _entries(source)
    document = Document(source)
    for cell, one in tolerances.items():
        document.set(("tolerances", cell), msgspec.structs.asdict(one))
    return document.apply().text
