"""A world with a scale trial on a cluster, and what such a trial wrote."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster.cluster import Cluster
from seatrial.job import Finding
from targets.kubernetes.on_cluster import namespace_of, objects
from world import World

WITHIN_S = 600.0
SUITE = """
name: scale
targets: {{cluster: {{kind: kubernetes, kubeconfig: {kubeconfig}, namespace: {namespace}}}}}
trials:
"""
TRIAL = """
  {name}:
    kind: scale
    target: cluster
    retries: 0
"""


class ScaleWorld(World):
    cluster: Cluster
    namespace: str

    def trial(self, **fields: Any) -> None:
        self.trials(burst=fields)

    def trials(self, **trials: dict[str, Any]) -> None:
        head = SUITE.format(kubeconfig=self.cluster.kubeconfig, namespace=self.namespace)
        self.suite(head + "".join(self._written(name, fields) for name, fields in trials.items()))

    def _written(self, name: str, fields: dict[str, Any]) -> str:
        alone = {} if "workloads" in fields else {"workload": {"kind": "job", "gpus": 1}}
        given = {
            **alone,
            "count": 60,
            "arrivals": {"rate": 40},
            "settle": "10m",
            "bounds": {"scheduled.p99": "10m"},
            **fields,
        }
        written = "".join(f"    {field}: {json.dumps(value)}\n" for field, value in given.items())
        return TRIAL.format(name=name) + written

    def findings(self) -> dict[str, Finding]:
        return {finding.check: finding for finding in self.results().cells[0].findings}

    def attempt(self) -> Path:
        return next(self.run().path.glob("cells/*/1/driver"))

    def submissions(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.attempt() / "files/submitted.jsonl").read_text().splitlines()]

    def so_far(self) -> int:
        return self.written_so_far().count("\n")

    def written_so_far(self) -> str:
        """What the driver has noted of its submissions."""
        found = list(self.state.glob("jobs/*/*/files/submitted.jsonl"))
        return found[0].read_text() if found else ""

    def assert_nothing_left(self) -> None:
        assert self.left() == []
        wait_for(lambda: not objects(self.cluster, self.namespace))


@contextlib.contextmanager
def scale_world(world: World, cluster: Cluster) -> Iterator[ScaleWorld]:
    """In a namespace of its own."""
    with namespace_of(cluster) as namespace:
        made = ScaleWorld(world.folder, world.env)
        made.cluster, made.namespace = cluster, namespace
        yield made


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


def driver_process(world: World) -> int:
    """The process of the driver of a scale trial."""
    (found,) = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and b"seatrial.kinds.driver\0scale" in _read(entry / "cmdline")
        and str(world.folder).encode() in _read(entry / "environ")
    ]
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
