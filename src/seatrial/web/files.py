"""Files of a run as they are: what jobs wrote, which nobody trusts.

A page or a drawing that a job made is never shown as one: it would run as if it were of this site. What browsers only
show is sent as what it is, the rest to be saved; and all of it with a policy under which nothing runs anyway.
"""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from aiohttp import web

from seatrial.web.confine import NotThere, attempt_number, cell_hash, opened_below, run_folder

CHUNK_BYTES = 1 << 18
_SANDBOX = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
_TYPES = {
    ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".json": "text/plain; charset=utf-8",
    ".jsonl": "text/plain; charset=utf-8",
    ".csv": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_HIDDEN = frozenset({"job.json"})  # what was submitted, with the variables of its environment


@dataclass(frozen=True)
class OpenFile:
    descriptor: int
    name: str
    bytes: int


def open_file(runs: Path, run: str, path: str) -> OpenFile:
    """A file of an attempt: cells/HASH/NUMBER/… Raises NotThere. Whoever gets it closes it."""
    parts = path.split("/")
    if len(parts) < 4 or parts[0] != "cells":
        raise NotThere("Only logs and kept files of attempts are shown: cells/HASH/NUMBER/…")
    cell_hash(parts[1])
    attempt_number(parts[2])
    if parts[-1] in _HIDDEN and "files" not in parts:
        raise NotThere("What was submitted is not shown.")
    with opened_below(run_folder(runs, run).path, path) as found:
        return OpenFile(os.dup(found), parts[-1], os.fstat(found).st_size)


async def send_file(request: web.Request, found: OpenFile, headers: dict[str, str]) -> web.StreamResponse:
    """As many bytes as it has now: it may grow meanwhile."""
    with open(found.descriptor, "rb") as file:
        headers |= {"Content-Security-Policy": _SANDBOX, "Content-Length": str(found.bytes)}
        known = _TYPES.get(PurePosixPath(found.name).suffix.lower())
        headers["Content-Type"] = known or "application/octet-stream"
        if known is None:
            headers["Content-Disposition"] = "attachment"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        left = found.bytes
        while left > 0 and (data := file.read(min(CHUNK_BYTES, left))):
            await response.write(data)
            left -= len(data)
        return response
