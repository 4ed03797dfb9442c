"""One real node: the kubelet with containerd and runc, in namespaces of its own.

All of it lives below one process, which holds its mounts, network and pids: when that one ends, by `down` or because
anybody killed it, the kernel ends every process, mount and interface of the node, pods included, and no other."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Container
from pathlib import Path

from cluster import control_groups, network, node_settings, processes
from cluster.api import Api, ApiError
from cluster.credentials import NODE
from cluster.errors import ClusterError, PartFailed, Unavailable, last_lines
from cluster.folder import Folder, Record
from cluster.network import Addresses, addresses_in

CONTAINERD_WITHIN_S = 180.0
NODE_WITHIN_S = 300.0
LOOK_S = 0.05
NAMES_PORT = 53
_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
_NOT_READY = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_NETWORK_PROGRAMS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
_OWN_FOLDERS = """set -e
    mount -t proc proc /proc
    mkdir -p "$1/run" "$1/lib" "$1/log"
    mount -t tmpfs -o mode=755,nosuid tmpfs "$1/run"
    mkdir "$1/run/node" "$1/run/programs" "$1/run/lock"
    mount --bind "$1" "$1/run/node"
    mount --bind "$2" "$1/run/programs"
    mount --rbind "$1/run" /run
    mount --bind /run/node/lib /var/lib
    mount --bind /run/node/log /var/log
    mount --make-rshared /
    hostname "$3" """


def check_machine() -> None:
    """Before anything is made: what a real node needs of this machine. Unavailable says what is missing."""
    if os.geteuid() != 0:
        raise Unavailable("a real node needs root.", "Without --kubelet no root is needed.")
    path = processes.environment(Path("/"), "")["PATH"]
    packages = {package for program, package in _PROGRAMS.items() if shutil.which(program, path=path) is None}
    if _network_programs() is None:
        packages.add("containernetworking-plugins")
    if packages:
        names = " ".join(sorted(packages))
        raise Unavailable(f"a real node needs {names}, not found here.", f"Debian: apt-get install {names}")


class RealNode:
    def __init__(self, folder: Folder, record: Record, kubernetes: Path) -> None:
        self._folder = folder
        self._addresses: Addresses = addresses_in(record.network)
        self._kubernetes = kubernetes

    def open(self, pause: Path) -> None:
        """Its namespaces, folders and network; nothing runs in it yet. Keeps one that is there."""
        if processes.init_of(self._folder.path) is None:
            control_groups.make(self._folder.control_group)
            self._folder.node.mkdir(exist_ok=True, mode=0o700)
            own = ("--mount", "--pid", "--net", "--uts", "--ipc", "--propagation", "private")
            argv = ["unshare", *own, "--fork", "--kill-child=SIGKILL", "--", str(pause)]
            processes.start(self._folder.path, "node", argv, self._folder.log("node"))
            self._fit_out(self._await_init())
        node_settings.write(self._folder, self._addresses, self._snapshotter(), _network_programs() or Path())

    def _fit_out(self, init: int) -> None:
        try:
            enter = self.enter()
            programs = str(self._kubernetes.parent)
            network.run(self._folder, *enter, "sh", "-c", _OWN_FOLDERS, "sh", str(self._folder.node), programs, NODE)
            network.join(self._folder, init, enter, self._addresses)
        except BaseException:
            # Half a node would be taken for a whole one by the next `up`.
            processes.stop([one for one in processes.find(self._folder.path) if one.part == "node"], self._folder.path)
            raise

    def start_containerd(self) -> None:
        argv = ["containerd", "--config", f"{node_settings.INSIDE}/settings/containerd.toml"]
        self._start("containerd", argv)
        self._await_socket()

    def start_kubelet(self) -> None:
        self._hand_in_credentials()
        inside = node_settings.INSIDE
        argv = [
            node_settings.KUBERNETES,
            "kubelet",
            f"--config={inside}/settings/kubelet.json",
            f"--kubeconfig={inside}/kubeconfigs/kubelet",
            f"--hostname-override={NODE}",
            f"--node-ip={self._addresses.node}",
            "--node-labels=seatrial/node=real",
        ]
        self._start("kubelet", argv)

    def start_services(self, there: Container[str]) -> None:
        """Names and addresses of services, for pods: the cluster's DNS, and the proxy for services' addresses."""
        inside, where = node_settings.INSIDE, f"{self._addresses.node}:{NAMES_PORT}"
        wanted = {
            "proxy": ["kube-proxy", f"--config={inside}/settings/proxy.json"],
            "names": ["dns", f"--kubeconfig={inside}/kubeconfigs/proxy", f"--address={where}"],
        }
        for part, argv in wanted.items():
            if part not in there:
                self._start(part, [node_settings.KUBERNETES, *argv])

    def load_once(self, archive: Path) -> None:
        """Images stay when containerd is started again."""
        done = self._folder.node / "loaded" / archive.name
        if not done.exists():
            self.load(archive)
            done.parent.mkdir(exist_ok=True)
            done.touch()

    def load(self, archive: Path) -> None:
        """Imports an image archive (OCI, or as `docker save` writes it)."""
        command = ["ctr", "--namespace", "k8s.io", "images", "import", "--snapshotter", self._snapshotter(), "-"]
        with archive.open("rb") as content:
            done = subprocess.run(
                [*self.enter(), *command],
                stdin=content,
                capture_output=True,
                text=True,
                env=processes.environment(self._folder.path, "tool"),
            )
        if done.returncode != 0:
            raise ClusterError(f"{archive} could not be imported: {done.stderr.strip()[-500:]}")

    def enter(self) -> list[str]:
        """What to put before a command to run it in the node."""
        init = processes.init_of(self._folder.path)
        if init is None:
            raise ClusterError(
                f"the real node of cluster {self._folder.name} is gone.",
                f"Bring it back: python -m cluster up {self._folder.name}",
            )
        return ["nsenter", "--target", str(init), "--mount", "--pid", "--net", "--uts", "--ipc", "--wd=/", "--"]

    def await_ready(self, api: Api) -> None:
        until = time.monotonic() + NODE_WITHIN_S
        while not (_is_ready(api) and self._names_answer()):
            there = processes.parts(self._folder.path)
            for part in ("containerd", "kubelet", "proxy", "names"):
                if part not in there:
                    raise PartFailed(part, "ended", last_lines(self._folder.log(part)))
            if time.monotonic() > until:
                what = f"is not ready after {NODE_WITHIN_S:.0f} s"
                raise PartFailed("kubelet", what, last_lines(self._folder.log("kubelet")))
            time.sleep(LOOK_S)

    def _start(self, part: str, argv: list[str]) -> None:
        processes.start(self._folder.path, part, argv, self._folder.log(part), self.enter())

    def _hand_in_credentials(self) -> None:
        wanted = {"certificates": ("ca.crt", "kubelet.crt", "kubelet.key"), "kubeconfigs": ("kubelet", "proxy")}
        for kind, names in wanted.items():
            inside = self._folder.node / kind
            inside.mkdir(exist_ok=True, mode=0o700)
            for name in names:
                shutil.copy(self._folder.path / kind / name, inside / name)

    def _await_init(self) -> int:
        until = time.monotonic() + processes.APPEARS_WITHIN_S
        while (init := processes.init_of(self._folder.path)) is None:
            if time.monotonic() > until:
                raise PartFailed("node", "did not start", last_lines(self._folder.log("node")))
            time.sleep(LOOK_S)
        return init

    def _await_socket(self) -> None:
        """Its socket is reached through the node's own view of files."""
        path = f"/proc/{processes.init_of(self._folder.path)}/root{node_settings.SOCKET}"
        until = time.monotonic() + CONTAINERD_WITHIN_S
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(path)
                    return
                except OSError:
                    pass
            if "containerd" not in processes.parts(self._folder.path) or time.monotonic() > until:
                raise PartFailed("containerd", "did not become ready", last_lines(self._folder.log("containerd")))
            time.sleep(LOOK_S)

    def _names_answer(self) -> bool:
        try:
            socket.create_connection((self._addresses.node, NAMES_PORT), timeout=1.0).close()
            return True
        except OSError:
            return False

    def _snapshotter(self) -> str:
        """Layers over layers do not work where the folder itself lies on such a file system (inside a container)."""
        done = subprocess.run(
            ["stat", "--file-system", "--format=%T", self._folder.path], capture_output=True, text=True
        )
        return "native" if "overlay" in done.stdout else "overlayfs"


def close(folder: Folder) -> None:
    """What is left of a node outside its namespaces, after its processes ended."""
    control_groups.remove(folder.control_group)
    network.remove(folder)


def _is_ready(api: Api) -> bool:
    """With the account that pods of the default namespace run as: before it is there, no pod can be created."""
    try:
        node = api.request("GET", f"/api/v1/nodes/{NODE}")
        api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    except (ApiError, OSError):
        return False
    taints = {one["key"] for one in node["spec"].get("taints", [])}
    conditions = node["status"].get("conditions", [])
    return not taints & _NOT_READY and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _network_programs() -> Path | None:
    return next((place for place in _NETWORK_PROGRAMS if (place / "host-local").exists()), None)
