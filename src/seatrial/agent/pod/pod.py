"""`python AGENT pod JOB.json`: the trial of a pod. Runs the steps once and writes its report to a volume.

JOB.json is described in `job_file.py`.

The folder `out` has the files of a local job (records.jsonl, log.txt, log.txt.N, files/, lock, end.json) and `cancel`,
which is created to cancel the job. The end is also in the termination message and the exit code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple

from ..contain.process import become_subreaper
from ..contain.sandbox import pod_sandbox
from ..job_file import Ending, JobError, RunLimits, read_ending, read_file
from ..masking.files import mask_files
from ..masking.mask import Mask
from ..run.log import TeeLog
from ..run.measure import hardware
from ..run.records import END_FILE, OutFolder, RecordsFile, join_messages
from ..run.runner import Prepare, Runner, Step, step_context
from ..steps.kinds import Context, Ended, Prepared, prepare
from .environment import PodEnvironments
from .files import ALIVE, CANCEL, LOCK, STARTED, PodFolders, unpack

# The result of a pod's trial: the termination message and the exit code.


VARIABLE, DEFAULT = "SEATRIAL_TERMINATION", "/dev/termination-log"
TERMINATION_BYTES = 4096  # limit of Kubernetes
_MESSAGE_CHARACTERS = 1000
CODES = {"timeout": 124, "stall": 124, "cancelled": 143}

Done = List[Tuple[str, Optional[int]]]


def termination_message(ending: Ending, steps: Done) -> bytes:
    """Returns at most TERMINATION_BYTES; drops the steps, then shortens the message, if needed."""
    facts: Dict[str, Any] = {
        "seatrial": 1,
        "outcome": ending.outcome,
        "code": ending.code,
        "message": ending.message[:_MESSAGE_CHARACTERS],
        "left": ending.left,
        "wall_s": round(time.time(), 3),
        "steps": steps,
    }
    while True:
        data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(data) <= TERMINATION_BYTES:
            return data
        if facts.pop("steps", None) is None:
            facts["message"] = facts["message"][: len(facts["message"]) // 2]


_POLL_S = 0.25  # poll interval for the cancel file
RESTORE_S = 1.0
_STARTED_TWICE = "the container was restarted; the result of its first start is unknown, so it was not run again"
HOST_VARIABLES = ("JOB_COMPLETION_INDEX", "RANK")
BY_SIGNAL = "stopped from outside (SIGTERM): its pod is being deleted or evicted, or its node is shutting down"


def main(arguments: List[str]) -> int:
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file opened would take its place
            os.open(os.devnull, os.O_RDWR)
    if len(arguments) != 1:
        sys.stderr.write("usage: python AGENT pod JOB.json\n")
        return 2
    return Pod(PodFolders(), arguments[0]).run()


class Pod:
    def __init__(self, folders: PodFolders, job_file: str) -> None:
        self._folders = folders
        self._job_file = job_file
        self._mask = Mask()
        self._runner: Optional[Runner] = None
        self._cancelled: Optional[str] = None  # the reason
        self._begun_s = self._next_restore_s = time.monotonic()
        self._done: Done = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self._cancel(BY_SIGNAL))

    def run(self) -> int:
        """Runs the job, reports how it ended, and returns the exit code."""
        self._ending = Ending("infra")
        try:
            self._whole()
        except (OSError, JobError) as error:
            self._ending = self._ending._replace(
                message=join_messages(self._ending.message, self._mask.text(str(error)))
            )
        except BaseException as error:  # noqa: BLE001 - the last place to say what broke; the process ends here
            traceback.print_exc()
            text = "the agent crashed: %s: %s" % (type(error).__name__, error)
            self._ending = Ending("infra", None, self._mask.text(text))
        # Kubernetes creates the file before it starts the container. If it is missing or the node's disk is full, there
        # is still the exit code.
        with contextlib.suppress(OSError):
            fd = os.open(os.environ.get(VARIABLE) or DEFAULT, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            os.write(fd, termination_message(self._ending, self._done))
        if self._ending.outcome == "exited":
            return min(self._ending.code or 0, 255)
        return CODES.get(self._ending.outcome, 1)

    def _whole(self) -> None:
        if not self._take():
            self._ending = read_ending(self._folders.out(END_FILE)) or Ending("lost", None, _STARTED_TWICE)
            return
        self._out = OutFolder(self._folders.out())
        self._out.reserve_end()
        log = self._log = TeeLog(self._folders.out())
        records: Optional[RecordsFile] = None
        try:
            job = self._job = read_file(self._job_file, os.environ)
            self._mask = Mask(job.secrets, job.steps)
            log.segments = job.log_segments
            records = RecordsFile(self._folders.out(), self._mask)
            self._ending = self._work(records)
        except (JobError, OSError) as error:
            self._ending = Ending(getattr(error, "outcome", "infra"), None, str(error))
        self._ending = self._ending._replace(message=self._mask.text(self._ending.message))
        log.last()
        facts = self._out.finish(self._ending, records, log, self._mask)
        self._ending = self._ending._replace(message=facts["message"])

    # ---- before the steps

    def _take(self) -> bool:
        """Becomes the only trial of this pod; False if its volume was used before. Takes the lock before it creates the
        mark, so that the keeper can wait for the lock once it sees the mark."""
        self._folders.make()
        lock = os.open(self._folders.out(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(self._folders.out(STARTED), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except (BlockingIOError, FileExistsError):
            return False
        become_subreaper()
        return True

    def _work(self, records: RecordsFile) -> Ending:
        job, memory_bytes = self._job, self._job.memory_bytes
        self._records = records
        self._sandbox = pod_sandbox(memory_bytes, self._folders.out("oom"))
        self._begun_s = records.begin(hardware(None, memory_bytes))
        host = host_number(job.hosts, job.env, os.uname().nodename) if job.hosts > 1 else None
        if job.inputs:
            unpack(self._folders.inputs, self._folders.work)
        notebooks = any(step["kind"] == "notebook" for step in job.steps)
        python = PodEnvironments(self._folders.volume(""), self._env(host), self._do).ready(job.environment, notebooks)
        context = step_context(job, self._folders, python.env, self._sandbox, python.path)
        context = context._replace(driver=python.driver, host=host, hosts=job.hosts)
        ending = self._drive(job.steps, context, records, job.limits, prepare)
        problems = mask_files(self._folders.files, self._mask)
        if problems:
            ending = Ending("infra", None, join_messages(ending.message, problems), ending.left)
        return ending

    def _env(self, host: Optional[int]) -> Dict[str, str]:
        volume, given, rank, hosts = self._folders.volume, self._job.env, str(host or 0), str(self._job.hosts)
        env = {"HOME": volume("home"), "TMPDIR": volume("tmp"), "SEATRIAL_FILES": self._folders.files}
        if self._job.hosts > 1:  # for launchers of training jobs, one process per host
            env.update(RANK=rank, NODE_RANK=rank, WORLD_SIZE=hosts)
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:  # a numeric user without an entry, as clusters often use; many libraries need a name
            env.update(USER="seatrial", LOGNAME=given.get("USER", "seatrial"))
        return {**env, **given, "SEATRIAL_HOST": rank, "SEATRIAL_HOSTS": hosts}

    # ---- running

    def _do(self, name: str, argv: List[str], env: Dict[str, str]) -> Ended:
        """Runs a program before the steps: in the log, within the run limit, and cancellable."""
        records = RecordsFile(self._folders.volume(""), self._mask, "environment.jsonl")
        limits = self._job.limits._replace(stall_s=None)  # an installer prints nothing while it downloads
        step = {"name": name, "kind": "command", "timeout_s": None}
        context = step_context(self._job, self._folders, env, self._sandbox)
        ending = self._drive([step], context, records, limits, lambda *_: Prepared(argv))
        records.close()
        self._done = []
        ended = self._runner.ended if self._runner is not None else None
        if ending.outcome != "exited" or ended is None:
            raise JobError(join_messages(ending.message, "while creating its environment (%s)" % name), ending.outcome)
        return ended

    def _drive(
        self, steps: List[Step], context: Context, records: RecordsFile, limits: RunLimits, prepare: Prepare
    ) -> Ending:
        context = context._replace(begun_s=self._begun_s)
        log = self._log.write
        self._runner = Runner(steps, context, records, log, self._sandbox, limits, self._poll, prepare, _POLL_S)
        self._done = self._runner.done
        self._poll()
        if self._cancelled is not None:
            self._cancel(self._cancelled)
        return self._runner.run()

    def _cancel(self, why: str) -> None:
        self._cancelled = self._cancelled or why
        if self._runner is not None:
            self._runner.stop("cancelled", self._cancelled)

    def _poll(self) -> None:
        """Called regularly: checks for cancellation and restores deleted files."""
        if self._cancelled is None and os.path.lexists(self._folders.out(CANCEL)):
            self._cancel("cancelled")
        now_s = time.monotonic()
        if now_s >= self._next_restore_s:
            self._next_restore_s = now_s + RESTORE_S
            self._out.restore(self._records, self._log)
            # A full disk is reported elsewhere.
            with contextlib.suppress(OSError), open(self._folders.out(ALIVE), "w") as file:
                file.write("%d\n" % now_s)


def host_number(hosts: int, env: Dict[str, str], name: str) -> int:
    """Returns this host's number: from Kubernetes, else from the name of the pod."""
    given = next((env[variable] for variable in HOST_VARIABLES if env.get(variable)), None)
    if given is None:
        found = re.search(r"-(\d+)$", name)
        given = found.group(1) if found else ""
    if not given.isdigit() or int(given) >= hosts:
        known = "; ".join("%s is %s" % (variable, env.get(variable) or "not set") for variable in HOST_VARIABLES)
        text = "cannot determine the host number (%d hosts): %s; pod name %s"
        raise JobError(text % (hosts, known, name))
    slices = int(env.get("SEATRIAL_SLICES") or 1)
    return int(env.get("SEATRIAL_SLICE") or 0) * (hosts // slices) + int(given)
