"""A cluster: brought up, asked, disturbed on purpose, and taken down."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster import control_groups, network, processes, real_node
from cluster.addons import chosen
from cluster.api import Api, healthy
from cluster.bring_up import BringUp, wanted_parts
from cluster.build import quiet
from cluster.errors import ClusterError
from cluster.folder import SILENT_S, Folder, Options, Record
from cluster.network import addresses_in
from cluster.places import cluster_folder, clusters_place, lock_folder
from cluster.real_node import RealNode

WAIT_S = 900.0  # that another may need to bring it up or down on a busy machine
GRACE_S = 10.0


@dataclass(frozen=True)
class Cluster:
    """One that is up. As a context manager it is taken down at the end of the block."""

    name: str
    folder: Path
    url: str
    options: Options

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator; whole in one file, so that it can be copied."""
        return self._files.kubeconfig

    @property
    def audit_log(self) -> Path:
        return self._files.audit_log

    @property
    def node_address(self) -> str:
        """Of the real node; empty without one. Pods' addresses are in the same network, and reached from here."""
        network_of = self._record.network
        return addresses_in(network_of).node if network_of else ""

    def log(self, part: str) -> Path:
        return self._files.log(part)

    def parts(self) -> dict[str, int]:
        """The parts that live, with their pids."""
        return processes.parts(self.folder)

    def missing(self) -> list[str]:
        """The parts that should live and do not."""
        there = self.parts()
        return [part for part in wanted_parts(self.options) if part not in there]

    def ready(self) -> bool:
        record = self._record
        host = addresses_in(record.network).host if record.network else "127.0.0.1"
        return not self.missing() and healthy(host, record.ports["api"], "/readyz", self._files.certificates)

    def kubectl(self, *args: str, check: bool = True, input: str | None = None) -> subprocess.CompletedProcess[str]:  # noqa: A002
        """What it printed, as text. With `check`, an exit code other than 0 is a ClusterError with what it said."""
        done = subprocess.run(
            [self._record.programs["kubernetes"], "kubectl", *args],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=input,
            capture_output=True,
            text=True,
        )
        if check and done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One request to the API server as administrator."""
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        api = Api(host, int(port), self._files.certificates)
        try:
            return api.request(method, path, body)
        finally:
            api.close()

    def kill(self, part: str) -> None:
        """At once, as a crash would. `up` of the same name brings back what is missing."""
        self._stop(part, 0.0)

    def restart(self, part: str) -> None:
        """Ended as an administrator would, and started again; returns when all is ready."""
        self._stop(part, GRACE_S)
        up(self.name, place=self.folder.parent)

    def connect_node(self, connected: bool) -> None:
        """Pulls the real node's cable, or puts it back."""
        if not self.options.kubelet:
            raise ClusterError(f"cluster {self.name} has no real node.", "Bring one up with --kubelet.")
        network.run(self._files, "ip", "link", "set", self._files.link, "up" if connected else "down")

    def in_node(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command of the machine, run in the real node's namespaces."""
        enter = RealNode(self._files, self._record, Path(self._record.programs["kubernetes"])).enter()
        return subprocess.run([*enter, *argv], capture_output=True, text=True)

    def load(self, archive: Path) -> None:
        """An image archive, for the pods of the real node (imagePullPolicy: Never)."""
        if not self.options.kubelet:
            raise ClusterError(f"cluster {self.name} has no real node to load images into.")
        RealNode(self._files, self._record, Path(self._record.programs["kubernetes"])).load(archive)

    def down(self) -> None:
        down(self.name, place=self.folder.parent)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _stop(self, part: str, grace_s: float) -> None:
        members = [one for one in processes.find(self.folder) if one.part == part and (one.leader or part == "node")]
        if not members:
            raise ClusterError(
                f"cluster {self.name} has no part {part!r} that lives.", f"It has: {', '.join(self.parts())}"
            )
        processes.stop(members, self.folder, grace_s)

    @property
    def _files(self) -> Folder:
        return Folder(self.folder)

    @property
    def _record(self) -> Record:
        record = self._files.read()
        if record is None:
            raise ClusterError(f"cluster {self.name} is down.", f"python -m cluster up {self.name}")
        return record


def up(
    name: str,
    *,
    fake_nodes: int = 0,
    gpus: int = 0,
    kubelet: bool = False,
    port: int = 0,
    addons: Iterable[str] = (),
    silent_s: int = SILENT_S,
    place: Path | str | None = None,
    say: Callable[[str], None] = quiet,
) -> Cluster:
    """Brings up a cluster, or what is missing of it, and returns when all of it is ready.

    1. One that is there and whole is returned as it is; what died is started again, on the same ports and data.
    2. When it fails, nothing of a new cluster is left; one that was there before stays as it then is.
    3. ClusterError says what is wrong; Unavailable when this machine lacks something."""
    folder = Folder(cluster_folder(name, place))
    asked = Options(fake_nodes, gpus, kubelet, port, chosen(addons), silent_s)
    work = BringUp(folder, asked, say)
    work.prepare()
    with lock_folder(folder.path, WAIT_S, make=True):
        new = folder.read() is None
        try:
            if new:
                _clear(folder)
            record = work.run()
        except BaseException:
            if new:
                _tear_down(folder)
            raise
    return Cluster(name, folder.path, work.url(record), record.options)


def down(name: str, *, place: Path | str | None = None) -> bool:
    """Ends all of it and removes the folder; whether there was something. What is gone already is no error."""
    folder = Folder(cluster_folder(name, place))
    with lock_folder(folder.path, WAIT_S, make=False) as there:
        # Also without a folder: somebody may have removed it under a cluster that runs.
        found = there or bool(processes.find(folder.path)) or network.exists(folder.bridge)
        _tear_down(folder)
    return found or bool(control_groups.left(folder.control_group))


def clusters(place: Path | str | None = None) -> list[Cluster]:
    """All that were brought up in this place and not taken down, also those of which parts died."""
    here = clusters_place(place).resolve()
    found = []
    for folder in map(Folder, sorted(here.iterdir()) if here.is_dir() else []):
        with contextlib.suppress(ClusterError):  # what cannot be understood can only be taken down
            if record := folder.read():
                url = BringUp(folder, record.options, quiet).url(record)
                found.append(Cluster(folder.name, folder.path, url, record.options))
    return found


def _tear_down(folder: Folder) -> None:
    _clear(folder)
    with contextlib.suppress(FileNotFoundError):
        folder.path.rmdir()


def _clear(folder: Folder) -> None:
    """Everything but the folder itself, which is the lock that we hold."""
    processes.stop_all(folder.path)
    real_node.close(folder)
    _unmount_below(folder.path)
    try:
        for path in folder.path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ClusterError(
            f"{error.filename} cannot be removed: {error.strerror}.", "Try again as its owner."
        ) from error


def _unmount_below(path: Path) -> None:
    """A node's mounts end with it. One that somebody else made here would lose its content with the folder."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        where = line.split()[4].encode().decode("unicode_escape")
        if where.startswith(f"{path}/"):
            raise ClusterError(f"something is mounted at {where}, inside the cluster's folder.", f"umount {where}")
