"""A world with a target that several machines reach, and ways to be another machine."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from world import SEATRIAL, World

PLUGINS = Path(__file__).parent.parent / "plugins"


class FarWorld(World):
    """`--target`, as `self.target` has it, leads to the place."""

    @property
    def place(self) -> Path:
        return self.folder / "place"

    @property
    def target(self) -> str:
        return f"far:place={self.place}"

    def say(self, name: str, text: str) -> None:
        (self.place / name).write_text(text)

    def unsay(self, name: str) -> None:
        (self.place / name).unlink()

    def asked(self) -> list[str]:
        path = self.place / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def far_jobs(self) -> list[Path]:
        return list(self.place.glob("state/jobs/*/*"))

    def elsewhere(self, *args: str, host: str = "elsewhere") -> "subprocess.CompletedProcess[str]":
        """Seatrial on a machine of another name."""
        named = 'hostname "$0" && exec "$@"'
        command = ["unshare", "--uts", "/bin/sh", "-c", named, host, SEATRIAL, *args]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600)


def far_world(world: World) -> FarWorld:
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(PLUGINS), *([before] if before else [])])
    made = FarWorld(world.folder, {**world.env, "PYTHONPATH": path})
    made.place.mkdir()
    return made


def can_be_another_machine() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode == 0


another_machine = pytest.mark.skipif(
    not can_be_another_machine(), reason="needs unshare, and root for another host name"
)


WAITING = """
name: NAME
trials:
  t:
    kind: runtime
    facts: false
    matrix: {n: [1, 2, 3]}
    run: ["echo ${n} >> $PLACE/ran; while ! test -e $PLACE/go; do sleep 0.05; done; echo out of ${n}"]
    env: {PLACE: "PLACE-OF-JOBS"}
"""


def waiting_world(world: World, name: str) -> FarWorld:
    """With a suite of that name, whose three cells tell that they have begun, and wait for a file `go`."""
    made = far_world(world)
    made.suite(WAITING.replace("NAME", name).replace("PLACE-OF-JOBS", str(made.place)))
    return made


def ran(far: FarWorld) -> list[str]:
    path = far.place / "ran"
    return sorted(path.read_text().split()) if path.exists() else []
