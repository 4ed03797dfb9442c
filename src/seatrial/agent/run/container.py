"""Runs a job in a container: starts it idle, runs the steps inside, and removes it at the end.

`python AGENT run JOB.json` is the agent inside: it runs the steps in the foreground, unsupervised, and forwards their
output. JOB.json is described in `job_file.py`.

If the image has a Python, the agent runs inside it; otherwise plain commands are started from here. The `container` of
a job: {"engine": path of podman or docker, "name": ..., "create": arguments of `run`, "remove": arguments of `rm`,
"env": of the engine itself, "values": variables of the job, "secret_values": likewise, "python": path inside, or null}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Dict, List, Optional, Set

from ..contain.cgroup import Cgroup
from ..contain.process import become_subreaper, living, send_signal, write_whole
from ..contain.sandbox import Sandbox, oom_file
from ..job_file import Ending, JobError, JobFile, read_ending, read_file
from ..masking.mask import Mask
from ..steps.kinds import Context, Ended, Prepared, Result, follow
from .measure import hardware
from .readiness import listens_in
from .records import RecordsFile
from .runner import Runner, step_context

_INSIDE = "/seatrial"
_ENDING = "ending.json"
IDLE = "exec tail -f /dev/null"
_START_S = 300.0
_MESSAGE_CHARACTERS = 1000


class ContainerSandbox(Sandbox):
    """The container's processes, without the idle one that keeps it running. The engine enforces the limits."""

    def __init__(self, cgroup: Cgroup, idle: int) -> None:
        super().__init__(cgroup)
        self._idle = idle

    def enter(self) -> None:
        pass  # only the engine's client is started here

    def members(self) -> Set[int]:
        """Without zombies, which the idle process does not reap."""
        return living(self.cgroup.members() - {self._idle, os.getpid()})

    def kill(self, pids: Set[int]) -> None:
        send_signal(pids, 9)


# A command that has no `--version` prints an error instead, with another exit code.
FIND_COMMAND = """
path=$(command -v "$1") && echo "$path" && text=$("$path" --version 2>&1 </dev/null) && echo "$text"
exit 0
"""


def parse_found(ended: Ended) -> Result:
    """Parses the path and version of a command from the shell's output."""
    lines = filter(None, map(str.strip, ended.output.splitlines() if ended.code == 0 else ()))
    return {"path": next(lines, None), "version": next(lines, None)}


