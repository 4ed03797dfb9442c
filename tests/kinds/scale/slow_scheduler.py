"""A second kube-scheduler on a cluster that binds a known number of pods per second."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.cluster import Cluster

NAME = "slow"


@contextlib.contextmanager
def slow_scheduler(cluster: Cluster, rate: float) -> Iterator[None]:
    """Its client allows so many requests per second, without a burst, and a binding is one request."""
    command = Path(f"/proc/{cluster.parts()['scheduler']}/cmdline").read_text().split("\0")[:-1]
    (given,) = [word.removeprefix("--config=") for word in command if word.startswith("--config=")]
    config = json.loads(Path(given).read_text())
    config["clientConnection"] |= {"qps": rate, "burst": 1}
    config["profiles"] = [{"schedulerName": NAME}]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scheduler.json"
        path.write_text(json.dumps(config))
        changed = {"--config": path, "--secure-port": 0}
        argv = [f"{name}={changed[name]}" if (name := word.partition("=")[0]) in changed else word for word in command]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, (Path(folder) / "log").read_text()
        finally:
            process.kill()
            process.wait()


def slow_pod() -> dict[str, Any]:
    """A template of pods for this scheduler."""
    spec = {"schedulerName": NAME, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}
