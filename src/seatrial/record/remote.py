"""Copies of run folders at an `fsspec` URL (`s3://…`, `gs://…`, `file://…`): written when a run is finished, read for
reports on other machines. Also fetches the files that checks need from such a URL.

1. A copy is complete if it has `results.json`, which is copied last.
2. Failed files are retried one by one; an error names the first file that could not be copied.
3. Links within the folder are copied as files. The lock and the live file are not copied.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from seatrial.extras import install_command
from seatrial.job import Unreadable, read_json
from seatrial.record.folder import RecordError, RunFolder, UnknownRun, write_whole
from seatrial.record.live import LIVE

_T = TypeVar("_T")

_AT_ONCE = 8  # files
WAITS_S = (1.0, 4.0, 15.0)  # between attempts at one file
COPIED = "copied.json"  # in the original folder: the URL of the copy
LOGS = ("*.log", "*.log.gz", "log*.txt")
_MOST_FILES = 200_000  # limit of files to list
_MOST_FETCHED_BYTES = 8 << 30
_HERE_ONLY = frozenset({"lock", LIVE, COPIED})
_LAST = "results.json"
FOR_GOOD = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)  # not retried
# Extras of Seatrial, or packages, for protocols that fsspec does not bring itself.
_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3", "az": "adlfs", "abfs": "adlfs", "hdfs": "pyarrow"}


class Copied(msgspec.Struct, frozen=True):
    address: str
    at_s: float  # wall time


def is_address(text: str) -> bool:
    return "://" in text


def check_backend(address: str) -> None:
    """Raises RecordError if fsspec, or a package that it needs, cannot handle the URL. Contacts nothing."""
    import fsspec

    for protocol in (part.partition("://")[0] for part in address.split("::") if "://" in part):
        try:
            fsspec.get_filesystem_class(protocol)
        except (ImportError, ValueError) as error:
            extra = _EXTRAS.get(protocol)
            hint = f"; run `{install_command(extra)}`" if extra else ""
            raise RecordError(f"cannot access {address}: {str(error).rstrip('.')}{hint}") from None


def file_system(address: str) -> tuple[Any, str]:
    """The file system and the path at a URL. Raises RecordError, which is permanent."""
    import fsspec

    check_backend(address)
    try:
        system, root = fsspec.core.url_to_fs(address)
    except Exception as error:
        raise RecordError(f"cannot access {address}: {error_text(error)}") from error
    return system, str(root).rstrip("/")


def error_text(error: Exception) -> str:
    """The text of a storage error; each storage raises its own types."""
    return f"{type(error).__name__}: {str(error)[:500]}"


def copy_address(out: str, run: str) -> str:
    return f"{out.rstrip('/')}/{run}"


def begin_copy(folder: RunFolder, out: str) -> None:
    """Copies only the plan before anything runs, so that missing permissions are found early. Raises RecordError."""
    address = copy_address(out, folder.run)
    system, root = file_system(address)
    goal = f"{root}/{folder.plan.name}"
    _tried(lambda: _put(system, folder.plan, goal), f"cannot write to {address}")


def copy_run(folder: RunFolder, out: str) -> str:
    """Copies the whole folder. Returns the URL of the copy. Raises RecordError."""
    address = copy_address(out, folder.run)
    system, root = file_system(address)
    files = dict(_files(folder.path))
    last = files.pop(_LAST, None)

    def copied(name: str) -> str:
        try:
            _tried(lambda: _put(system, files[name], f"{root}/{name}"), name)
        except RecordError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [problem for problem in pool.map(copied, files) if problem]
    if problems:
        raise RecordError(f"{len(problems)} of {len(files)} files were not copied to {address}: {problems[0]}")
    if last is not None:
        _tried(lambda: _put(system, last, f"{root}/{_LAST}"), f"{_LAST} was not copied to {address}")
    write_whole(folder.path / COPIED, msgspec.json.encode(Copied(address, time.time())))
    return address


def is_copied(folder: RunFolder, out: str) -> bool:
    try:
        found = read_json(folder.path / COPIED, Copied)
    except (OSError, Unreadable):
        return False
    return found.address == copy_address(out, folder.run)


def fetch_run(address: str, cache: Path) -> RunFolder:
    """Downloads the run at a URL to a folder below `cache`, without the files that its jobs kept. Files of an earlier
    download are reused. Raises RecordError, and UnknownRun if there is no run or it is incomplete."""
    import hashlib

    system, root = file_system(address)
    found = _tried(lambda: _listed(system, root), f"cannot read {address}")
    if "plan.json" not in found:
        plans = [name for name in found if name.count("/") == 1 and name.endswith("/plan.json")]
        runs = sorted(name.partition("/")[0] for name in plans)
        hint = f"; add one of its runs to the URL: {', '.join(runs[-5:])}" if runs else ""
        raise UnknownRun(f"run not found: {address}{hint}")
    if _LAST not in found:
        raise UnknownRun(f"the copy at {address} has no results: the run is in progress or the copy is incomplete")
    folder = cache / hashlib.sha256(address.encode()).hexdigest()[:12] / PurePosixPath(root).name
    # Without files that jobs kept: `cells/<hash>/<attempt>/[part/]files/...`
    names = [name for name in found if "files" not in PurePosixPath(name).parts[3:5]]
    wanted = [name for name in names if not _is_there(folder / name, found[name])]

    def fetched(name: str) -> None:
        _tried(lambda: _get(system, f"{root}/{name}", folder / name), f"cannot read {address}/{name}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetched, wanted))
    return RunFolder(folder)


def _tried(work: Callable[[], _T], doing: str, final: tuple[type[Exception], ...] = (RecordError,)) -> _T:
    """Calls `work`, with retries. Raises RecordError if all attempts fail, and `final` errors as they are."""
    for wait_s in (*WAITS_S, None):
        try:
            return work()
        except final:
            raise
        except Exception as error:
            if wait_s is None or isinstance(error, FOR_GOOD):
                raise RecordError(f"{doing}: {error_text(error)}") from error
        time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files by name. Links that lead out of the folder, which jobs may create, are left out."""
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
    """File sizes by name relative to `root`, without names that contain `..`."""
    system.invalidate_cache()
    found = system.find(root, detail=True)
    names = {str(path).removeprefix(root).lstrip("/"): int(info.get("size") or 0) for path, info in found.items()}
    return {name: size for name, size in names.items() if name and ".." not in PurePosixPath(name).parts}


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


