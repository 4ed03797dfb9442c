"""Checks the log and files of a job that ran elsewhere, for `seatrial check`."""

import gzip
import hashlib
import re
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from seatrial import SeatrialError, plugins
from seatrial.engine.collect import read_as_agent
from seatrial.engine.judge import JudgedAttempt, judge, reason, result_of, with_bounds
from seatrial.job import (
    AttemptResult,
    CellResult,
    Exit,
    Job,
    Observation,
    Outcome,
    Place,
    Settings,
    Step,
    read_records,
    worst,
)
from seatrial.kinds.protocol import ChecksFiles, Judgement
from seatrial.record.remote import LOGS
from seatrial.suite import Cell

_TAIL_BYTES = 16 << 10
_HEAD_BYTES = 1 << 20
_DIGITS = re.compile(r"(\d+)")
_HOST = re.compile(rb"^\[\d+\] ", re.MULTILINE)


@dataclass(frozen=True)
class Checked:
    result: CellResult
    folder: Path
    logs: tuple[Path, ...]
    ended_s: float  # wall time: modification time of the newest log, or of the result file


def checked_name(place: str, checked: Checked) -> str:
    """Name as a run in the history: the same for the same job."""
    address = place if "://" in place else str(Path(place).resolve())
    content = f"{address}\0{checked.result.benchmark}".encode() + msgspec.json.encode(checked.result.metrics)
    name = re.sub(r"[^\w.-]+", "-", address.rstrip("/").rpartition("/")[2])[:60] or "folder"
    return f"check-{name}-{hashlib.sha256(content).hexdigest()[:8]}"


def check_folder(
    cell: Cell, folder: Path, logs: Sequence[Path] = (), exit_code: int | None = None, called: str = ""
) -> Checked:
    """Applies the cell's checks to `folder`, which messages name as `called`, and its logs; without `logs`, those in
    the folder. Checks of facts that are unknown, such as the exit code, are skipped. Raises SeatrialError."""
    kind = plugins.kinds()[cell.kind]
    cell = replace(cell, gathered=kind.gather(cell))
    # The hardware is unknown here; trust that the user chose matching bounds.
    bounds = tuple(msgspec.structs.replace(bound, fingerprint="", conditions={}) for bound in cell.bounds)
    # Without the advice to compute bounds: this result may not be in the history.
    bounded = replace(cell, bounds=bounds, unbounded=cell.unbounded.partition(";")[0])
    if isinstance(kind, ChecksFiles):
        if not folder.exists():
            raise SeatrialError(f"file not found: {folder}")
        if logs or exit_code is not None or not folder.is_file():
            what = f"trial {cell.trial!r} is of kind {cell.kind}"
            raise SeatrialError(f"{what}; use the result file of a load generator, without --log and --exit-code")
        ended_s = folder.stat().st_mtime
        judgement = with_bounds(bounded, kind.judge_file(bounded, folder), {}, Settings(), ended_s)
        return _checked(cell, judgement, Place("", ""), Exit(Outcome.EXITED), folder, (), ended_s)
    job = kind.parts(cell)[0].job.for_attempt("check", cell.hash, 1)
    train = next((step for step in job.steps if "hosts" in step.args), None)
    if train is None:
        raise SeatrialError(f"trial {cell.trial!r} is of kind {cell.kind}, which has no files to check")
    if not folder.is_dir():
        raise SeatrialError(f"{folder} is a file, not a folder" if folder.is_file() else f"folder not found: {folder}")
    found = tuple(logs) or find_logs(folder)
    lost = [str(log) for log in found if not log.is_file()]
    if lost:
        raise SeatrialError(f"log not found: {lost[0]}")
    follow = train.args["follow"]
    if not found and (follow["must"] or follow["never"] or follow["values"].keys() - {"step", "step_time"}):
        where = called or folder
        raise SeatrialError(f"log not found in {where} ({', '.join(LOGS)}); use --log FILE, once for each host")
    observation = _observe(job, train, folder.absolute(), found, exit_code)
    judgement = judge(bounded, kind, {"job": observation}, Settings(), time.time())
    written_s = max((log.stat().st_mtime for log in found), default=time.time())
    return _checked(cell, judgement, observation.place, observation.exit, folder, found, written_s)


