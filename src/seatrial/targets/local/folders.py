"""Where the local target keeps things, and the folder of one job: what is in it and what that says."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from seatrial.job import Input, Job, Outcome, Unreadable, decode, read_regular
from seatrial.targets.job_files import make_accessible
from seatrial.targets.protocol import TargetError, refused

_T = TypeVar("_T")
_MOST_BYTES = 64 << 20  # of a file that says what a job is or how it ended
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


def state_folder() -> Path:
    """$SEATRIAL_STATE, else the user's state folder."""
    return _folder("STATE", ".local/state")


def cache_folder() -> Path:
    """$SEATRIAL_CACHE, else the user's cache folder."""
    return _folder("CACHE", ".cache")


def _folder(what: str, usual: str) -> Path:
    if own := os.environ.get(f"SEATRIAL_{what}"):
        return Path(own).absolute()
    return Path(os.environ.get(f"XDG_{what}_HOME") or Path.home() / usual) / "seatrial"


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Who supervises a job. A number alone is not a process: boot and start time are part of its name."""

    boot_id: str
    pid: int
    start: int
    host: str
    wall_s: float
    at_s: float = 0.0  # its monotonic clock, at the same instant
    cgroups: list[str] = []


class End(msgspec.Struct, frozen=True):
    outcome: Outcome
    wall_s: float
    code: int | None = None
    message: str = ""


class JobSubmission(msgspec.Struct, frozen=True):
    """`job.json`: the job, without any value of a secret, and when it was submitted."""

    job: Job
    host: str
    created_s: float
    cpus: list[int] = []
    ports: dict[str, int] = {}  # by name, the first one first
    gpus: list[int] = []  # those that it was given, of a job that asks for some
    engine: str = ""  # what runs its container, when it has one
    container: str = ""


class JobClaim(msgspec.Struct, frozen=True):
    """`claim.json`: whose the folder is, before it is known what else will be in it. Making it may take minutes, and
    nobody may take it for what a dead run left."""

    host: str
    created_s: float
    labels: dict[str, str]


class JobFolder:
    """`agent/start/supervisor.py` says what each file is. Reading never raises for what a job did to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def submission(self) -> JobSubmission | None:
        return self._read("job.json", JobSubmission)

    def claim(self) -> JobClaim | None:
        """Also where a job deleted it: its supervisor puts `job.json` back."""
        claim = self._read("claim.json", JobClaim)
        if claim is None and (submission := self.submission()) is not None:
            return JobClaim(submission.host, submission.created_s, submission.job.labels)
        return claim

    def identity(self) -> ProcessIdentity | None:
        return self._read("supervisor.json", ProcessIdentity)

    def end(self) -> End | None:
        return self._read("end.json", End)

    def kept_nothing(self) -> bool:
        """Of most jobs, which are not worth a thread then."""
        files = self._name("files")
        try:
            with os.scandir(files) as entries:
                return not os.path.islink(files) and next(entries, None) is None
        except OSError:
            return False

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        try:
            return decode(read_regular(self._name(name), _MOST_BYTES), kind)
        except (OSError, Unreadable):
            return None

    def _name(self, name: str) -> str:
        """As text: a path object for each of a job's files, many times over, is what costs most in a run of many."""
        return f"{self.path}/{name}"

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether the lock that a supervisor holds could be had. Held until the end of the block."""
        descriptor = os.open(self._name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(descriptor)

    def make(self, submission: JobSubmission) -> None:
        """Everything that the job finds when it starts, but for `job.json`: `write` comes last. Anything half made
        before is made anew."""
        claim = JobClaim(submission.host, submission.created_s, submission.job.labels)
        self._write("claim.json", msgspec.json.encode(claim))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name("job.json"))
        for name in ("work", "files", "home", "tmp", *(["out"] if submission.container else [])):
            folder = self._name(name)
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:
                shutil.rmtree(folder)
                os.mkdir(folder, 0o700)
            if submission.container:  # whoever the image's user is; others do not get past the folder above
                os.chmod(folder, 0o777)
        for given in submission.job.inputs:
            _copy_input(given, self.path / "work")

    def write(self, submission: JobSubmission) -> None:
        self._write("job.json", msgspec.json.encode(submission))

    def _write(self, name: str, data: bytes) -> None:
        partial = self._name(f"{name}.new")
        with open(partial, "wb", buffering=0) as file:
            file.write(data)
        os.rename(partial, self._name(name))

    def remove_shallow(self) -> bool:
        """Remove it if its folders are empty, as those of most jobs are, which takes no time. False: there is more, or
        it is not as plain: `remove`."""
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    os.rmdir(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
            os.rmdir(self.path)
        except OSError:
            return False
        self._remove_parent()
        return True

    def remove(self) -> None:
        problem: OSError | None = None
        for _ in range(5):  # something may still have been writing
            if self.path.exists():
                _unmount_below(self.path)
                try:
                    remove_tree(self.path)
                except OSError as error:
                    problem = error
        if self.path.exists():
            raise TargetError(f"cannot remove {self.path}: {problem}")
        self._remove_parent()

    def _remove_parent(self) -> None:
        with contextlib.suppress(OSError):  # other jobs of the run are still there
            os.rmdir(self.path.parent)


def remove_tree(path: Path) -> None:
    """Also where a job took the rights to its folders away from itself. Raises OSError."""
    try:
        make_accessible(path)
        for folder, names, _ in os.walk(path):
            for name in names:
                make_accessible(f"{folder}/{name}")
        shutil.rmtree(path)
    except RecursionError:  # folders in folders in folders: rm does not mind
        removed = subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, text=True, check=False)
        if removed.returncode != 0:
            raise OSError(f"its folders are too deep, and {removed.stderr.strip()[:500]}") from None


def _unmount_below(folder: Path) -> None:
    """What a job mounted is not ours to delete: removing its folder must not reach through."""
    prefix = f"{folder}{os.sep}"
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file if prefix in line]
    for point in sorted((point for point in points if point.startswith(prefix)), reverse=True):
        done = subprocess.run(["umount", "--lazy", point], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TargetError(f"cannot remove {folder}: {point} is mounted there, and {done.stderr.strip()}")


def job_path(state: Path, run: str, name: str) -> Path:
    for part in (run, name):
        if not _NAME.fullmatch(part):
            raise refused(f"{part!r} cannot be the name of a folder of a run or job")
    return Path(f"{state}/jobs/{run}/{name}")


def _copy_input(given: Input, work: Path) -> None:
    source, goal = Path(given.source), work / given.path
    if Path(given.path).is_absolute() or ".." in Path(given.path).parts:
        raise refused(f"input {given.path!r} would lie outside the work folder")
    try:
        if source.exists() and not source.is_dir() and not source.is_file():
            raise refused(f"input {given.source} is neither a file nor a folder")
        if source.is_dir():
            shutil.copytree(source, goal, symlinks=True, dirs_exist_ok=True)
        else:
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, goal)
    except FileNotFoundError:
        if given.required:
            raise refused(f"input {given.source} is not there") from None
    except shutil.Error as error:
        first = error.args[0][0]
        raise TargetError(f"input {first[0]} cannot be copied: {first[2]}") from None
    except OSError as error:
        raise TargetError(f"input {given.source} cannot be copied to {goal}: {error}") from error
