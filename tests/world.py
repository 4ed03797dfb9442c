"""Seatrial as a user starts it, in a world of its own."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import RunResults
from seatrial.record import RunFolder, find_run

SEATRIAL = str(Path(sys.executable).with_name("seatrial"))
EVERY = bool(os.environ.get("SEATRIAL_TEST_ALL"))


def _as_in_a_terminal() -> None:
    """Whoever starts the tests in the background of a script has them ignore Ctrl-C, and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class World:
    """A folder with a suite, and state of its own, in which `seatrial` is run as a process."""

    folder: Path
    env: dict[str, str]

    def suite(self, text: str, name: str = "suite.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def seatrial(self, *args: str, check: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [SEATRIAL, *args], cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True, timeout=240
        )
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
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
        return [msgspec.json.decode(line) for line in self.run(name).journal.read_bytes().splitlines()]

    def left(self) -> list[str]:
        """Processes, control groups and job folders of this world that are still there."""
        runs = [path.name for path in (self.folder / "runs").glob("*") if path.is_dir()]
        # os.walk minds no folder that goes while it looks: those of other tests do.
        below = [os.path.join(at, name) for at, names, _ in os.walk("/sys/fs/cgroup") for name in names]
        groups = [path for path in below if any(f"/seatrial-{run}-" in path for run in runs)]
        return [*self.processes(), *groups, *map(str, self.jobs())]

    def jobs(self) -> list[Path]:
        return list((self.folder / "state").glob("jobs/*/*"))

    def processes(self) -> list[str]:
        """Seatrial and the steps of its jobs by their environment, supervisors by the files that they hold open."""
        state = str(self.folder / "state")
        marks = (f"SEATRIAL_STATE={state}".encode(), f"SEATRIAL_FILES={state}/".encode())
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment = (entry / "environ").read_bytes()
                held = [os.readlink(link) for link in (entry / "fd").iterdir()]
                ours = any(mark in environment for mark in marks) or any(path.startswith(state) for path in held)
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if ours and state != "Z":
                found.append(f"{entry.name} {command}")
        return found
