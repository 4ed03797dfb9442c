"""The control groups of a real node's pods: below one of the cluster's own, in every hierarchy that there is."""

import contextlib
import os
import signal
import time
from pathlib import Path

from cluster.errors import ClusterError

MOUNTED = Path("/sys/fs/cgroup")
GONE_WITHIN_S = 120.0
LOOK_S = 0.05


def make(name: str) -> None:
    for root in _hierarchies():
        group = root / name
        group.mkdir(exist_ok=True)
        for inherited in ("cpuset.mems", "cpuset.cpus"):  # empty in a new group of version 1, and then nothing can join
            if (root / inherited).exists() and (group / inherited).exists() and (root / "tasks").exists():
                (group / inherited).write_text((root / inherited).read_text())
        if (group / "cgroup.subtree_control").exists():
            for parent in (root, group):
                _hand_down(parent)


def remove(name: str) -> None:
    """With all below it. What still runs in it is ended: it can only be a process of the cluster."""
    until = time.monotonic() + GONE_WITHIN_S
    for root in _hierarchies():
        while (top := root / name).exists():
            for at, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # busy: looked at below and tried again; gone: as it should be
                    os.rmdir(at)
            if top.exists():
                _end_members(top)
                if time.monotonic() > until:
                    raise ClusterError(f"the control group {top} cannot be removed.", "Something in it does not end.")
                time.sleep(LOOK_S)


def left(name: str) -> list[Path]:
    return [root / name for root in _hierarchies() if (root / name).exists()]


def _hierarchies() -> list[Path]:
    """One of version 2, or a folder for each controller of version 1 (some are links to another)."""
    if (MOUNTED / "cgroup.controllers").exists():
        return [MOUNTED]
    if not MOUNTED.is_dir():
        return []
    return sorted(path for path in MOUNTED.iterdir() if path.is_dir() and not path.is_symlink() and path.is_mount())


def _hand_down(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one that cannot be had is one that the kubelet says something about
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _end_members(top: Path) -> None:
    for at, _, names in os.walk(top):
        if "cgroup.procs" in names:
            with contextlib.suppress(OSError):
                for pid in Path(at, "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
