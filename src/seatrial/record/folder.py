"""The run folder: where everything of a run is, readable on any machine that it is copied to."""

import contextlib
import difflib
import os
import re
import secrets
import shutil
import time
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seatrial import SeatrialError
from seatrial.job import Observation, Part, RunResults, Unreadable, decode, read_json, read_regular
from seatrial.job.plan import PlanFile

_T = TypeVar("_T")
_BEGUN = ".begun-"  # before the name of a run folder that has no plan yet
ABANDONED_S = 3600.0
_UNSEALED = re.compile(rb'"seatrial": "0\.1\.')  # plans of that time have no checksum


class UnknownRun(SeatrialError):
    """No run folder goes by that name."""


class DamagedRun(SeatrialError):
    """A file of a run folder without which nothing can be done is not what was written there."""

    def __init__(self, path: Path, why: str) -> None:
        advice = f"`seatrial reap {path.parent.name}` removes what is left of the run"
        super().__init__(f"{path} is damaged: {why}; {advice}")


class RecordError(SeatrialError):
    """The journal of a run, or a place at an address, cannot be read or written."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path.name
        self.plan = path / "plan.json"
        self.journal = path / "journal.jsonl"
        self.results = path / "results.json"
        self.against = path / "against.json"  # the results that news are relative to: the folder of their run may go

    @classmethod
    def create(cls, runs: Path, suite: str) -> "RunFolder":
        """A new folder whose name tells the suite and the time, and is unique. It is there under that name when its
        plan is, so that no kill leaves a run that is none."""
        word = "".join(c if c.isalnum() or c in "-_" else "-" for c in suite.lower())[:40].strip("-") or "run"
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        folder = cls(runs / f"{word}-{stamp}-{secrets.token_hex(2)}")
        runs.mkdir(parents=True, exist_ok=True)
        for old in runs.glob(f"{_BEGUN}*"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(old)
        folder._begun.mkdir()
        return folder

    @property
    def _begun(self) -> Path:
        return self.path.with_name(f"{_BEGUN}{self.path.name}")

    def attempt(self, cell: str, attempt: int, part: str = "job") -> Path:
        """Of an attempt with one part, `job`, everything is in the attempt's own folder; other parts have one each."""
        folder = f"{self.path}/cells/{cell}/{attempt}"
        return Path(folder if part == "job" else f"{folder}/{part}")

    def write_plan(self, plan: PlanFile) -> None:
        write_whole(self._begun / self.plan.name, summed_plan(plan))
        os.rename(self._begun, self.path)

    def read_plan(self) -> PlanFile:
        """Raises DamagedRun."""
        try:
            data = read_regular(self.plan, follow=True)
            body, mark, crc = data.rpartition(b',\n "crc": "')
            if crc != b'%08x"\n}' % zlib.crc32(body + b"\n}") and (mark or not _UNSEALED.search(data)):
                raise DamagedRun(self.plan, "its checksum is not that of what it holds")
            return decode(data, PlanFile)
        except (OSError, Unreadable) as error:
            raise DamagedRun(self.plan, str(error)) from error

    def read_results(self) -> RunResults | None:
        """None when there are none that can be read: they can be made again from what the attempts left."""
        try:
            return read_json(self.results, RunResults)
        except (OSError, Unreadable):
            return None

    def write_results(self, results: RunResults) -> None:
        write_whole(self.results, msgspec.json.format(msgspec.json.encode(results), indent=1))

    def read_part(self, cell: str, attempt: int, part: str) -> Part:
        """What was meant to be submitted. Raises Unreadable."""
        return _read(self.attempt(cell, attempt, part) / "job.json", Part)

    def write_part(self, cell: str, part: Part) -> Path:
        """The file; it is on the disk when the journal has synced it."""
        path = self.attempt(cell, part.job.attempt, part.name) / "job.json"
        write_whole(path, msgspec.json.encode(part), sync=False)
        return path

    def read_observation(self, cell: str, attempt: int, part: str = "job") -> Observation:
        """Raises Unreadable."""
        return _read(self.attempt(cell, attempt, part) / "observation.json", Observation)

    def write_observation(self, cell: str, part: str, observation: Observation) -> Path:
        """The file; it is on the disk when the journal has synced it."""
        path = self.attempt(cell, observation.attempt, part) / "observation.json"
        write_whole(path, msgspec.json.encode(observation), sync=False)
        return path


def summed_plan(plan: PlanFile | dict[str, Any]) -> bytes:
    """With a checksum at its end: a plan decides verdicts, and a wrong one must not be taken for it."""
    body = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    return b'%s,\n "crc": "%08x"\n}' % (body.removesuffix(b"\n}"), zlib.crc32(body))


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return read_json(path, kind)
    except (OSError, Unreadable) as error:
        raise Unreadable(f"{path} cannot be read any more: {error}") from error


def write_whole(path: Path, data: bytes, sync: bool = True, mode: int = 0o600) -> None:
    """Write so that a reader, or a kill at any instant, sees the old file or the new one, never a part. So does a loss
    of power, with `sync`. The `mode` is that of logs, which most of what is written quotes."""
    part = f"{path}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(part, flags, mode)
    except FileNotFoundError:
        os.makedirs(path.parent, exist_ok=True)
        file = os.open(part, flags, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            if sync:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def find_run(runs: Path, name: str) -> RunFolder:
    """The run of that name: an id, a beginning that only one has, a path, or `last`, the one that began last."""
    direct = Path(name)
    try:
        if (direct / "plan.json").is_file():
            return RunFolder(direct.resolve())
    except (OSError, ValueError):  # too long, or with a NUL: no path
        raise UnknownRun(f"there is no run {name[:80]!r}") from None
    known = [plan.parent for plan in sorted(runs.glob("*/plan.json"), key=lambda plan: plan.stat().st_mtime_ns)]
    if name == "last" and known:
        return RunFolder(known[-1].resolve())
    matching = [path for path in known if path.name == name] or [path for path in known if path.name.startswith(name)]
    if len(matching) == 1:
        return RunFolder(matching[0].resolve())
    if matching:
        names = ", ".join(path.name for path in matching[:5])
        raise UnknownRun(f"{name!r} is the beginning of {len(matching)} runs: {names}")
    near = difflib.get_close_matches(name, [path.name for path in known], n=3, cutoff=0.3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UnknownRun(f"there is no run {name!r} in {runs}{hint}")
