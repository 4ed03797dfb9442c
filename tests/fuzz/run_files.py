"""What is in a run folder: plan, journal, results, observations, series, live file and lock."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fuzz import mutate
from fuzz.fuzzing import Kind
from fuzz.seeds import Seeds
from report import sample
from seatrial import plugins
from seatrial.engine import reopen
from seatrial.engine.judge import judge_attempt, result_of
from seatrial.engine.states import read_run
from seatrial.job import Unreadable
from seatrial.plan import PlanError
from seatrial.record import (
    DamagedRun,
    LiveReader,
    RecordError,
    RunFolder,
    owner_of,
    read_journal,
    run_overview,
)
from seatrial.record.folder import ResultsError, read_results
from seatrial.record.history import HistoryError, open_history
from seatrial.report import write_reports
from seatrial.report.terminal.summary import print_summary
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.series import read_series
from seatrial.suite import Cell

OWNER = b'{"host":"node","boot":"0a1b","pid":4711,"start":99,"since_s":1767225600.5}'
LIVE = (
    b'[1767225600.5,"t[n=1]","starting",""]\n[1767225601.5,"t[n=1]","running","step 2"]\n[1767225602,"","left","x"]\n'
)
SERIES = b'{"run":"r","series":[],"groups":[],"left_out":0,"precision":null}'


def of_runs(seeds: Seeds) -> Iterator[Kind]:
    folder = RunFolder(seeds.folder / "fuzzed")
    folder.path.mkdir()
    small = sample.small()
    sample.write_run(folder.path, small)
    plan = (seeds.run / "plan.json").read_bytes()
    journal = (seeds.run / "journal.jsonl").read_bytes()
    results = [(seeds.run / "results.json").read_bytes(), msgspec.json.encode(small)]
    results.append(msgspec.json.encode(with_news(small, past_of_run(small), "r0")))
    cells = {cell.hash: cell for cell in reopen(RunFolder(seeds.run)).plan.cells}
    observations = seeds.attempts("observation.json")

    def sealed_plan(data: bytes, rng: Any) -> bytes:
        changed = mutate.json_text(data, rng)
        return changed if rng.random() < 0.3 else _plan_as_written(changed)

    def sealed_journal(data: bytes, rng: Any) -> bytes:
        return mutate.json_lines(data, rng, None if rng.random() < 0.3 else mutate.seal_journal)

    def read_plan(data: bytes) -> object:
        folder.plan.write_bytes(data)
        run_overview(folder)
        return reopen(folder)

    def read_entries(data: bytes) -> object:
        folder.journal.write_bytes(data)
        return read_run(read_journal(folder.journal)[0])

    def report(data: bytes) -> object:
        folder.results.write_bytes(data)
        read = read_results(folder.path)
        with contextlib.suppress(HistoryError):
            history = open_history(seeds.folder / "fuzzed.db")
            history.add(read)
            read = with_news(read, history.past(read))
        with_news(read, past_of_run(read), read.run)
        with contextlib.redirect_stdout(io.StringIO()):
            print_summary(read, folder.path)
        return write_reports(folder.path, read)

    def observed(number: int) -> Kind:
        path = observations[number]
        cell = cells[path.parts[-3]]
        return Kind(
            f"observations-{cell.trial}",
            [path.read_bytes()],
            mutate.json_text,
            lambda data: _judge(folder, cell, data),
        )

    yield Kind("plans", [plan], sealed_plan, read_plan, (DamagedRun, PlanError))
    yield Kind("journals", [journal], sealed_journal, read_entries, (RecordError,))
    yield Kind("results", results, mutate.json_text, report, (ResultsError,))
    by_trial = {cells[path.parts[-3]].trial: number for number, path in enumerate(observations)}
    for number in by_trial.values():
        yield observed(number)
    yield Kind("owners", [OWNER], mutate.json_text, lambda data: _owner(folder.path, data))
    yield Kind("live-files", [LIVE], mutate.json_lines, lambda data: _live(folder.path, data))
    yield Kind("series", [SERIES], mutate.json_text, lambda data: _series(folder.path, data))


def _plan_as_written(data: bytes) -> bytes:
    """Changed, but with the checksum of what it holds: as another version, or a bug of ours, would have written it."""
    try:
        plan = msgspec.json.decode(data)
        plan.pop("crc", None)
        written = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    except Exception:  # noqa: BLE001 - it cannot be written so
        return data
    return mutate.seal_plan(written.removesuffix(b"\n}") + b',\n "crc": "00000000"\n}')


def _judge(folder: RunFolder, cell: Cell, data: bytes) -> object:
    path = folder.attempt(cell.hash, 1) / "observation.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    try:
        observation = folder.read_observation(cell.hash, 1)
    except Unreadable:
        return None
    judged = judge_attempt(cell, plugins.kinds()[cell.kind], 1, {"job": observation})
    return msgspec.json.encode(result_of(cell, [judged], ""))


def _owner(folder: Path, data: bytes) -> object:
    (folder / "lock").write_bytes(data)
    owner = owner_of(folder)
    return owner is not None and owner.alive()


def _live(folder: Path, data: bytes) -> object:
    (folder / "live.jsonl").write_bytes(data)
    return LiveReader(folder).changes()


def _series(folder: Path, data: bytes) -> object:
    (folder / "series.json").write_bytes(data)
    return read_series(folder)
