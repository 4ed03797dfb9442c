"""The annotation of a root object that describes its job, so that any process that finds it can take the job up."""

from typing import Any

import msgspec

from seatrial.job import Job, Unreadable, decode
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.run_object import Annotated
from seatrial.target.kubernetes.watch.jobs import TrackedPod
from seatrial.target.kubernetes.watch.objects import KILLED
from seatrial.target.protocol import DamagedJob

MOST_NAMES_BYTES = 64 << 10  # of the names of steps; all annotations of an object together may have 256 KiB


class JobAnnotation(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str  # of the neutral job
    run: str
    labels: dict[str, str] = {}
    hosts: int = 1
    grace_s: float = 10.0
    steps: tuple[str, ...] = ()  # their names; none when they are too long
    runs: int = 0  # how many steps there are, when all are plain commands; then the exit code says how they ended
    ports: dict[str, int] = {}  # the number of each by its name
    limited: bool = False  # its waiting for a place has a limit

    @classmethod
    def of(cls, job: Job) -> "JobAnnotation":
        steps = tuple(step.name for step in job.steps)
        if sum(len(name.encode()) for name in steps) > MOST_NAMES_BYTES:
            steps = ()
        plain = all(step.kind == "run" for step in job.steps)
        runs = len(job.steps) if plain else 0
        ports = {port.name: port.number for port in job.ports}
        limited = job.limits.queue_s is not None
        return cls(job.name, job.run, job.labels, job.hosts, job.limits.grace_s, steps, runs, ports, limited)

    @classmethod
    def read(cls, found: Annotated) -> "JobAnnotation":
        try:
            return decode(found.metadata.annotations[names.JOB_DATA], cls)
        except (LookupError, Unreadable) as error:
            name = f"{found.metadata.namespace}/{found.metadata.name}"
            raise DamagedJob(f"{name} carries Seatrial's labels, but does not say which job it is: {error}") from None

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def records(self, pod: TrackedPod) -> list[dict[str, Any]]:
        """The agent's records as far as the status of its container has them: how each step ended, not its output.
        Empty when it has none."""
        ends = pod.step_ends
        own = pod.exit_code is not None and 0 <= pod.exit_code < KILLED  # beyond, it was killed
        if not ends and own and (pod.exit_code == 0 or self.runs == 1):
            ends = (("exited", pod.exit_code),) * self.runs
        lines: list[dict[str, Any]] = []
        for number, (outcome, code) in enumerate(ends):
            note = {"note": "unseen", "text": "known from the status of its container alone: its files were gone"}
            lines.append({"event": "step", "step": number, "at_s": 0.0})
            lines.append({"event": "note", "step": number, "at_s": 0.0, "data": note})
            lines.append({"event": "done", "step": number, "at_s": 0.0, "outcome": outcome, "code": code})
        return lines
