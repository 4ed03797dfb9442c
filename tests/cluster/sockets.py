"""Who listens where."""

import os
from collections.abc import Iterable
from pathlib import Path

LOOPBACK = "0100007F"  # 127.0.0.1, as the kernel writes it
LISTENS = "0A"


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses on which these processes listen, as the kernel writes them."""
    found = set()
    for pid in pids:
        sockets = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets:
                    found.add(fields[1].partition(":")[0])
    return found