class Container:
    def __init__(self, job: JobFile, spec: Dict[str, Any]) -> None:
        self.python: Optional[str] = spec.get("python")
        self.env: Dict[str, str] = {**spec["env"], **spec["secret_values"]}
        self.out = os.path.join(job.in_folders().out, "out")
        self._spec = spec
        self._job = job
        self._engine: str = spec["engine"]
        self._name: str = spec["name"]
        self._idle = 0

    def start(self) -> Sandbox:
        """Starts the idle container and writes the job file for the agent inside."""
        # The same job from inside: without another Python, and without limits, which the engine sets.
        folders = {"out": _INSIDE + "/out", "work": _INSIDE + "/work", "files": _INSIDE + "/files"}
        outside = ("variables", "environment", "cpus", "memory_bytes", "ready", "container")
        inner = {name: value for name, value in self._job.given.items() if name not in outside}
        with open(os.path.join(self.out, "job.json"), "w") as file:
            json.dump(dict(inner, folders=folders), file)
        os.chmod(os.path.join(os.path.dirname(self.out), "records.jsonl"), 0o666)  # the image may have any user
        self._do(self._spec["create"] + ["-c", IDLE])
        idle = int(self._do(["inspect", "--format", "{{.State.Pid}}", self._name]).strip() or 0)
        group = Cgroup([])
        if idle and os.path.exists("/proc/%d" % idle):
            group.join(idle)
            self._idle = idle
        return ContainerSandbox(group, idle)

    def listens(self, port: int) -> bool:
        """Whether a process in the container listens. True if that is unknown, because it runs on another kernel."""
        return not self._idle or listens_in(self._idle, port)

    def remove(self) -> None:
        """Removes the container with its remaining processes."""
        try:
            self._do([*self._spec["remove"], self._name])
        except JobError as error:
            if "no such container" not in str(error).lower():
                raise

    def ending(self, outer: Ending) -> Ending:
        """Returns the ending reported by the agent inside, unless it was stopped from here or reported none."""
        if outer.outcome != "exited":
            return outer
        inner = read_ending(os.path.join(self.out, _ENDING))
        if inner is not None:
            return inner._replace(left=inner.left + outer.left)
        return Ending("lost", outer.code, "the agent in the container exited before its job (code %s)" % outer.code)

    @property
    def steps(self) -> List[Dict[str, Any]]:
        """The job's steps; if the image has a Python, one step that runs the agent inside."""
        if self.python is None:
            return self._job.steps
        return [{"name": "%d steps in %s" % (len(self._job.steps), self._name), "kind": "agent", "args": {}}]

    def prepare(self, step: Dict[str, Any], context: Context) -> Prepared:
        args = step["args"]
        if self.python is not None:
            return Prepared(self._exec([self.python, _INSIDE + "/agent.pyz", "run", _INSIDE + "/out/job.json"]))
        if step["kind"] == "command" and int(args.get("hosts") or 1) == 1:
            variables = "export SEATRIAL_HOST=0 SEATRIAL_HOSTS=1\n" if args.get("hosts") else ""
            return Prepared(self._exec(["/bin/sh", "-c", variables + args["command"]]), **follow(args, context))
        if step["kind"] == "which":
            return Prepared(self._exec(["/bin/sh", "-c", FIND_COMMAND, "sh", args["command"]]), finish=parse_found)
        message = "step kind %r needs Python 3.8 or later in the image; none found" % step["kind"]
        return Prepared(outcome="refused", result={"error": message})

    # ---- the engine

    def _exec(self, arguments: List[str]) -> List[str]:
        """Secrets are passed by name only: the engine reads their values from its environment."""
        argv = [self._engine, "exec", "--workdir", _INSIDE + "/work"]
        for name, value in self._spec["values"].items():
            argv += ["--env", "%s=%s" % (name, value)]
        for name in self._spec["secret_values"]:
            argv += ["--env", name]
        return [*argv, self._name, *arguments]

    def _do(self, arguments: List[str]) -> str:
        argv, env = [self._engine, *arguments], self._spec["env"]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=_START_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JobError("%s %s: %s" % (self._engine, arguments[0], error)) from error
        if done.returncode:
            text = done.stderr.decode("utf-8", "replace").strip()[-_MESSAGE_CHARACTERS:]
            raise JobError("%s %s: %s" % (self._engine, arguments[0], text))
        return done.stdout.decode("utf-8", "replace")


# ---- the agent inside


def show(data: bytes) -> None:
    """Writes to standard output, which the outer agent keeps."""
    with contextlib.suppress(OSError):  # the outer agent is gone
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


def main(arguments: List[str]) -> int:
    try:
        job = read_file(arguments[0], os.environ)
        folders = job.in_folders()
    except JobError as error:
        sys.stderr.write("%s\n" % error)
        return 2
    become_subreaper()
    sandbox = Sandbox(oom_file=oom_file())
    records = RecordsFile(folders.out, Mask(job.secrets, job.steps))
    context = step_context(job, folders, job.env, sandbox, job.environment.get("interpreter") or sys.executable)
    records.begin(hardware())
    runner = Runner(job.steps, context, records, show, sandbox, job.limits)
    signal.signal(signal.SIGTERM, lambda number, frame: runner.stop("cancelled", "cancelled"))
    ending = runner.run()
    write_whole(os.path.join(folders.out, _ENDING), json.dumps(ending._asdict()).encode())
    return 0