# Files that checks need.


def fetch_folder(address: str, matches: Iterable[str], into: Path, logs: bool = True) -> None:
    """Fetches the files below `address` that match one of the globs, and `logs`. A failure that may pass is retried.
    Raises RecordError, and FileNotFoundError if there is no file at all."""
    wanted = [_compiled(match) for match in matches]
    try:
        final = (RecordError, FileNotFoundError)
        _tried(lambda: _fetch(address, wanted, into, logs), f"cannot read {address}", final)
    except FileNotFoundError:
        raise FileNotFoundError(f"folder not found: {address}") from None


def _fetch(address: str, wanted: list[re.Pattern[str]], into: Path, logs: bool) -> None:
    system, root = file_system(address)
    infos = _infos(system, root)
    if not infos and system.isfile(root):
        raise RecordError(f"{address} is a file; use its folder, and --log FILE for a log")
    if not infos:
        raise FileNotFoundError(root)
    names = [name for name in infos if (logs and _is_log(name)) or any(one.fullmatch(name) for one in wanted)]
    total = sum(int(infos[name].get("size") or 0) for name in names)
    if total > _MOST_FETCHED_BYTES:
        raise RecordError(f"{len(names)} files of {address} have {total:,} bytes (limit {_MOST_FETCHED_BYTES:,})")
    for name in names:
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(f"{root.rstrip('/')}/{name}" if root.strip("/") else name, str(target))
        if (modified_s := _modified(infos[name])) is not None:
            os.utime(target, (modified_s, modified_s))


def _modified(info: dict[str, Any]) -> float | None:
    """Modification time of a file; each storage has its own name for it."""
    found = next((info[key] for key in ("mtime", "LastModified", "updated", "last_modified") if info.get(key)), None)
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found)
        except ValueError:
            return None
    if isinstance(found, datetime):
        return found.timestamp()
    return float(found) if isinstance(found, int | float) else None


def _infos(system: Any, root: str) -> dict[str, dict[str, Any]]:
    """File infos below root, by relative name; skips names that lead out of the folder."""
    start = root.rstrip("/") + "/" if root.strip("/") else root
    infos: dict[str, dict[str, Any]] = {}
    # Without on_error="raise", an unreadable root would look empty.
    for folder, _, files in system.walk(root, detail=True, on_error="raise"):
        for name, info in files.items():
            if not name:  # the root itself if it is a file, or a folder marker of some stores
                continue
            path = f"{str(folder).rstrip('/')}/{name}" if str(folder).strip("/") else name
            relative = path.removeprefix(start).lstrip("/")
            if ".." not in PurePosixPath(relative).parts:
                infos[relative] = info
        if len(infos) > _MOST_FILES:
            raise RecordError(f"too many files below {root} (limit {_MOST_FILES:,}); use a subfolder")
    return infos


def _is_log(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) <= 3 and any(path.match(pattern) for pattern in LOGS)


def _compiled(match: str) -> re.Pattern[str]:
    """A glob with the agent's rules: `**` matches any number of folders."""
    wild = {"**/": r"(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", match.removeprefix("./"))
    # Every second part of the split is a match of the pattern.
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [wild.get(part) or part.replace("[!", "[^", 1) for part in parts[1::2]]
    return re.compile("".join(parts))
