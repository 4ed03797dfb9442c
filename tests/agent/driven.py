"""Steps as the runner starts them, without the runner: a process with a pipe for its notes."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.agent.steps.kinds import Context, Ended, prepare

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


@dataclass
class Driven:
    """What became of a step."""

    ended: Ended
    result: dict[str, Any]
    files: Path
    notes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def output(self) -> str:
        return self.ended.output

    @property
    def passes(self) -> dict[str, dict[str, Any]]:
        return {note["pass"]: note for note in self.notes if note["note"] == "passed-over"}

    def cells(self, name: str = "fresh") -> list[dict[str, Any]]:
        return [note for note in self.notes if note["note"] == "cell" and note["pass"] == name]

    def kept(self, stem: str, name: str = "fresh") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.files / "notebooks" / f"{stem}.{name}.ipynb").read_text())
        return found


@dataclass
class StepRunner:
    """Where steps are run: a work folder, an agent, an interpreter."""

    folder: Path
    agent: Path
    python: str | None = sys.executable
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    driver: str | None = None
    oom_file: Path | None = None

    def context(self) -> Context:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SEATRIAL"))}
        return Context(
            work=str(work),
            files=str(self.folder / "files"),
            env={**env, "TMPDIR": str(self.folder / "tmp"), **self.env},
            python=self.python,
            driver=self.driver,
            agent=str(self.agent),
            secrets=self.secrets,
            oom_file=str(self.oom_file) if self.oom_file else None,
        )

    def do(self, kind: str, **args: Any) -> Driven:
        context = self.context()
        prepared = prepare({"name": kind, "kind": kind, "args": args}, context)
        if prepared.argv is None:
            return Driven(Ended("exited", 0), prepared.result, self.folder / "files")
        reading, writing = os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, when it has been read
        process = subprocess.Popen(
            prepared.argv,
            env={**context.env, **prepared.env, "SEATRIAL_NOTES_FD": str(writing)},
            cwd=context.work,
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as lines:
            notes = [json.loads(line) for line in lines]
        code = process.wait()
        log.seek(0)
        output = log.read().decode(errors="replace")
        log.close()
        ended = Ended(
            "exited" if code >= 0 else "signal", code if code >= 0 else None, -code if code < 0 else None, output, notes
        )
        result = prepared.finish(ended) if prepared.finish else prepared.result
        for memory in prepared.memory:
            os.close(memory)
        return Driven(ended, result, self.folder / "files", notes)

    def notebook(self, name: str, **args: Any) -> Driven:
        """One of tests/notebooks, copied into the work folder."""
        (self.folder / "work").mkdir(exist_ok=True)
        source = NOTEBOOKS / f"{name}.ipynb"
        if source.exists():
            (self.folder / "work" / source.name).write_bytes(source.read_bytes())
        return self.do("notebook", path=source.name, **args)

    def cells(self, *sources: str | dict[str, Any], metadata: dict[str, Any] | None = None, **args: Any) -> Driven:
        """A notebook of these sources, or cells, written into the work folder."""
        cells = [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": one}
            | (one if isinstance(one, dict) else {})
            for one in sources
        ]
        notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": metadata or {}, "cells": cells}
        (self.folder / "work").mkdir(exist_ok=True)
        (self.folder / "work" / "written.ipynb").write_text(json.dumps(notebook))
        return self.do("notebook", path="written.ipynb", **args)