def _checked(
    cell: Cell, judgement: Judgement, place: Place, ended: Exit, folder: Path, logs: tuple[Path, ...], ended_s: float
) -> Checked:
    verdict = worst(finding.verdict for finding in judgement.findings)
    why = "" if verdict.good else reason(judgement.findings, verdict)
    attempt = AttemptResult(1, place, [], ended, verdict, why)
    return Checked(result_of(cell, [JudgedAttempt(attempt, judgement)]), folder, logs, ended_s)


def find_logs(folder: Path) -> tuple[Path, ...]:
    """The logs in the folder, else in its subfolders; one per host, ordered by the numbers in their names. Skips links
    that lead out of the folder."""
    inside = folder.resolve()

    def natural(path: Path) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(str(path))]

    for depth in ("", "*/", "*/*/"):
        matches = (path for pattern in LOGS for path in folder.glob(depth + pattern))
        found = {path for path in matches if path.is_file() and path.resolve().is_relative_to(inside)}
        if found:
            return tuple(sorted(found, key=natural))
    return ()


def _tail(logs: tuple[Path, ...]) -> str:
    """The end of the first log, shown with failures."""
    if not logs or logs[0].suffix == ".gz":
        return ""
    try:
        with logs[0].open("rb") as file:
            file.seek(max(0, logs[0].stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:  # the agent has reported it
        return ""


def _says_hosts(log: Path) -> bool:
    """Whether lines of a log start with their host, `[1] `, as in jobs with several hosts."""
    try:
        with gzip.open(log) if log.suffix == ".gz" else log.open("rb") as file:
            return _HOST.search(file.read(_HEAD_BYTES)) is not None
    except (OSError, EOFError, zlib.error):  # the agent reports it
        return False


def _observe(job: Job, train: Step, folder: Path, logs: tuple[Path, ...], exit_code: int | None) -> Observation:
    """Lets the agent read the logs and files. Several logs are of several hosts; a single one may be of all hosts."""
    hosts = max(len(logs), int(train.args["hosts"]))
    of_all = len(logs) == 1 and hosts > 1 and _says_hosts(logs[0])
    known = {} if of_all or not logs else {"logs": len(logs)}
    train = msgspec.structs.replace(train, args={**train.args, "hosts": hosts, **known})
    files = next((step for step in job.steps if step.kind == "read"), Step("files", "read", {"entries": {}}))
    spec = {
        "logs": [{"path": str(log.absolute()), "host": None if of_all else host} for host, log in enumerate(logs)],
        "follow": train.args["follow"],
        "hosts": hosts,
        "roots": [str(folder)],
        "entries": files.args["entries"],
    }
    records, ended = read_as_agent(spec)
    observed = read_records(records, [train, files]).steps
    if ended.outcome is Outcome.EXITED:  # drop the times, which are those of reading
        ran = {"outcome": Outcome.EXITED, "code": exit_code, "started_s": None, "ended_s": None}
        # Show paths relative to the folder: fetched files are in a temporary one.
        errors = [
            {key: text.replace(f"{folder}/", "") if isinstance(text, str) else text for key, text in one.items()}
            for one in observed[0].result.get("errors") or []
        ]
        result = {**observed[0].result, "errors": errors}
        observed = [
            msgspec.structs.replace(observed[0], **ran, output=_tail(logs), result=result),
            msgspec.structs.replace(observed[1], outcome=Outcome.EXITED, code=0),
        ]
    return Observation(job.name, 1, Place("", ""), ended, steps=observed)
