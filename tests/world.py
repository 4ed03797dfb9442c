"""Seatrial as a user starts it, in a world of its own."""

import asyncio
import contextlib
import glob
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from forked import run_forked
from seatrial.cli import main
from seatrial.engine import reap
from seatrial.job import RunResults
from seatrial.record import RunFolder, find_run
from seatrial.suite import TargetEntry
from seatrial.targets.local import LocalOptions

SEATRIAL = str(Path(sys.executable).with_name("seatrial"))
LIMIT_S = 600.0
# Commands that only read and write files behave the same in the process of the tests.
IN_PROCESS = {"baseline", "compare", "history", "import", "init", "plan", "report", "runs", "scale", "schema"}
DETACHED = " -m seatrial attach "  # how `run --detach` starts the process of its run
DETACHED_S = 120.0
EVERY = bool(os.environ.get("SEATRIAL_TEST_ALL"))


def _as_in_a_terminal() -> None:
    """Whoever starts the tests in the background of a script has them ignore Ctrl-C, and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _link(path: Path) -> str:
    """What it leads to; nothing when it is gone: a process that opens and closes files is still one."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


class _Started(subprocess.Popen[str]):
    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


@dataclass
class World:
    """A folder with a suite, and state of its own, in which `seatrial` is run."""

    folder: Path
    env: dict[str, str]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def suite(self, text: str, name: str = "suite.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def seatrial(self, *args: str, check: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **env}
        if self._needs_fresh_python(env):
            done = self._as_process(args, env)
        elif args and args[0] in IN_PROCESS:
            done = self._in_process(args, env)
        else:
            done = run_forked(args, self.folder, env, LIMIT_S)
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _needs_fresh_python(self, env: dict[str, str]) -> bool:
        """Python's own variables are read when it starts; plugins are found on `PYTHONPATH`."""
        return any(env.get(name) != os.environ.get(name) for name in ("PYTHONPATH", "PYTHONIOENCODING"))

    def _in_process(self, args: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        gone = {name: None for name in os.environ if name not in env}
        with contextlib.chdir(self.folder):
            done = CliRunner(catch_exceptions=False).invoke(main, args, env={**gone, **env}, prog_name="seatrial")
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)

    def _as_process(self, args: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SEATRIAL, *args], cwd=self.folder, env=env, capture_output=True, text=True, timeout=LIMIT_S
        )

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """A process that a `with` kills if its block fails, instead of waiting for its end."""
        return _Started(
            [SEATRIAL, *args],
            cwd=self.folder,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_as_in_a_terminal,
        )

    def run(self, name: str = "last") -> RunFolder:
        return find_run(self.folder / "runs", name)

    def results(self, name: str = "last") -> RunResults:
        results = self.run(name).read_results()
        assert results is not None
        return results

    def verdicts(self, name: str = "last") -> dict[str, str]:
        return {cell.id: str(cell.verdict) for cell in self.results(name).cells}

    def journal(self, name: str = "last") -> list[dict[str, Any]]:
        written, _, _ = self.run(name).journal.read_bytes().rpartition(b"\n")  # the last line may be half written
        return [msgspec.json.decode(line) for line in written.splitlines()]

    def started(self) -> int:
        """How many jobs the engine knows to have started. A job may be at work before its submitter has heard of it:
        who interrupts a run then cancels a submission, not a job."""
        return sum(entry["event"] == "started" for entry in self.journal())

    def left(self) -> list[str]:
        """Processes, control groups, mounts and job folders of this world that are still there."""
        return [*self.processes(), *self.groups(), *self.mounts(), *map(str, self.jobs())]

    def jobs(self) -> list[Path]:
        return list(self.state.glob("jobs/*/*"))

    def groups(self) -> list[str]:
        runs = [path.name for path in (self.folder / "runs").glob("*") if path.is_dir()]
        # os.walk minds no folder that goes while it looks: those of other tests do.
        below = [os.path.join(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names]
        return [path for path in below if any(f"/seatrial-{run}-" in path for run in runs)]

    def mounts(self) -> list[str]:
        """What jobs mounted in their folders."""
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [f"mount {point}" for point in points if point.startswith(f"{self.state}/")]

    def processes(self) -> list[str]:
        """Seatrial and the steps of its jobs by their environment, supervisors by the files that they hold open."""
        found = (self._process(Path(path)) for path in glob.iglob("/proc/[0-9]*") if path != f"/proc/{os.getpid()}")
        return [process for process in found if process]

    def _process(self, entry: Path) -> str:
        """Its id and command when it is of this world and lives; else nothing."""
        marks = (f"SEATRIAL_STATE={self.state}".encode(), f"SEATRIAL_FILES={self.state}/".encode())
        try:
            environment = (entry / "environ").read_bytes()
            held = [_link(link) for link in (entry / "fd").iterdir()]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it ended meanwhile, or is another user's
            return ""
        ours = any(mark in environment for mark in marks) or any(path.startswith(str(self.state)) for path in held)
        if command.strip().endswith("/podman"):  # without arguments: it holds a user's namespaces as long as they like
            return ""
        return f"{entry.name} {command}" if ours and status != "Z" else ""

    def reap(self) -> None:
        """As `seatrial reap` does, without a process of its own; what is left then is a failure of reaping."""
        left = self._left_by_detached_runs()
        if left:
            entry = TargetEntry(kind="local", options=LocalOptions(state=self.state))
            reaping = asyncio.run(reap({"here": entry}, (), 0.0, time.time(), dry=False))
            assert reaping.done, reaping
            left = self.left()
        assert left == [], f"reaped, and still there: {left}"

    def _left_by_detached_runs(self) -> list[str]:
        """What is left once the processes of detached runs are gone: they let go of their run before they exit, so that
        whoever attached to it may be gone before they are."""
        until = time.monotonic() + DETACHED_S
        left = self.left()
        while any(DETACHED in line for line in left) and time.monotonic() < until:
            time.sleep(0.02)
            left = self.left()
        return left
