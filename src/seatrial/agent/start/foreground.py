"""`python AGENT run JOB.json`: runs the steps in the foreground, unsupervised, for use inside a container.

JOB.json: {"steps": [...], "folder": for records.jsonl, "work": ..., "files": ..., "python": ..., "limits": {...},
"secret_variables": [names], "ending": a file to write the end to, when it is somebody else who records it}.
The environment of the steps is the one that this is started with. Output of the steps is this program's output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Dict, List, Optional

from ..contain.pod_sandbox import oom_file
from ..contain.process import become_subreaper, write_whole
from ..contain.sandbox import Box
from ..masking.mask import Mask
from ..run.ending import Limits
from ..run.hardware import hardware
from ..run.log import Log
from ..run.records import Records
from ..run.runner import Runner
from ..steps.kinds import Context


class Standard(Log):
    """Written to standard output, where somebody else keeps it."""

    def _open(self) -> Optional[int]:
        return os.dup(1)

    def _next_segment(self) -> None:
        self._room = sys.maxsize

    def restore(self) -> None:
        pass


def main(arguments: List[str]) -> int:
    with open(arguments[0]) as file:
        job: Dict[str, Any] = json.load(file)
    secrets = [os.environ[name] for name in job.get("secret_variables") or () if name in os.environ]
    become_subreaper()
    counted = oom_file()
    records = Records(job["folder"], Mask(secrets))
    context = Context(
        work=job["work"],
        files=job["files"],
        env=dict(os.environ),
        python=job.get("python") or sys.executable,
        agent=job.get("agent") or "",
        secrets=secrets,
        oom_file=counted,
    )
    records.begin(hardware())
    log = Standard("")
    runner = Runner(job["steps"], context, records, log, Box(oom_file=counted), Limits.of(job.get("limits")))
    signal.signal(signal.SIGTERM, lambda number, frame: runner.stop("cancelled", "cancelled"))
    ending = runner.run()
    if job.get("ending"):
        write_whole(job["ending"], json.dumps(ending._asdict()).encode())
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
