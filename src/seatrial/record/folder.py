"""The run folder: everything about a run, readable on any machine that it is copied to; and the owner of a run."""

import contextlib
import difflib
import fcntl
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
from seatrial.job import VERSION, Observation, Part, RunResults, Unreadable, decode, read_json, read_regular
from seatrial.job.plan import PlanFile
from seatrial.job.reading import boot_id, process_start

_T = TypeVar("_T")
_BEGUN = ".begun-"  # prefix of a run folder that has no plan yet
ABANDONED_S = 3600.0
REAPED = "reaped.txt"  # names of jobs that `seatrial reap` deleted
_UNSEALED = re.compile(rb'"seatrial": "0\.1\.')  # plans of these versions have no checksum


class UnknownRun(SeatrialError):
    """No run has that name, or several do."""


class DamagedRun(SeatrialError):
    """A required file of a run folder is damaged."""

    def __init__(self, path: Path, why: str) -> None:
        advice = f"run `seatrial reap {path.parent.name}` to delete its leftover jobs"
        super().__init__(f"{path} is damaged: {why}; {advice}")


class RecordError(SeatrialError):
    """The journal of a run, or a copy of a run at a URL, cannot be read or written."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path.name
        self.plan = path / "plan.json"
        self.journal = path / "journal.jsonl"
        self.results = path / "results.json"
        self.against = path / "against.json"  # the results of `--against`, since that run folder may be deleted

    @classmethod
    def create(cls, runs: Path, suite: str) -> "RunFolder":
        """A new folder with a unique name made of the suite and the time. It gets that name in `write_plan`, so a kill
        never leaves a run without a plan."""
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
        """The folder of a part of an attempt. A single part, `job`, uses the folder of the attempt."""
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
                raise DamagedRun(self.plan, "checksum mismatch")
            return decode(data, PlanFile)
        except (OSError, Unreadable) as error:
            raise DamagedRun(self.plan, str(error)) from error

    def read_results(self) -> RunResults | None:
        """None if they are missing or unreadable; `attach` can write them again."""
        try:
            return read_json(self.results, RunResults)
        except (OSError, Unreadable):
            return None

    def write_results(self, results: RunResults) -> None:
        write_whole(self.results, msgspec.json.format(msgspec.json.encode(results), indent=1))

    def write_reaped(self, job: str) -> None:
        """Notes that a job is about to be deleted, for the process that resumes the run."""
        with open(self.path / REAPED, "a") as file:
            file.write(f"{job}\n")
            file.flush()
            os.fsync(file.fileno())

    def was_reaped(self, job: str) -> bool:
        try:
            return job in (self.path / REAPED).read_text().splitlines()
        except FileNotFoundError:
            return False

    def read_part(self, cell: str, attempt: int, part: str) -> Part:
        """The part as it was submitted. Raises Unreadable."""
        return _read(self.attempt(cell, attempt, part) / "job.json", Part)

    def write_part(self, cell: str, part: Part) -> Path:
        """Returns the file, which is durable only after the journal has synced it."""
        path = self.attempt(cell, part.job.attempt, part.name) / "job.json"
        write_whole(path, msgspec.json.encode(part), sync=False)
        return path

    def read_observation(self, cell: str, attempt: int, part: str = "job") -> Observation:
        """Raises Unreadable."""
        return _read(self.attempt(cell, attempt, part) / "observation.json", Observation)

    def write_observation(self, cell: str, part: str, observation: Observation) -> Path:
        """Returns the file, which is durable only after the journal has synced it."""
        path = self.attempt(cell, observation.attempt, part) / "observation.json"
        write_whole(path, msgspec.json.encode(observation), sync=False)
        return path


def summed_plan(plan: PlanFile | dict[str, Any]) -> bytes:
    """The plan with a checksum at the end, because a damaged plan could change verdicts."""
    body = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    return b'%s,\n "crc": "%08x"\n}' % (body.removesuffix(b"\n}"), zlib.crc32(body))


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return read_json(path, kind)
    except (OSError, Unreadable) as error:
        raise Unreadable(f"unreadable record {path}: {error}") from error


def write_whole(path: Path, data: bytes, sync: bool = True, mode: int = 0o600) -> None:
    """Writes a file atomically: after a kill, or with `sync` a power loss, it is either the old one or the new one. The
    default `mode` is that of logs, because most files quote them."""
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
    """The run with that name: an id, a unique prefix, a path, or `last` for the most recently started run."""
    direct = Path(name)
    try:
        if (direct / "plan.json").is_file():
            return RunFolder(direct.resolve())
    except (OSError, ValueError):  # too long, or with a NUL
        raise UnknownRun(f"run not found: {name[:80]!r}") from None
    plans = sorted(runs.glob("*/plan.json"), key=lambda plan: plan.stat().st_mtime_ns)
    return RunFolder((runs / named_run(name, [plan.parent.name for plan in plans], str(runs))).resolve())


def named_run(name: str, known: list[str], where: str) -> str:
    """The one of `known` runs, oldest first, with that id or unique prefix, or `last`. Raises UnknownRun."""
    if name == "last" and known:
        return known[-1]
    matching = [run for run in known if run == name] or [run for run in known if run.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UnknownRun(f"ambiguous run {name!r}: matches {len(matching)} runs: {', '.join(matching[:5])}")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or known[-3:]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UnknownRun(f"run not found: {name!r} in {where}{hint}")


class ResultsError(SeatrialError):
    """The results at `path` are missing or cannot be read."""

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"{path}: {reason}. {advice}")


def read_results(folder: Path) -> RunResults:
    path, attach = folder / "results.json", f"Run `seatrial attach {folder.name}` to write it again."
    try:
        results = read_json(path, RunResults)
    except FileNotFoundError as error:
        advice = f"The run is not finished; resume it with `seatrial attach {folder.name}`."
        raise ResultsError(path, "no results yet", advice) from error
    except OSError as error:
        raise ResultsError(path, error.strerror or str(error), "Check its permissions.") from error
    except Unreadable as error:
        raise ResultsError(path, f"not a results.json: {error}", attach) from error
    if results.version > VERSION:
        reason = f"version {results.version} (this Seatrial reads up to {VERSION})"
        raise ResultsError(path, reason, "Upgrade Seatrial to read it.")
    for cell in results.cells:
        for name in (cell.hash, *(part for attempt in cell.attempts for part in attempt.parts)):
            if name in ("", ".", "..") or "/" in name or "\0" in name:  # used as folder names
                raise ResultsError(path, f"invalid cell hash or part name {name[:80]!r}", attach)
    return results


# The owner of a run: one process at a time, identified by host, boot, pid and start time.


class Owner(msgspec.Struct, frozen=True):
    """A process is (boot, pid, start time), never a pid alone."""

    host: str
    boot: str
    pid: int
    start: int
    since_s: float

    @property
    def here(self) -> bool:
        """Whether it is or was a process of this machine since its last boot; only these can be looked up."""
        return self.host == os.uname().nodename and self.boot == boot_id()

    def works_on(self, folder: Path) -> bool:
        """Whether it owns the run now. The lock tells this of owners that cannot be looked up: those on other machines,
        if the file system shares locks between machines, and those that /proc hides (`hidepid`)."""
        if self.here and not self._hidden:
            return self.alive()
        try:
            file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def alive(self) -> bool:
        """Whether this process can be seen running; False on any other host."""
        return self.here and process_start(self.pid) == self.start

    @property
    def _hidden(self) -> bool:
        """Whether there is a process with this pid that another user may not see."""
        if process_start(self.pid) is not None:
            return False
        try:
            os.kill(self.pid, 0)
        except (OSError, OverflowError) as error:
            return isinstance(error, PermissionError)
        return False


class RunOwned(SeatrialError):
    """Another process owns the run."""

    def __init__(self, folder: Path, owner: Owner | None) -> None:
        self.owner = owner
        who = "another process"
        if owner:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since_s))
            who = f"process {owner.pid} on {owner.host} (since {since})"
        super().__init__(f"{folder.name} is owned by {who}; watch it with `seatrial attach {folder.name}`")


class Ownership:
    """Holds the lock of a run folder from `take` until `close` or the end of this process."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path) -> "Ownership":
        """Raises RunOwned."""
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise RunOwned(folder, owner_of(folder)) from None
        me = Owner(os.uname().nodename, boot_id(), os.getpid(), process_start(os.getpid()) or 0, time.time())
        os.ftruncate(file, 0)
        os.pwrite(file, msgspec.json.encode(me), 0)
        return cls(file)

    def close(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def owner_of(folder: Path) -> Owner | None:
    """The current or last owner of the run; None if it was released properly."""
    try:
        return read_json(folder / "lock", Owner)
    except (OSError, Unreadable):
        return None


def is_owned(folder: Path) -> bool:
    """Whether a process owns the run now."""
    owner = owner_of(folder)
    return owner is not None and owner.works_on(folder)
