"""Fetches the files that checks need from an `fsspec` address (`s3://…`, `gs://…`, `zip://…`) into a local folder."""

import os
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.record import RecordError
from seatrial.record.remote import file_system, tried

LOGS = ("*.log", "*.log.gz", "log*.txt")
_MOST_FILES = 200_000  # limit of files to list
_MOST_BYTES = 8 << 30  # limit of bytes to fetch


def fetch_folder(
    address: str, matches: Iterable[str], into: Path, logs: bool = True, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Fetches the files below `address` that match one of the globs, and `logs`. A failure that may pass is retried.
    Raises RecordError, and FileNotFoundError if there is no file at all."""
    wanted = [_compiled(match) for match in matches]
    try:
        final = (RecordError, FileNotFoundError)
        tried(lambda: _fetch(address, wanted, into, logs), f"cannot read {address}", sleep, final)
    except FileNotFoundError:
        raise FileNotFoundError(f"folder not found: {address}") from None


def _fetch(address: str, wanted: list[re.Pattern[str]], into: Path, logs: bool) -> None:
    system, root = file_system(address)
    infos = _listed(system, root)
    if not infos and system.isfile(root):
        raise RecordError(f"{address} is a file; use its folder, and --log FILE for a log")
    if not infos:
        raise FileNotFoundError(root)
    names = [name for name in infos if (logs and _is_log(name)) or any(one.fullmatch(name) for one in wanted)]
    total = sum(int(infos[name].get("size") or 0) for name in names)
    if total > _MOST_BYTES:
        raise RecordError(f"{len(names)} files of {address} have {total:,} bytes (limit {_MOST_BYTES:,})")
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


def _listed(system: Any, root: str) -> dict[str, dict[str, Any]]:
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
