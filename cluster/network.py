"""The network of a real node: a bridge here that carries the API server's address, and the node behind it."""

import ipaddress
import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.errors import ClusterError
from cluster.folder import Folder
from cluster.processes import environment

_CANDIDATES = ipaddress.ip_network("10.192.0.0/11")


@dataclass(frozen=True)
class Addresses:
    network: str
    host: str
    """This machine's end of the bridge: the API server listens there."""
    node: str
    first_pod: str
    last_pod: str


def addresses_in(network: str) -> Addresses:
    block = ipaddress.ip_network(network)
    return Addresses(network, str(block[1]), str(block[2]), str(block[10]), str(block[250]))


def choose() -> str:
    """One that nothing on this machine routes to."""
    used = [ipaddress.ip_network(text, strict=False) for text in _routes()]
    free = [block for block in _CANDIDATES.subnets(new_prefix=24) if not any(block.overlaps(one) for one in used)]
    if not free:
        raise ClusterError(f"this machine has routes to all of {_CANDIDATES}.", "A real node needs a free /24 of it.")
    return str(random.choice(free))


def make_bridge(folder: Folder, addresses: Addresses) -> None:
    """There may be one, of an earlier `up` that was killed."""
    if not exists(folder.bridge):
        run(folder, "ip", "link", "add", folder.bridge, "type", "bridge")
    run(folder, "ip", "address", "replace", f"{addresses.host}/24", "dev", folder.bridge)
    run(folder, "ip", "link", "set", folder.bridge, "up")


def join(folder: Folder, init: int, enter: Sequence[str], addresses: Addresses) -> None:
    """Connects the node, whose namespaces `init` holds and `enter` leads into."""
    if exists(folder.link):  # of a node that died: the kernel is about to remove it, or never will
        subprocess.run(["ip", "link", "delete", folder.link], capture_output=True, env=_tools(folder))
    run(folder, "ip", "link", "add", folder.link, "type", "veth", "peer", "name", "eth0", "netns", str(init))
    run(folder, "ip", "link", "set", folder.link, "master", folder.bridge, "up")
    script = """set -e
        ip link set lo up
        ip link add pods type bridge
        ip link set eth0 master pods up
        ip address add "$1/24" dev pods
        ip link set pods up
        ip route add default via "$2"
        echo 1 > /proc/sys/net/ipv4/ip_forward"""
    run(folder, *enter, "sh", "-c", script, "sh", addresses.node, addresses.host)


def remove(folder: Folder) -> None:
    for name in (folder.link, folder.bridge):
        if exists(name):
            done = subprocess.run(["ip", "link", "delete", name], capture_output=True, text=True, env=_tools(folder))
            if done.returncode != 0 and exists(name):
                raise ClusterError(f"the link {name} cannot be removed: {done.stderr.strip()}", "Try again as root.")


def exists(link: str) -> bool:
    try:
        with open(f"/sys/class/net/{link}/ifindex"):
            return True
    except FileNotFoundError:
        return False


def run(folder: Folder, *argv: str) -> None:
    """One command of the machine, marked as the cluster's, so that `down` ends it too."""
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=_tools(folder), cwd="/")
    if done.returncode != 0:
        words = " ".join(argv)
        raise ClusterError(
            f"`{words[:300]}` failed with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}"
        )


def _tools(folder: Folder) -> dict[str, str]:
    return environment(folder.path, "tool")


def _routes() -> list[str]:
    found = ["127.0.0.0/8"]
    for what, key in (("route", "dst"), ("address", "")):
        said = subprocess.run(
            ["ip", "-json", "-4", what, "show", *(["table", "all"] if key else [])], capture_output=True, text=True
        )
        for item in json.loads(said.stdout or "[]"):
            if key and item.get("dst", "default") != "default":
                found.append(item["dst"])
            found.extend(f"{one['local']}/{one['prefixlen']}" for one in item.get("addr_info", []) if "local" in one)
    return found
