"""For tests of what runs in a pod: its two containers as processes, with a folder of their own instead of /seatrial."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WAIT_S = 600.0


class PodProcesses:
    """As the volumes of a pod are: `agent`, `job` and `inputs` handed in, `volume` shared by both containers."""

    def __init__(self, root: Path, agent: Path, python: str = sys.executable) -> None:
        self.root = root
        self.python = python
        for name in ("agent", "job", "inputs", "volume"):
            (root / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(agent, root / "agent/agent.pyz")
        (root / "termination").touch()
        self.out = root / "volume/out"

    def env(self, **more: str) -> dict[str, str]:
        own = {"SEATRIAL_PLACE": str(self.root), "SEATRIAL_TERMINATION": str(self.root / "termination")}
        volume = self.root / "volume"
        return {"PATH": os.environ["PATH"], "HOME": str(volume / "home"), "TMPDIR": str(volume / "tmp"), **own, **more}

    def write(self, *commands: str, **fields: Any) -> None:
        steps = [{"name": f"run {c}", "kind": "command", "args": {"command": c}, "timeout_s": None} for c in commands]
        job = {
            "version": 1, "name": "job", "steps": steps, "limits": {"grace_s": 0.5}, "secret_variables": [], "hosts": 1,
            "inputs": False, "environment": {}, "memory_bytes": None, "log": {"segments": 4}, **fields,
        }  # fmt: skip
        (self.root / "job/job.json").write_text(json.dumps(job))

    def start(self, *, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        argv = [self.python, "-I", "-S", str(self.root / "agent/agent.pyz"), "pod", str(self.root / "job/job.json")]
        given = {"stdout": subprocess.DEVNULL, **options}
        return subprocess.Popen(argv, env=self.env(**(env or {})), start_new_session=True, **given)

    def run(self, *commands: str, env: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """To its end; the termination message, with the exit code beside it."""
        self.write(*commands, **fields)
        return self.ended(self.start(env=env))

    def ended(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        code = process.wait(WAIT_S)
        return {**self.termination(), "exit": code}

    def termination(self) -> dict[str, Any]:
        data = (self.root / "termination").read_bytes()
        assert len(data) <= 4096
        found: dict[str, Any] = json.loads(data)
        return found

    def keep(self, seconds: float, **options: Any) -> subprocess.Popen[bytes]:
        argv = [self.python, "-I", "-S", str(self.root / "agent/agent.pyz"), "keep", str(seconds)]
        return subprocess.Popen(argv, env=self.env(), start_new_session=True, **options)

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "end.json").read_text())
        return found

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        written, _, _ = (self.out / "records.jsonl").read_bytes().rpartition(b"\n")  # the last may be half written
        found = [json.loads(line) for line in written.splitlines()]
        return [record for record in found if event in (None, record["event"])]

    def log(self) -> str:
        try:
            return (self.out / "log.txt").read_text(errors="replace")
        except FileNotFoundError:  # not yet, or a step deleted it
            return ""


def until(condition: Any) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)
