"""`python AGENT pack FOLDER FILES BYTES`: what a job wrote, as a tar archive, the same bytes each time.

Of the files that it keeps at most so many, and so many bytes of them: who fetches has a disk as well. What is over is
named in `unkept.json`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from typing import BinaryIO, Iterator, List, Tuple

from ..masking.files import open_folders

FILES, UNKEPT = "files", "unkept.json"
_NAMES = 20  # of those that are over


def main(arguments: List[str]) -> int:
    try:
        folder, most_files, most_bytes = arguments[0], int(arguments[1]), int(arguments[2])
    except (IndexError, ValueError):
        sys.stderr.write("usage: python AGENT pack FOLDER FILES BYTES\n")
        return 2
    _pack(folder, sys.stdout.buffer, most_files, most_bytes)
    return 0


def _pack(folder: str, into: BinaryIO, most_files: int, most_bytes: int) -> None:
    open_folders(folder)
    files = size = 0
    over: List[Tuple[str, int]] = []
    with tarfile.open(fileobj=into, mode="w|") as archive:
        for path in _below(folder):
            name = os.path.relpath(path, folder)
            archive.inodes = {}  # type: ignore[attr-defined]  # a second name of a file is a file as well
            info = archive.gettarinfo(path, "./" + name)
            if info is None:  # a socket
                continue
            if info.isreg() and name.startswith(FILES + os.sep):
                if files == most_files or size + info.size > most_bytes:
                    over.append((name, info.size))
                    continue
                files, size = files + 1, size + info.size
            _add(archive, info, path)
        if over:
            names = [os.fsencode(name).decode("utf-8", "backslashreplace") for name, _ in over[:_NAMES]]
            data = json.dumps({"count": len(over), "bytes": sum(size for _, size in over), "names": names}).encode()
            info = tarfile.TarInfo("./" + UNKEPT)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _add(archive: tarfile.TarFile, info: tarfile.TarInfo, path: str) -> None:
    if not info.isreg():
        archive.addfile(info)
        return
    with open(path, "rb") as file:
        archive.addfile(info, file)


def _below(folder: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(folders + names):
            yield os.path.join(parent, name)
