"""Seatrial as a user starts it, with a cluster to run on: pods write what they do into a folder of this machine."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.cluster import Cluster
from targets.kubernetes.on_cluster import objects
from world import SEATRIAL, World

WITHIN_S = 600.0  # far beyond what anything takes here: who waits that long has waited for nothing
LOOK_S = 0.1
SHARED = "/shared"  # the folder, as pods see it

# `seatrial` with a clock that is so many seconds ahead.
AHEAD = """
import sys, time
ahead_s, right = float(sys.argv.pop(1)), time.time
time.time = lambda: right() + ahead_s
from seatrial.__main__ import main
main()
"""

HEAD = """
name: NAME
targets: {cluster: TARGET}
machines: {one: {target: cluster, cpu: 0.25, memory: 256Mi}}
runtimes: {python: {image: "localhost/python:3"}}
trials:
"""


class ClusterWorld(World):
    cluster: Cluster
    namespace: str

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def on_target(self) -> str:
        """As `--target` takes it."""
        return f"kubernetes:kubeconfig={self.kubeconfig},namespace={self.namespace}"

    def trials(self, text: str, name: str = "suite", **target: Any) -> None:
        """A suite of these trials. All of them are on the cluster and may write to `SHARED`."""
        volume = {"host": str(self.shared), "at": SHARED, "read_only": False}
        options = {
            "kind": "kubernetes", "pull": "Never", "parallel": 8, "kubeconfig": str(self.kubeconfig),
            "namespace": self.namespace, "volumes": [volume], **target,
        }  # fmt: skip
        head = HEAD.replace("NAME", name).replace("TARGET", json.dumps(options))
        self.suite(head + text, f"{name}.yaml")

    # ---- what pods have done

    def lines(self, name: str = "ran") -> list[str]:
        path = self.shared / name
        return path.read_text().splitlines() if path.exists() else []

    def ran(self) -> Counter[str]:
        return Counter(self.lines())

    def go(self) -> None:
        """What the trials of `waiting` wait for."""
        (self.shared / "go").touch()

    # ---- what is on the cluster

    def objects(self) -> list[str]:
        return objects(self.cluster, self.namespace)

    def kubectl(self, *args: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args).stdout

    def gone(self) -> None:
        """The cluster's own garbage collection needs a moment for what was owned."""
        until(lambda: not self.objects(), lambda: f"still there: {self.objects()}")

    def annotate(self, **annotations: str) -> None:
        """Of the object of the only run."""
        pairs = [f"seatrial/{key}={value}" for key, value in annotations.items()]
        self.kubectl("annotate", "--overwrite", "jobs", "-l", "seatrial/part=run", *pairs)

    def forgotten(self) -> None:
        """As long after the last heartbeat as it takes for it not to count any more."""
        self.annotate(renewed=f"{time.time() - 3600:.0f}")

    # ---- runs

    @contextlib.contextmanager
    def begun(self, cells: int, *args: str) -> "Iterator[subprocess.Popen[str]]":
        """A run of which so many cells have begun. Its process is killed at the end of the block, if it still lives."""
        process = self.start("run", "suite.yaml", *args)
        try:
            until(lambda: len(self.lines()) >= cells or process.poll() is not None, lambda: f"begun: {self.lines()}")
            assert process.poll() is None, process.communicate()[0]
            yield process
        finally:
            process.kill()
            if process.stdout is not None and not process.stdout.closed:  # nobody has read it to its end
                process.communicate()

    # ---- other people

    def become(self, name: str, role: str = "--clusterrole=admin") -> None:
        """From now on Seatrial is a service account that may do in its namespace what it likes, or what a role says."""
        self.kubectl("create", "serviceaccount", name)
        self.grant(name, role)
        self.log_in(name)

    def grant(self, name: str, role: str) -> None:
        account = f"--serviceaccount={self.namespace}:{name}"
        self.kubectl("create", "rolebinding", f"{name}{role.partition('=')[0]}", role, account)

    def log_in(self, name: str) -> None:
        token = self.kubectl("create", "token", name).strip()
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        self.kubeconfig.write_text(yaml.safe_dump(config))

    # ---- other machines

    def elsewhere(
        self, *args: str, host: str = "elsewhere", cwd: Path | None = None, ahead_s: float = 0, container: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        """Seatrial on a machine of another name, with state of its own; with a clock that is ahead; in a container,
        where processes have other numbers."""
        spaces = ["--pid", "--fork", "--mount-proc"] if container else []
        program = [sys.executable, "-c", AHEAD, str(ahead_s)] if ahead_s else [SEATRIAL]
        command = ["unshare", "--uts", *spaces, "/bin/sh", "-c", 'hostname "$0" && exec "$@"', host, *program, *args]
        env = {**self.env, "SEATRIAL_STATE": str(self.folder / f"state-{host}")}
        return subprocess.run(
            command, cwd=cwd or self.folder, env=env, capture_output=True, text=True, timeout=WITHIN_S
        )

    def carried(self) -> Path:
        """The folder of the last run, taken to another machine."""
        copy = self.folder / "carried" / self.run().run
        shutil.copytree(self.run().path, copy)
        return copy


def cluster_world(world: World, cluster: Cluster, namespace: str) -> ClusterWorld:
    made = ClusterWorld(world.folder, world.env)
    made.cluster, made.namespace = cluster, namespace
    made.shared.mkdir()
    made.shared.chmod(0o777)
    shutil.copyfile(cluster.kubeconfig, made.kubeconfig)
    return made


def until(holds: Callable[[], object], what: Callable[[], str] | str = "") -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s, what() if callable(what) else what
        time.sleep(LOOK_S)


def waiting(ns: str) -> str:
    """A trial whose cells tell that they have begun, and end when they may."""
    return f"""
  waits:
    kind: runtime
    facts: false
    matrix: {{n: {ns}, runtime: python, machine: one}}
    run: ["echo ${{n}} >> {SHARED}/ran; while ! test -e {SHARED}/go; do sleep 0.1; done; echo out of ${{n}}"]
"""
