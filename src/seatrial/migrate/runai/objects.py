"""What of Run:ai's objects is read, and by which label each belongs to a workload."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from seatrial.kubernetes import Meta, Object, ObjectPart
from seatrial.migrate.runai.files import RunaiError

WORKLOAD_API = "run.ai/v2alpha1"
WORKLOAD_KINDS = {
    "training": "TrainingWorkload",
    "interactive": "InteractiveWorkload",
    "distributed": "DistributedWorkload",
}
JOB_KINDS = {
    "training": ("run.ai/v1", "RunaiJob"),
    "interactive": ("run.ai/v1", "RunaiJob"),
    "distributed": ("kubeflow.org/v1", "PyTorchJob"),
}
POD_GROUP_KINDS = (("scheduling.run.ai/v2alpha2", "PodGroup"), ("scheduling.run.ai/v1", "PodGroup"))  # the newer first
POD_LABELS = ("release", "job-name", "training.kubeflow.org/job-name")
POD_GROUP_LABELS = ("release", "workloadName")

_EVENT_NAME = re.compile(r"\.([0-9a-f]{14,16})$")
_NAME_AGREES_S = 2.0  # the name of an event is of the instant that its first time is of


class Value(ObjectPart, frozen=True):
    value: Any = None


class WorkloadSpec(ObjectPart, frozen=True):
    name: Value | None = None


class WorkloadObject(Object, frozen=True):
    spec: WorkloadSpec | None = None

    @property
    def job_name(self) -> str:
        """The name of its job; that of the object itself may have a date after it."""
        named = self.spec.name.value if self.spec and self.spec.name else None
        return named if isinstance(named, str) and named else self.metadata.name


class Condition(ObjectPart, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class _PodStatus(ObjectPart, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class WorkloadPod(Object, frozen=True):
    status: _PodStatus | None = None

    @property
    def decision(self) -> Condition | None:
        """That it was placed, or that the scheduler said why not."""
        for one in (self.status.conditions or ()) if self.status else ():
            if one.type == "PodScheduled" and (one.status == "True" or one.reason):
                return one
        return None


class EventMeta(Meta, frozen=True):
    annotations: dict[str, str] | None = None


class Involved(ObjectPart, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class Happened(Object, frozen=True):
    """An event."""

    metadata: EventMeta = EventMeta()
    reason: str = ""
    message: str | None = None
    first_timestamp: str | None = None
    event_time: str | None = None
    involved_object: Involved = msgspec.field(default_factory=Involved)

    @property
    def at(self) -> str | None:
        """As exactly as it is known: its own time has microseconds, its name nanoseconds, its first time seconds."""
        if self.event_time:
            return self.event_time
        first_s = epoch_seconds(self.first_timestamp)
        named = _EVENT_NAME.search(self.metadata.name)
        if named and first_s is not None:
            at_s = int(named[1], 16) / 1e9
            if first_s - _NAME_AGREES_S <= at_s <= first_s + _NAME_AGREES_S:
                return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")
        return self.first_timestamp


def owner_by(labels: dict[str, str], keys: tuple[str, ...]) -> str:
    """The workload that one of these labels names; empty for a foreign object."""
    return next((labels[key] for key in keys if labels.get(key)), "")


def names_within(name: str) -> Iterator[str]:
    """All names that this one may be made of: `pvc-new-0-j-1a2b3c` has `j-1a2b3c` in it. The longest first."""
    parts = name.split("-")
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            yield "-".join(parts[start : start + length])


def epoch_seconds(text: str | None) -> float | None:
    """Since the epoch; None for what is no time."""
    try:
        at = datetime.fromisoformat(text or "")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


_ASKED = """
    SELECT name, min(time_created) FROM jobs
    WHERE project = %(project)s AND exists_in_cluster = 'true' AND (kind = 'RunaiJob') = %(runai_job)s
      AND (%(cluster)s::text IS NULL OR cluster_uuid::text = %(cluster)s) GROUP BY name
"""
_CONNECT_S = 10
_URL = re.compile(r"postgres(ql)?://([^:@/]*@)?[^@]*")  # of one with a password, a part may be taken for a host
_FORM = "the form of its URL is postgresql://USER@HOST:PORT/DATABASE"


def backend_times(url: str, project: str, workload_type: str, cluster: str | None) -> dict[str, str]:
    """When the control plane of Run:ai knew of each job, from its database: by the name of the job, in milliseconds.
    `cluster` is the uuid of one of several. Raises RunaiError."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise RunaiError("the driver psycopg is not installed: pip install 'seatrial[postgres]'") from None
    try:
        parameters = conninfo_to_dict(url, connect_timeout=_CONNECT_S, application_name="seatrial")
    except psycopg.Error:  # its text quotes what it could not read, which may be a password
        parameters = {}
    if not parameters or not _URL.fullmatch(url):
        raise RunaiError(f"{_FORM}, and the password that of PGPASSWORD or ~/.pgpass")
    asked = {"project": project, "runai_job": workload_type != "distributed", "cluster": cluster}
    try:
        with psycopg.connect(**parameters) as connection:  # type: ignore[arg-type]
            rows = connection.execute(_ASKED, asked).fetchall()
            return {str(name): _moment(float(made_ms)) for name, made_ms in rows}
    except (psycopg.Error, TypeError, ValueError, OverflowError) as error:
        raise RunaiError(" ".join(str(error).split())) from None


def _moment(made_ms: float) -> str:
    return datetime.fromtimestamp(made_ms / 1000, UTC).isoformat(timespec="milliseconds")
