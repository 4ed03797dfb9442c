"""For tests of the agent: its zygote as a process, jobs in folders, and what is there when they are over."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 600.0


class Zygote:
    """`python -I -S AGENT spawn`, driven as the local target drives it, by any interpreter and any user."""

    def __init__(self, agent: Path, python: str = sys.executable, user: int | None = None) -> None:
        self._count = 0
        self.process = subprocess.Popen(
            [python, "-I", "-S", str(agent), "spawn"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]}, start_new_session=True, user=user, group=user,
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._count += 1
        self.process.stdin.write(json.dumps({"id": self._count, "job": request}).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
            if answer["id"] == self._count:  # else a supervisor of an earlier job was killed
                return answer

    def close(self) -> None:
        self.process.communicate()


class Supervised:
    """One job in a folder of its own."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self.zygote = zygote
        self.folder = folder
        self.pid = 0

    def request(self, *commands: str, timeouts_s: dict[str, float] | None = None, **fields: Any) -> dict[str, Any]:
        limits = timeouts_s or {}
        steps = [
            {"name": f"run {c}", "kind": "command", "args": {"command": c}, "timeout_s": limits.get(c)}
            for c in commands
        ]
        secrets = {f"SECRET_{number}": value for number, value in enumerate(fields.pop("secrets", []))}
        env = {"PATH": os.environ["PATH"], "SEATRIAL_FILES": str(self.folder / "files"), **fields.pop("env", {})}
        folders = {"out": str(self.folder), "work": str(self.folder / "work"), "files": str(self.folder / "files")}
        return {
            "version": 1, "folders": folders, "steps": steps, "limits": {"grace_s": 0.5},
            "variables": {**env, **secrets}, "secret_variables": list(secrets), **fields,
        }  # fmt: skip

    def start(self, *commands: str, **fields: Any) -> dict[str, Any]:
        for name in ("", "work", "files"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "job.json").write_text("{}")
        answer = self.zygote.ask(self.request(*commands, **fields))
        self.pid = answer.get("pid", 0)
        return answer

    def run(self, *commands: str, **fields: Any) -> dict[str, Any]:
        """To its end; how it ended."""
        answer = self.start(*commands, **fields)
        assert "pid" in answer, answer
        return self.wait()

    def stop(self) -> dict[str, Any]:
        os.kill(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self) -> dict[str, Any]:
        until_s = time.monotonic() + WAIT_S
        while not (self.folder / "end.json").exists():
            assert time.monotonic() < until_s, self.log()
            time.sleep(0.01)
        end: dict[str, Any] = json.loads((self.folder / "end.json").read_text())
        return end

    def records(self, event: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "records.jsonl"
        written, _, _ = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")  # the last may be half written
        found = [json.loads(line) for line in written.splitlines()]
        return [record for record in found if event in (None, record["event"])]

    def log(self) -> bytes:
        path = self.folder / "log.txt"
        return path.read_bytes() if path.exists() else b""

    def cgroups(self) -> list[Path]:
        return [Path(path) for path in json.loads((self.folder / "supervisor.json").read_text())["cgroups"]]


def attempts(job: Supervised) -> Iterator[Supervised]:
    """For what a machine that is too busy may spoil, and a bug always does: one in five must succeed."""
    yield job
    for number in range(4):
        yield Supervised(job.zygote, job.folder.with_name(f"{job.folder.name}-{number}"))


def until(condition: Any) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)
