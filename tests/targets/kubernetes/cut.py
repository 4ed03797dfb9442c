"""A way to the API server that breaks on command, as a kubeconfig."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import yaml

from cluster.cluster import Cluster
from kubernetes.cutter import Cutter, cutting
from seatrial.kubernetes import load_access


@contextlib.asynccontextmanager
async def cut_line(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Path, Cutter]]:
    """A kubeconfig that leads through the cutter."""
    async with cutting(load_access(cluster.kubeconfig)) as cutter:
        config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        way = {"server": cutter.access.server, "tls-server-name": cutter.access.tls_server_name}
        config["clusters"][0]["cluster"] |= way
        path = folder / "cut-kubeconfig"
        path.write_text(yaml.safe_dump(config))
        yield path, cutter
