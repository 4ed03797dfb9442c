"""What a cluster could leave behind on a machine."""

import os
from pathlib import Path

from cluster import control_groups, network, processes
from cluster.folder import Folder


def left_of(path: Path) -> list[str]:
    """Everything outside and inside the folder that was this cluster's; empty when nothing is left."""
    folder = Folder(path.resolve())
    found = [f"process {one.pid} ({one.part})" for one in processes.find(folder.path)]
    found += [f"link {name}" for name in (folder.bridge, folder.link) if network.exists(name)]
    found += [f"control group {group}" for group in control_groups.left(folder.control_group)]
    found += [f"mount {line.split()[1]}" for line in mounts() if f"{folder.path}" in line]
    found += [f"process {pid} holds {what}" for pid, what in _holders(folder.path)]
    if path.exists():
        found.append(f"folder {path}")
    return found


def mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text().splitlines()


def _holders(path: Path) -> list[tuple[str, str]]:
    """Processes that have a file of it open or mapped, whoever they are: pods have no mark, but logs and layers."""
    found = []
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()):
        for what in ("exe", "cwd", "root"):
            try:
                where = os.readlink(f"/proc/{pid}/{what}")
            except OSError:
                continue
            if where.startswith(f"{path}/"):
                found.append((pid, where))
    return found
