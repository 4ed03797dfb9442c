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
import functools
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..contain import cgroup
from ..contain.process import become_subreaper, boot_id, stat, write_whole
from ..contain.sandbox import Sandbox
from ..job_file import Ending, JobError, JobFile
from ..masking.files import mask_files
from ..masking.mask import Mask
from ..run.log import Log
from ..run.measure import hardware
from ..run.records import OutFolder, RecordsFile, join_messages
from ..run.runner import Runner, step_context
from ..steps.kinds import Context, Prepared, prepare

if TYPE_CHECKING:
    from ..run.readiness import Readiness


class Supervisor:
    def __init__(self, job: JobFile) -> None:
        self._job = job
        self._folders = job.in_folders()
        self._folder = self._folders.out
        self._mask = Mask(job.secrets, job.steps)
        self._out = OutFolder(self._folder, self._mask)
        self._runner: Optional[Runner] = None
        self._cancelled = False
        self._identity: Dict[str, Any] = {}

    def take(self) -> Optional[Dict[str, Any]]:
        """Become the one supervisor of this job, and say who that is. None: another one has, or had, this job."""
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
        """Run the job to its end, whatever that is."""
        group = cgroup.Cgroup(self._identity["cgroups"])
        memory_bytes = self._job.memory_bytes
        log = Log(self._folder, self._job.log_segments)
        records: Optional[RecordsFile] = None
        try:
            records = RecordsFile(self._folder, self._mask)
            gpus = self._job.env.get("CUDA_VISIBLE_DEVICES")
            self._hardware = hardware(self._job.cpus, memory_bytes, gpus)
            if self._job.container is not None:
                ending = self._run_container(self._job.container, records, log)
            else:
                group.create(memory_bytes)
                sandbox = Sandbox(group, self._job.cpus, memory_bytes, self._out.path("oom"))
                records.begin(self._hardware)
                readiness = self._readiness(records)
                ending = self._drive(self._job.steps, sandbox, records, log, prepare, self._job.env, readiness)
        except (JobError, OSError) as error:
            ending = Ending("infra", None, str(error))
        stuck = group.remove()
        if stuck:
            ending = ending._replace(message=join_messages(ending.message, "cannot remove %s" % ", ".join(stuck)))
        self._out.finish(ending, records, log)

    def _readiness(self, records: RecordsFile, listens: Optional[Callable[[int], bool]] = None) -> Optional[Readiness]:
        """Found from here, also for a container: the port is asked where others will ask it."""
        ready = self._job.ready
        if ready is None:
            return None
        from ..run.readiness import Readiness  # and with it what few jobs need

        gate = None if listens is None else functools.partial(listens, ready.number)
        return Readiness(ready.number, ready.path, functools.partial(records.write, "ready"), gate)

    def _run_container(self, spec: Dict[str, Any], records: RecordsFile, log: Log) -> Ending:
        from .container import Container

        container = Container(self._job, spec)
        try:
            sandbox = container.start()
            readiness = self._readiness(records, container.listens)
            if container.python is None:
                records.begin(self._hardware)
            else:  # the agent inside writes the records
                records = RecordsFile(container.out, self._mask, "outer.jsonl")
            ending = self._drive(container.steps, sandbox, records, log, container.prepare, container.env, readiness)
            ending = ending if container.python is None else container.ending(ending)
        except JobError as error:
            ending = Ending(error.outcome, None, str(error))
        try:
            container.remove()
        except JobError as error:
            ending = ending._replace(message=join_messages(ending.message, str(error)))
        return ending

    def _drive(
        self,
        steps: List[Dict[str, Any]],
        sandbox: Sandbox,
        records: RecordsFile,
        log: Log,
        prepare: Callable[[Dict[str, Any], Context], Prepared],
        env: Dict[str, str],
        readiness: Optional[Readiness],
    ) -> Ending:
        context = step_context(self._job, self._folders, env, sandbox, self._job.environment.get("interpreter"))
        keep_folder = functools.partial(self._out.restore, records, log)
        self._runner = Runner(
            steps, context, records, log, sandbox, self._job.limits, keep_folder, prepare, readiness=readiness
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
