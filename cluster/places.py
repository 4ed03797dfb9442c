"""Where clusters and what they are built from lie, and the locks on both."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.errors import ClusterError

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
LOOK_S = 0.1


def clusters_place(place: Path | str | None = None) -> Path:
    """The folder that has a folder for each cluster."""
    if place is not None:
        return Path(place).expanduser().absolute()
    state = os.environ.get("SEATRIAL_STATE")
    if state:
        return Path(state).absolute() / "clusters"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "seatrial/clusters"


def cache_place() -> Path:
    cache = os.environ.get("SEATRIAL_CACHE")
    if cache:
        return Path(cache).absolute() / "cluster"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial/cluster"


def cluster_folder(name: str, place: Path | str | None = None) -> Path:
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"{name!r} cannot be the name of a cluster.",
            "Take up to 40 small letters, digits and dashes, with a letter or digit at both ends.",
        )
    # Resolved, because the cluster's processes are found by this text.
    return clusters_place(place).resolve() / name


@contextmanager
def lock_file(path: Path, waits: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Held until the block ends, and by whatever program inherits the descriptor that it gives. `waits` is called when
    another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def lock_folder(folder: Path, wait_s: float, make: bool) -> Iterator[bool]:
    """Holds the folder itself, so that no lock file is left of a cluster; gives whether there is a folder.

    What was waited for may have removed it, and another may have made it again: the one at the path is what counts."""
    until = time.monotonic() + wait_s
    while True:
        if make:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if make:
                continue
            yield False
            return
        try:
            _take(descriptor, folder, until)
            if _same(descriptor, folder):
                yield True
                return
        finally:
            os.close(descriptor)


def _take(descriptor: int, folder: Path, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise ClusterError(
                    f"cluster {folder.name} is being brought up or down by another process, which does not end.",
                    f"End that process; it holds {folder} open.",
                ) from None
            time.sleep(LOOK_S)


def _same(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False
