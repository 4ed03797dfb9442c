"""Watches over one job: owns its folder, holds it to its limits, proves at the end that nothing of it is left.

The folder of a job:

    lock              held (flock) by the supervisor as long as it lives
    job.json          written last by who submits; without it nothing is started
    supervisor.json   who supervises (boot, pid, start time), which control groups it makes; before the first step
    records.jsonl, log.txt, log.txt.N, files/, work/, home/, tmp/
    end.json          how it ended; written when nothing of the job runs any more. Not there, and no supervisor: killed
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from . import cgroup
from .box import Box
from .files import mask_files
from .hardware import hardware
from .log import Log
from .mask import Mask
from .process import become_subreaper, boot_id, stat, write_whole
from .records import RecordError, Records
from .runner import Ending, Limits, Runner
from .steps import Context, Prepared, prepare

END_BYTES = 16 << 10  # kept free for the end, so that a full disk does not silence it


class Taken(Exception):
    """Another supervisor has, or had, this job."""


class Supervisor:
    """`request` is what `zygote.py` describes."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self._request = request
        self._folder: str = request["folder"]
        self._mask = Mask(request.get("secrets") or ())
        self._runner: Optional[Runner] = None
        self._cancelled = False
        self._identity: Dict[str, Any] = {}
        self._job_text = b""

    def take(self) -> Dict[str, Any]:
        """Become the one supervisor of this job, and say who that is. Raises Taken."""
        signal.signal(signal.SIGTERM, lambda number, frame: self._cancel())
        self._lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Taken(self._folder) from None
        if os.path.exists(self._path("supervisor.json")):
            raise Taken(self._folder)
        with open(self._path("job.json"), "rb") as file:
            self._job_text = file.read()
        become_subreaper()
        self._reserve_end()
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
        write_whole(self._path("supervisor.json"), json.dumps(self._identity).encode())
        return self._identity

    def supervise(self) -> None:
        """Run the job to its end, whatever that is."""
        group = cgroup.Cgroup(self._identity["cgroups"])
        memory_bytes = self._request.get("memory_bytes")
        log = Log(self._folder)
        records: Optional[Records] = None
        try:
            records = Records(self._folder, self._mask)
            if self._request.get("container"):
                ending = self._run_container(records, log)
            else:
                group.create(memory_bytes)
                box = Box(group, self._request.get("cpus"), memory_bytes, self._path("oom"))
                ending = self._run(box, records, log)
        except (RecordError, OSError) as error:
            ending = Ending("infra", None, str(error))
        stuck = group.remove()
        if stuck:
            ending = ending._replace(message=_join(ending.message, "cannot remove %s" % ", ".join(stuck)))
        self._finish(ending, records, log)

    def _run(self, box: Box, records: Records, log: Log) -> Ending:
        self._begin(records)
        return self._drive(self._request["steps"], box, records, log, prepare, self._request["env"])

    def _begin(self, records: Records) -> None:
        seen = hardware(self._request.get("cpus"), self._request.get("memory_bytes"))
        host = os.uname().nodename
        records.write("begin", version=1, wall_s=time.time(), host=host, pid=os.getpid(), hardware=seen)

    def _run_container(self, records: Records, log: Log) -> Ending:
        from .container import Container, ContainerError

        container = Container(self._request)
        try:
            box = container.start()
            if container.python is None:
                self._begin(records)
                ending = self._drive(self._request["steps"], box, records, log, container.prepare, container.env)
            else:
                unrecorded = Records(container.out, self._mask, "outer.jsonl")
                whole = container.only_step()
                ending = container.ending(
                    self._drive(whole, box, unrecorded, log, container.prepare_agent, container.env)
                )
        except ContainerError as error:
            ending = Ending("refused" if error.refused else "infra", None, str(error))
        try:
            container.remove()
        except ContainerError as error:
            ending = ending._replace(message=_join(ending.message, str(error)))
        return ending

    def _drive(
        self,
        steps: List[Dict[str, Any]],
        box: Box,
        records: Records,
        log: Log,
        prepare: Callable[[Dict[str, Any], Context], Prepared],
        env: Dict[str, str],
    ) -> Ending:
        request = self._request
        context = Context(
            work=request["work"],
            files=request["files"],
            env=env,
            python=request.get("python"),
            driver=request.get("driver"),
            agent=request.get("agent") or "",
            secrets=request.get("secrets"),
            oom_file=box.oom_file,
        )
        limits = Limits(**{key: value for key, value in request["limits"].items() if key in Limits._fields})

        def keep_folder() -> None:
            self._restore_folder(records, log)

        self._runner = Runner(steps, context, records, log, box, limits, keep_folder, prepare)
        if self._cancelled:
            self._cancel()
        ending = self._runner.run()
        problems = mask_files(request["files"], self._mask)
        if problems:
            ending = Ending("infra", None, _join(ending.message, problems), ending.left)
        return ending

    def _cancel(self) -> None:
        self._cancelled = True
        if self._runner is not None:
            self._runner.stop("cancelled", "cancelled")

    def _finish(self, ending: Ending, records: Optional[Records], log: Log) -> None:
        if log.error:
            ending = ending._replace(message=_join(ending.message, log.error))
        facts: Dict[str, Any] = {
            "outcome": ending.outcome,
            "message": self._mask.text(ending.message),
            "left": ending.left,
            "log_bytes": log.total_bytes,
            "log_omitted_bytes": log.omitted_bytes,
        }
        if records is not None:
            try:
                self._restore_folder(records, log)
                if records.notes_omitted:
                    facts["notes_omitted"] = records.notes_omitted
                records.last("end", **facts)
            except RecordError as error:
                facts["message"] = _join(facts["message"], str(error))
        log.close()
        self._write_end(dict(facts, version=1, code=ending.code, wall_s=time.time(), at_s=time.monotonic()))

    # ---- the folder

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _reserve_end(self) -> None:
        self._end_fd = os.open(self._path("end.json.new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._end_fd, 0, END_BYTES)

    def _write_end(self, facts: Dict[str, Any]) -> None:
        data = json.dumps(facts).encode()
        if len(data) > END_BYTES:
            data = json.dumps(dict(facts, message=facts["message"][: END_BYTES // 8])).encode()
        if not os.fstat(self._end_fd).st_nlink:
            self._reserve_end()
        os.pwrite(self._end_fd, data, 0)
        os.ftruncate(self._end_fd, len(data))
        os.fsync(self._end_fd)
        os.rename(self._path("end.json.new"), self._path("end.json"))

    def _restore_folder(self, records: Records, log: Log) -> None:
        """A job can delete or lock whatever it owns. What is needed to find it and to tell of it is put back."""
        try:
            if not os.access(self._folder, os.R_OK | os.W_OK | os.X_OK):
                if os.path.isdir(self._folder):
                    os.chmod(self._folder, 0o700)
                else:
                    os.makedirs(self._folder, 0o700)
            for name, data in (("job.json", self._job_text), ("supervisor.json", json.dumps(self._identity).encode())):
                if not os.path.exists(self._path(name)):
                    write_whole(self._path(name), data)
        except OSError as error:
            raise RecordError(self._folder, error) from error
        records.restore()
        log.restore()


def _join(*messages: str) -> str:
    return "; ".join(message for message in messages if message)
