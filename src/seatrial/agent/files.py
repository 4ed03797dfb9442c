"""Secrets do not leave a job in the files that it keeps."""

from __future__ import annotations

import contextlib
import os
import stat

from .mask import Mask

BLOCK_BYTES = 1 << 20


def mask_files(folder: str, mask: Mask) -> str:
    """Mask every file below `folder` that holds a secret. What cannot be masked is deleted, and told in words."""
    if not mask.values:
        return ""
    problems = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                _mask_file(path, mask)
            except OSError as error:
                problems.append(
                    "%s was not kept, for a secret may be in it: %s" % (os.path.relpath(path, folder), error)
                )
                _delete(path)
    return "; ".join(problems)


def _mask_file(path: str, mask: Mask) -> None:
    seen = os.lstat(path)
    if not stat.S_ISREG(seen.st_mode):
        return
    new = path + ".masked"
    try:
        with open(path, "rb") as source, open(new, "wb") as sink:
            stream, changed = mask.stream(), False
            for block in iter(lambda: source.read(BLOCK_BYTES), b""):
                sink.write(stream.feed(block))
            sink.write(stream.flush())
            changed = stream.found
        if changed:
            os.chmod(new, stat.S_IMODE(seen.st_mode))
            os.rename(new, path)
    finally:
        _delete(new)


def _delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
