"""Copies of run folders at an `fsspec` address (`s3://…`, `gs://…`, `file://…`): written when a run is over, read by
whoever reports on it elsewhere.

1. A copy is whole when its `results.json` is there: that comes last.
2. What fails is tried again, file by file; what still fails is named, and a later copy takes only what is not there.
3. The copy has what the folder has, links that lead inside it as what they lead to. Locks and the live file stay.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from seatrial.job import Unreadable, read_json
from seatrial.record.folder import RecordError, RunFolder, UnknownRun, write_whole
from seatrial.record.live import LIVE

_T = TypeVar("_T")

_AT_ONCE = 8  # files
WAITS_S = (1.0, 4.0, 15.0)  # between the tries at one file
COPIED = "copied.json"  # beside the original: where it was copied to
_HERE_ONLY = frozenset({"lock", LIVE, COPIED})
_LAST = "results.json"
_FOR_GOOD = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)  # trying again cannot help
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "az": "adlfs", "abfs": "adlfs", "hdfs": "pyarrow"}


class Copied(msgspec.Struct, frozen=True):
    address: str
    at_s: float  # wall time


def is_address(text: str) -> bool:
    return "://" in text


def file_system(address: str) -> tuple[Any, str]:
    """What reaches the address, and its path there. Raises RecordError: asking again cannot help."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(address)
    except ImportError as error:
        package = _PACKAGES.get(address.partition("://")[0], "")
        hint = f"; install {package} beside Seatrial to reach it" if package else ""
        raise RecordError(f"{address} cannot be reached: {error}{hint}") from None
    except Exception as error:
        raise RecordError(f"{address} cannot be used: {error_text(error)}") from error
    return system, str(root).rstrip("/")


def error_text(error: Exception) -> str:
    """Each kind of storage raises its own; all mean the same here."""
    return f"{type(error).__name__}: {str(error)[:500]}"


def copy_address(out: str, run: str) -> str:
    return f"{out.rstrip('/')}/{run}"


def begin_copy(folder: RunFolder, out: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """The plan alone, before anything runs: whoever may not write there finds out now. Raises RecordError."""
    address = copy_address(out, folder.run)
    system, root = file_system(address)
    goal = f"{root}/{folder.plan.name}"
    _tried(lambda: _put(system, folder.plan, goal), f"nothing can be written to {address}", sleep)


def copy_run(folder: RunFolder, out: str, sleep: Callable[[float], None] = time.sleep) -> str:
    """Copy the whole folder; the address of the copy. Raises RecordError."""
    address = copy_address(out, folder.run)
    system, root = file_system(address)
    files = dict(_files(folder.path))
    last = files.pop(_LAST, None)

    def copied(name: str) -> str:
        try:
            _tried(lambda: _put(system, files[name], f"{root}/{name}"), name, sleep)
        except RecordError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [problem for problem in pool.map(copied, files) if problem]
    if problems:
        raise RecordError(f"{len(problems)} of {len(files)} files were not copied to {address}: {problems[0]}")
    if last is not None:
        _tried(lambda: _put(system, last, f"{root}/{_LAST}"), f"{_LAST} was not copied to {address}", sleep)
    write_whole(folder.path / COPIED, msgspec.json.encode(Copied(address, time.time())))
    return address


def is_copied(folder: RunFolder, out: str) -> bool:
    try:
        found = read_json(folder.path / COPIED, Copied)
    except (OSError, Unreadable):
        return False
    return found.address == copy_address(out, folder.run)


def fetch_run(address: str, cache: Path, sleep: Callable[[float], None] = time.sleep) -> RunFolder:
    """The run at an address as a folder below `cache`, without the files that its jobs kept. What was fetched before is
    not fetched again. Raises RecordError, and UnknownRun where there is none, or none that is whole."""
    import hashlib

    system, root = file_system(address)
    found = _tried(lambda: _listed(system, root), f"{address} cannot be read", sleep)
    if "plan.json" not in found:
        plans = [name for name in found if name.count("/") == 1 and name.endswith("/plan.json")]
        runs = sorted(name.partition("/")[0] for name in plans)
        hint = f"; it has the runs {', '.join(runs[-5:])}: add one of them to the address" if runs else ""
        raise UnknownRun(f"there is no run at {address}{hint}")
    if _LAST not in found:
        raise UnknownRun(f"the copy at {address} has no results: its run goes on, or was not copied to its end")
    folder = cache / hashlib.sha256(address.encode()).hexdigest()[:12] / PurePosixPath(root).name
    # Not what jobs kept: `cells/<hash>/<attempt>/[part/]files/...`
    names = [name for name in found if "files" not in PurePosixPath(name).parts[3:5]]
    wanted = [name for name in names if not _is_there(folder / name, found[name])]

    def fetched(name: str) -> None:
        _tried(lambda: _get(system, f"{root}/{name}", folder / name), f"{address}/{name} cannot be read", sleep)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetched, wanted))
    return RunFolder(folder)


def _tried(work: Callable[[], _T], doing: str, sleep: Callable[[float], None]) -> _T:
    """Done, after as many tries as it takes; RecordError when none of them did it."""
    for wait_s in (*WAITS_S, None):
        try:
            return work()
        except Exception as error:
            if wait_s is None or isinstance(error, _FOR_GOOD):
                raise RecordError(f"{doing}: {error_text(error)}") from error
        sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """By name. A job may have left links: one that leads out of the folder is left out."""
    whole = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            if relative in _HERE_ONLY or name.endswith(".part"):
                continue
            target = path.resolve()
            if target.is_file() and target.is_relative_to(whole):
                yield relative, target


def _put(system: Any, source: Path, goal: str) -> None:
    system.makedirs(goal.rpartition("/")[0], exist_ok=True)
    system.put_file(str(source), goal)


def _get(system: Any, source: str, goal: Path) -> None:
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = goal.with_name(f".{goal.name}.part")
    system.get_file(source, str(part))
    part.replace(goal)


def _listed(system: Any, root: str) -> dict[str, int]:
    """The sizes of files by their names below root; names that would lead out of a folder are left out."""
    system.invalidate_cache()
    found = system.find(root, detail=True)
    names = {str(path).removeprefix(root).lstrip("/"): int(info.get("size") or 0) for path, info in found.items()}
    return {name: size for name, size in names.items() if name and ".." not in PurePosixPath(name).parts}


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
