"""Folders of the local target, and the files in the folder of one job."""

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from seatrial.job import Input, Job, Outcome, Unreadable, decode, read_regular
from seatrial.targets.job_files import make_accessible
from seatrial.targets.protocol import TargetError, refused

_T = TypeVar("_T")
_MOST_BYTES = 64 << 20  # size limit of job.json, end.json and similar files
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
    """The supervisor process of a job. Pids are reused, so boot id and start time identify the process too."""

    boot_id: str
    pid: int
    start: int
    host: str
    wall_s: float
    at_s: float = 0.0  # its monotonic clock at `wall_s`
    cgroups: list[str] = []


class End(msgspec.Struct, frozen=True):
    outcome: Outcome
    wall_s: float
    code: int | None = None
    message: str = ""


class JobSubmission(msgspec.Struct, frozen=True):
    """`job.json`: the job without secret values, and when it was submitted."""

    job: Job
    host: str
    created_s: float
    cpus: list[int] = []
    ports: dict[str, int] = {}  # by name, the first one first
    gpus: list[int] = []  # indices of the GPUs assigned to the job
    engine: str = ""  # runs its container, if it has one
    container: str = ""


class JobFolder:
    """Files of a job, described in `agent/run/supervisor.py`. Reading returns None for a file that a job damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def submission(self) -> JobSubmission | None:
        return self._read("job.json", JobSubmission)

    def claim(self) -> JobSubmission | None:
        """The owner of a folder that is still being filled, which may take minutes: without a claim it would look like
        a leftover of a dead run. A job may delete `claim.json`, but the supervisor restores `job.json`."""
        return self._read("claim.json", JobSubmission) or self.submission()

    def identity(self) -> ProcessIdentity | None:
        return self._read("supervisor.json", ProcessIdentity)

    def end(self) -> End | None:
        return self._read("end.json", End)

    def other_user(self) -> str:
        """The name of the user whom the folder belongs to, if this process cannot read it; else ""."""
        try:
            user = os.stat(self.path).st_uid
        except FileNotFoundError:
            return ""
        if user == os.geteuid() or os.access(self.path, os.R_OK | os.X_OK):
            return ""
        try:
            return pwd.getpwuid(user).pw_name
        except KeyError:
            return str(user)

    def kept_nothing(self) -> bool:
        """True for most jobs; they need no thread to fetch files."""
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
        """A string, because path objects for all files of all jobs dominate the CPU time of large runs."""
        return f"{self.path}/{name}"

    def locked(self) -> AbstractContextManager[int | None]:
        """Tries to take the supervisor's lock for the block."""
        return try_lock(self._name("lock"))

    def make(self, submission: JobSubmission) -> None:
        """Creates everything that the job needs at its start, except `job.json`: `write` comes last. Replaces an
        incomplete folder."""
        self.write(submission, "claim.json")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name("job.json"))
        for name in ("work", "files", "home", "tmp", *(["out"] if submission.container else [])):
            folder = self._name(name)
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:
                shutil.rmtree(folder)
                os.mkdir(folder, 0o700)
            if submission.container:  # for any user of the image; the parent folder keeps other users out
                os.chmod(folder, 0o777)
        for given in submission.job.inputs:
            _copy_input(given, self.path / "work")

    def write(self, submission: JobSubmission, name: str = "job.json") -> None:
        partial = self._name(f"{name}.new")
        with open(partial, "wb", buffering=0) as file:
            file.write(msgspec.json.encode(submission))
        os.rename(partial, self._name(name))

    def remove_shallow(self) -> bool:
        """Fast path for a job without nested files, as most are. False if anything is left: call `remove`."""
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
        for _ in range(5):  # a process may still be writing
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


@contextmanager
def try_lock(path: Path | str) -> Iterator[int | None]:
    """Holds the lock for the block, and longer if another process inherits the descriptor. None if it is taken."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Deletes a folder even if a job removed its permissions. Raises OSError."""
    try:
        make_accessible(path)
        for folder, names, _ in os.walk(path):
            for name in names:
                make_accessible(f"{folder}/{name}")
        shutil.rmtree(path)
    except RecursionError:  # nested too deeply for Python; rm can do it
        removed = subprocess.run(["rm", "-rf", "--", str(path)], capture_output=True, text=True, check=False)
        if removed.returncode != 0:
            raise OSError(f"folders are nested too deeply: {removed.stderr.strip()[:500]}") from None


def _unmount_below(folder: Path) -> None:
    """Unmounts what a job mounted, so that deleting its folder does not delete files of the mount."""
    prefix = f"{folder}{os.sep}"
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file if prefix in line]
    for point in sorted((point for point in points if point.startswith(prefix)), reverse=True):
        done = subprocess.run(["umount", "--lazy", point], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise TargetError(f"cannot remove {folder}: cannot unmount {point}: {done.stderr.strip()}")


def job_path(state: Path, run: str, name: str) -> Path:
    for part in (run, name):
        if not _NAME.fullmatch(part):
            raise refused(f"invalid name of a run or job {part!r}; use up to 151 letters, digits and . _ -")
    return Path(f"{state}/jobs/{run}/{name}")


def _copy_input(given: Input, work: Path) -> None:
    source, goal = Path(given.source), work / given.path
    if Path(given.path).is_absolute() or ".." in Path(given.path).parts:
        raise refused(f"input path {given.path!r} is outside the work folder; use a relative path without `..`")
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
            raise refused(f"input not found: {given.source}") from None
    except shutil.Error as error:
        first = error.args[0][0]
        raise TargetError(f"cannot copy input {first[0]}: {first[2]}") from None
    except OSError as error:
        raise TargetError(f"cannot copy input {given.source} to {goal}: {error}") from error
