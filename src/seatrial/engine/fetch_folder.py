"""Brings from an `fsspec` address (`s3://…`, `gs://…`, `zip://…`) what a check needs to a folder here, and no more."""

import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.record.remote import RemoteError, file_system

LOGS = ("*.log", "*.log.gz", "log*.txt")
_MOST_FILES = 200_000  # that are looked at
_MOST_BYTES = 8 << 30  # that are fetched


class CannotCheck(Exception):
    """What was given cannot be judged; its text says what to do about it."""


class NothingThere(CannotCheck):
    """An address under which there is no file."""


def fetch_folder(address: str, matches: Iterable[str], into: Path, logs: bool = True) -> int:
    """Fetch the files below `address` that one of the globs means, and `logs`; how many. Raises CannotCheck."""
    wanted = [_compiled(match) for match in matches]
    try:
        system, root = file_system(address)
        infos = _listed(system, root)
        if not infos and system.isfile(root):
            raise CannotCheck(f"{address} is a file; name the folder that it is in, and a log with --log FILE")
        if not infos:
            raise FileNotFoundError(root)
        names = [name for name in infos if (logs and _is_log(name)) or any(each.fullmatch(name) for each in wanted)]
        total = sum(int(infos[name].get("size") or 0) for name in names)
        if total > _MOST_BYTES:
            raise CannotCheck(f"{len(names)} files of {address} have {total:,} bytes, more than {_MOST_BYTES:,}")
        for name in names:
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{root.rstrip('/')}/{name}" if root.strip("/") else name, str(target))
            if (modified_s := _modified(infos[name])) is not None:
                os.utime(target, (modified_s, modified_s))
    except CannotCheck:
        raise
    except RemoteError as error:
        raise CannotCheck(str(error)) from error
    except FileNotFoundError:
        raise NothingThere(f"there is nothing at {address}") from None
    except Exception as error:  # each kind of storage raises its own; all mean the same here
        raise CannotCheck(f"{address} cannot be read: {type(error).__name__}: {str(error)[:500]}") from error
    return len(names)


def _modified(info: dict[str, Any]) -> float | None:
    """When a file was written; each kind of storage has its own name for that."""
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
    """What is known of each file below root, by name; names that would lead out of a folder are left out."""
    start = root.rstrip("/") + "/" if root.strip("/") else root
    infos: dict[str, dict[str, Any]] = {}
    # That the place itself cannot be read is an error: without "raise", it would look as if it were empty.
    for folder, _, files in system.walk(root, detail=True, on_error="raise"):
        for name, info in files.items():
            if not name:  # the root itself, when it is a file, or what some stores keep in place of a folder
                continue
            path = f"{str(folder).rstrip('/')}/{name}" if str(folder).strip("/") else name
            relative = path.removeprefix(start).lstrip("/")
            if ".." not in PurePosixPath(relative).parts:
                infos[relative] = info
        if len(infos) > _MOST_FILES:
            raise CannotCheck(f"there are more than {_MOST_FILES:,} files below {root}; name a folder further down")
    return infos


def _is_log(name: str) -> bool:
    path = PurePosixPath(name)
    return len(path.parts) <= 3 and any(path.match(pattern) for pattern in LOGS)


def _compiled(match: str) -> re.Pattern[str]:
    """A glob as the agent understands it: `**` is any number of folders."""
    parts = []
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", match.removeprefix("./")):
        if part == "**/":
            parts.append(r"(?:.*/)?")
        elif part == "**":
            parts.append(".*")
        elif part == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        elif part.startswith("[") and part.endswith("]"):
            parts.append(part.replace("[!", "[^", 1))
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts))
