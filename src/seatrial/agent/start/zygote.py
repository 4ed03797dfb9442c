"""Starts supervisors by a fork instead of an interpreter each: `python -I -S AGENT spawn`.

Reads requests, one JSON object a line, from its input: {"id": 1, "job": as in `job_file.py`}, and answers each by a
line: {"id": 1, "pid": ..., "start": ...} when the job is known on disk and will run, {"id": 1, "taken": true} when it
has or had a supervisor already, {"id": 1, "error": "..."} when it was not started.
The answer comes from the supervisor itself; the zygote answers for one that died before it could. When its input ends
the zygote ends; supervisors are in sessions of their own and go on.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
from typing import Any, Dict, List

from .. import job_file
from ..contain import cgroup
from ..contain.process import boot_id
from ..run.measure import hardware
from ..steps.kinds import agent_path
from .supervisor import Supervisor


def main(arguments: List[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for find_once in (boot_id, cgroup.most_processes, agent_path, hardware):  # known to all children
        find_once()
    cgroup.plan("")
    gc.collect()
    gc.freeze()  # what is here now is never looked at again, so that children share it
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
                    job = job_file.read_job_file(request["job"], {})
                    job.in_folders()
                    waiting[_fork(request["id"], job, reader, writer)] = request["id"]
                except job_file.JobError as error:
                    _answer(1, {"id": request["id"], "error": "not a job that can be run: %s" % error})
                except OSError as error:  # no more processes, no more memory: this one fails, the next may not
                    _answer(1, {"id": request["id"], "error": "cannot fork: %s" % error})


def _fork(number: int, job: job_file.JobFile, *unneeded: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for fd in unneeded:
            os.close(fd)
        code = _become_supervisor(number, job)
    except BaseException:  # noqa: BLE001 - the last place to say what broke; the process ends here
        import traceback

        # Without a disk to say it on: that it ended without end.json is seen by who watches.
        with contextlib.suppress(OSError), open(os.path.join(job.in_folders().out, "supervisor.log"), "a") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(code)


def _become_supervisor(number: int, job: job_file.JobFile) -> int:
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
        _answer(answers, {"id": number, "error": str(error)[:2000]})
        return 0
    if identity is None:
        _answer(answers, {"id": number, "taken": True})
        return 0
    _answer(answers, {"id": number, "pid": identity["pid"], "start": identity["start"]})
    os.close(answers)
    supervisor.supervise()
    return 0


def _answer(fd: int, answer: Dict[str, Any]) -> None:
    """One write of less than a page: answers of several processes do not mix."""
    with contextlib.suppress(BrokenPipeError):  # who asked is gone; the job is known on disk
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
            _answer(1, {"id": number, "error": "the supervisor ended before its job did (status %d)" % status})
