"""The one folder of a cluster: what lies where in it, and what is written down of the cluster."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError

VERSION = 1
SILENT_S = 12


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    fake_nodes: int = 0
    gpus: int = 0
    kubelet: bool = False
    port: int = 0
    """0: a free one."""
    addons: tuple[str, ...] = ()
    silent_s: int = SILENT_S
    """After which a real node that says nothing counts as lost, where there are no fake ones."""

    def words(self) -> str:
        nodes = f"{self.fake_nodes} fake nodes of {self.gpus} GPUs" if self.fake_nodes else "no fake nodes"
        port = f", on port {self.port}" if self.port else ""
        addons = "".join(f", {name}" for name in self.addons)
        return f"with {nodes} and {'a' if self.kubelet else 'no'} real node{addons}{port}"


@dataclass(frozen=True)
class Record:
    """What a cluster is made of. Written before any of it is made."""

    options: Options
    ports: dict[str, int]
    network: str = ""
    """The real node's and its pods', as in 10.201.7.0/24; empty without a real node."""
    programs: dict[str, str] = field(default_factory=dict)
    """What it was started with: a newer build does not change a cluster that is there."""


class Folder:
    """Names of what is outside the folder (a bridge, control groups) follow from its path alone: what to remove is
    known even when the folder is damaged or gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
        self.bridge = f"st{self.digest}"
        self.link = f"sv{self.digest}"
        self.control_group = f"seatrial-cluster-{self.digest}"
        self.kubeconfig = path / "kubeconfig"
        self.certificates = path / "certificates"
        self.kubeconfigs = path / "kubeconfigs"
        self.logs = path / "logs"
        self.audit_log = path / "logs" / "audit.log"
        self.settings = path / "settings"
        self.etcd = path / "etcd"
        self.node = path / "node"
        self._record = path / "cluster.json"

    def log(self, part: str) -> Path:
        return self.logs / f"{part}.log"

    def installed(self, addon: str) -> Path:
        """There when all of its manifests are in the API server, whose data outlive its processes."""
        return self.settings / f"{addon}.installed"

    def make(self) -> None:
        for folder in (self.certificates, self.kubeconfigs, self.logs, self.settings):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def read(self) -> Record | None:
        """None when there is none. ClusterError when it cannot be understood: damaged, or of another version."""
        try:
            data: dict[str, Any] = json.loads(self._record.read_bytes())
            if data["version"] != VERSION:
                raise ValueError(f"version {data['version']}")
            options = Options(**{**data["options"], "addons": tuple(data["options"].get("addons", ()))})
            return Record(options, data["ports"], data["network"], data["programs"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"{self._record} cannot be understood: {error!r}.",
                f"Take that cluster down: python -m cluster down --dir {self.path.parent} {self.name}",
            ) from error

    def write(self, record: Record) -> None:
        write_whole(self._record, json.dumps({"version": VERSION, **asdict(record)}, indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Either all of it is there or nothing new; readable to the user alone, since it may hold keys."""
    draft = path.with_name(path.name + ".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)
