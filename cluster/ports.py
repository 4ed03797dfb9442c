"""Free ports for a cluster: below those that the kernel gives to outgoing connections, and no other cluster's."""

import random
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cluster.addons import ADDONS
from cluster.errors import ClusterError, PortTaken
from cluster.folder import Folder

NAMES = ("api", "etcd", "etcd-peer", "controllers", "scheduler", "kwok", *ADDONS)
LOWEST = 20000


def choose(place: Path, address: str, api: int = 0) -> dict[str, int]:
    """`api` 0 is any. Others in this place keep theirs, also while they are not running."""
    taken = set(_written_down(place))
    if api and (api in taken or not is_free(api, address)):
        raise PortTaken(api)
    taken.add(api)
    ports = {"api": api} if api else {}
    candidates = [port for port in range(LOWEST, max(_highest(), LOWEST + 1000)) if port not in taken]
    random.shuffle(candidates)
    for name in NAMES:
        if name not in ports:
            ports[name] = _next_free(candidates, address)
    return ports


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    for host in {"127.0.0.1", address}:
        with socket.socket() as probe:
            # As servers do: connections that a killed one left do not count, only who listens.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def _next_free(candidates: list[int], address: str) -> int:
    while candidates:
        if is_free(port := candidates.pop(), address):
            return port
    raise ClusterError(f"no free port between {LOWEST} and {_highest()} on {address}.", "End what uses them.")


def _written_down(place: Path) -> Iterable[int]:
    if not place.is_dir():
        return
    for folder in place.iterdir():
        with suppress(ClusterError):  # whoever cannot be understood cannot be minded
            if (record := Folder(folder).read()) is not None:
                yield from record.ports.values()


def _highest() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
