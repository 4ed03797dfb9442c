"""Supervises one job: owns its folder, enforces its limits, and verifies at the end that none of its processes is left.

The folder of a job:

    lock              held (flock) by the supervisor while it runs
    job.json          written last when a job is submitted; without it nothing is started
    supervisor.json   the supervisor (boot, pid, start time) and its control groups; written before the first step
    records.jsonl, log.txt, log.txt.N, files/, work/, home/, tmp/
    end.json          how it ended; written after its last process has exited. Missing without a supervisor: killed

`python -I -S AGENT spawn` is the zygote: it forks supervisors, which is faster than starting an interpreter for each.
It reads requests from standard input, one JSON object per line: {"id": 1, "job": as in `job_file.py`}. Each gets an
answer of one line: {"id": 1, "pid": ..., "start": ...} once the job is recorded on disk and will run,
{"id": 1, "taken": true} if it has or had a supervisor, {"id": 1, "error": "..."} if it was not started.
The supervisor itself answers; the zygote answers for one that died before. The zygote exits when its input ends;
supervisors have their own sessions and continue.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..contain import cgroup
from ..contain.process import become_subreaper, boot_id, stat, write_whole
from ..contain.sandbox import Sandbox
from ..job_file import Ending, JobError, JobFile, read_job_file
from ..masking.files import mask_files
from ..masking.mask import Mask
from ..steps.kinds import agent_path, prepare
from .log import Log
from .measure import hardware
from .records import OutFolder, RecordsFile, join_messages
from .runner import Prepare, Runner, Step, step_context

if TYPE_CHECKING:
    from .readiness import Readiness


class Supervisor:
    def __init__(self, job: JobFile) -> None:
        self._job = job
        self._folders = job.in_folders()
        self._folder = self._folders.out
        self._mask = Mask(job.secrets, job.steps)
        self._out = OutFolder(self._folder)
        self._runner: Optional[Runner] = None
        self._cancelled = False
        self._identity: Dict[str, Any] = {}

    def take(self) -> Optional[Dict[str, Any]]:
        """Becomes the only supervisor of this job and returns its identity; None if the job has or had another one."""
        signal.signal(signal.SIGTERM, lambda number, frame: self._cancel())
        self._lock = os.open(self._out.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if os.path.exists(self._out.path("supervisor.json")):
            return None
        with open(self._out.path("job.json"), "rb") as file:
            self._out.kept["job.json"] = file.read()
        become_subreaper()
        self._out.reserve_end()
        own = stat(os.getpid())
        self._identity = {
            "version": 1,
            "boot_id": boot_id(),
            "pid": os.getpid(),
            "start": own.start if own else 0,
            "host": os.uname().nodename,
            "wall_s": time.time(),
            "at_s": time.monotonic(),
            "cgroups": cgroup.plan(self._folder),
        }
        self._out.kept["supervisor.json"] = json.dumps(self._identity).encode()
        write_whole(self._out.path("supervisor.json"), self._out.kept["supervisor.json"])
        return self._identity

    def supervise(self) -> None:
        """Runs the job until it ends, and always writes end.json."""
        group = cgroup.Cgroup(self._identity["cgroups"])
        memory_bytes = self._job.memory_bytes
        log = self._log = Log(self._folder, self._job.log_segments)
        self._readiness: Optional[Readiness] = None
        records: Optional[RecordsFile] = None
        try:
            records = RecordsFile(self._folder, self._mask)
            gpus = self._job.env.get("CUDA_VISIBLE_DEVICES")
            self._hardware = hardware(self._job.cpus, memory_bytes, gpus)
            if self._job.container is not None:
                ending = self._run_container(self._job.container, records)
            else:
                group.create(memory_bytes)
                sandbox = Sandbox(group, self._job.cpus, memory_bytes, self._out.path("oom"))
                records.begin(self._hardware)
                self._ask_port(records)
                ending = self._drive(self._job.steps, sandbox, records, prepare, self._job.env)
        except (JobError, OSError) as error:
            ending = Ending("infra", None, str(error))
        stuck = group.remove()
        if stuck:
            text = "cannot remove the control group %s" % ", ".join(stuck)
            ending = ending._replace(message=join_messages(ending.message, text))
        self._out.finish(ending, records, log, self._mask)

    def _ask_port(self, records: RecordsFile, listens: Optional[Callable[[int], bool]] = None) -> None:
        """Probes the port from here, also for a container, because clients connect from here."""
        ready = self._job.ready
        if ready is not None:
            from .readiness import Readiness  # imported here because few jobs need it

            self._readiness = Readiness(ready.number, ready.path, functools.partial(records.write, "ready"), listens)

    def _run_container(self, spec: Dict[str, Any], records: RecordsFile) -> Ending:
        from .container import Container

        container = Container(self._job, spec)
        try:
            sandbox = container.start()
            self._ask_port(records, container.listens)
            if container.python is None:
                records.begin(self._hardware)
            else:  # the agent inside writes the records
                records = RecordsFile(container.out, self._mask, "outer.jsonl")
            ending = self._drive(container.steps, sandbox, records, container.prepare, container.env)
            ending = ending if container.python is None else container.ending(ending)
        except (JobError, OSError) as error:
            ending = Ending(getattr(error, "outcome", "infra"), None, str(error))
        try:
            container.remove()
        except (JobError, OSError) as error:
            ending = ending._replace(message=join_messages(ending.message, str(error)))
        return ending

    def _drive(
        self, steps: List[Step], sandbox: Sandbox, records: RecordsFile, prepare: Prepare, env: Dict[str, str]
    ) -> Ending:
        context = step_context(self._job, self._folders, env, sandbox, self._job.environment.get("interpreter"))
        restore = functools.partial(self._out.restore, records, self._log)
        limits, readiness = self._job.limits, self._readiness
        self._runner = Runner(
            steps, context, records, self._log.write, sandbox, limits, restore, prepare, readiness=readiness
        )
        if self._cancelled:
            self._cancel()
        ending = self._runner.run()
        problems = mask_files(self._folders.files, self._mask)
        if problems:
            ending = Ending("infra", None, join_messages(ending.message, problems), ending.left)
        return ending

    def _cancel(self) -> None:
        self._cancelled = True
        if self._runner is not None:
            self._runner.stop("cancelled", "cancelled")


# ---- the zygote


def main(arguments: List[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for find_once in (boot_id, cgroup.most_processes, agent_path, hardware):  # cached for all children
        find_once()
    cgroup.plan("")
    gc.collect()
    gc.freeze()  # never collected again, so that children share this memory
    waiting: Dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0, reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            _reap(waiting)
        if 0 in ready:
            data = os.read(0, 1 << 20)
            if not data:
                return 0
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                try:
                    job = read_job_file(request["job"], {})
                    job.in_folders()
                    waiting[_fork(request["id"], job, reader, writer)] = request["id"]
                except JobError as error:
                    _answer(1, {"id": request["id"], "error": "invalid job: %s" % error})
                except OSError as error:  # out of processes or memory: the next job may succeed
                    _answer(1, {"id": request["id"], "error": "cannot fork: %s" % error})


def _fork(number: int, job: JobFile, *unneeded: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for fd in unneeded:
            os.close(fd)
        _become_supervisor(number, job)
        code = 0
    except BaseException:  # noqa: BLE001 - the last place to say what broke; the process ends here
        import traceback

        # Even if this cannot be written, the target sees that end.json is missing.
        with contextlib.suppress(OSError), open(os.path.join(job.in_folders().out, "supervisor.log"), "a") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(code)


def _become_supervisor(number: int, job: JobFile) -> None:
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    supervisor = Supervisor(job)
    try:
        identity = supervisor.take()
    except OSError as error:
        return _answer(answers, {"id": number, "error": str(error)[:2000]})
    if identity is None:
        return _answer(answers, {"id": number, "taken": True})
    _answer(answers, {"id": number, "pid": identity["pid"], "start": identity["start"]})
    os.close(answers)
    supervisor.supervise()


def _answer(fd: int, answer: Dict[str, Any]) -> None:
    """A single write of less than a page, so that answers of several processes do not mix."""
    with contextlib.suppress(BrokenPipeError):  # the client is gone; the job is recorded on disk
        os.write(fd, json.dumps(answer).encode() + b"\n")


def _reap(waiting: Dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        number = waiting.pop(pid, None)
        if number is not None and status != 0:
            killed = os.WIFSIGNALED(status)
            how = "was killed by signal %d" % os.WTERMSIG(status) if killed else "exited with code %d" % (status >> 8)
            _answer(1, {"id": number, "error": "the supervisor %s before its job ended" % how})
