"""`python AGENT run JOB.json`: runs the steps in the foreground, unsupervised, for use inside a container.

JOB.json is as in `job_file.py`. Output of the steps is this program's output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import List, Optional

from ..contain.process import become_subreaper, write_whole
from ..contain.sandbox import Sandbox, oom_file
from ..job_file import JobError, read_file
from ..masking.mask import Mask
from ..run.log import Log
from ..run.measure import hardware
from ..run.records import RecordsFile
from ..run.runner import Runner
from ..steps.kinds import Context, agent_path


class Standard(Log):
    """Written to standard output, where somebody else keeps it."""

    def _open(self) -> Optional[int]:
        return os.dup(1)

    def _next_segment(self) -> None:
        self._room = sys.maxsize

    def restore(self) -> None:
        pass


def main(arguments: List[str]) -> int:
    try:
        job = read_file(arguments[0], os.environ)
        folders = job.in_folders()
    except (JobError, OSError) as error:
        sys.stderr.write("%s is not a job that can be run: %s\n" % (arguments[0], error))
        return 2
    become_subreaper()
    counted = oom_file()
    records = RecordsFile(folders.out, Mask(job.secrets, job.steps))
    context = Context(
        work=folders.work,
        files=folders.files,
        env=job.env,
        python=job.environment.get("interpreter") or sys.executable,
        driver=job.environment.get("driver"),
        agent=agent_path(),
        secrets=job.secrets,
        oom_file=counted,
    )
    records.begin(hardware())
    log = Standard("")
    runner = Runner(job.steps, context, records, log, Sandbox(oom_file=counted), job.limits)
    signal.signal(signal.SIGTERM, lambda number, frame: runner.stop("cancelled", "cancelled"))
    ending = runner.run()
    if job.ending is not None:
        write_whole(job.ending, json.dumps(ending._asdict()).encode())
    else:
        records.last(
            "end",
            outcome=ending.outcome,
            message=ending.message,
            left=ending.left,
            log_bytes=log.total_bytes,
            log_omitted_bytes=0,
        )
    return 0
