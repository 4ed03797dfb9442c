"""The files of Run:ai's scale test tool, with its field names. Our additional fields have defaults, so that files of
both tools can be read."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

SUBMITTED_FILE, SAMPLED_FILE, TIMES_FILE = "submitted.json", "sampled.json", "times.csv"
SUBMISSION_FILE = "submission.json"  # ours: written before the first workload is sent
WORKLOAD_TYPES = ("training", "distributed", "interactive")
NAMESPACE_PREFIX = "runai-"
DEFAULT_PROJECT, DEFAULT_FOLDER = "project-0", "logs"


def write_file(path: Path, data: object) -> None:
    from seatrial.record import write_whole

    write_whole(path, msgspec.json.format(msgspec.json.encode(data), indent=4) + b"\n")


def epoch_seconds(text: str | None) -> float | None:
    """Seconds since the epoch; None for an invalid time. Times without a zone are UTC, as in all files."""
    try:
        at = datetime.fromisoformat(text or "")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class SubmittedWorkload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry of `submitted.json`."""

    job_name: str
    project_name: str
    job_namespace: str
    submit_timestamp: str  # before the send, by the sender's clock
    acknowledged_timestamp: str = ""  # ours: when the server acknowledged it, by the same clock
    error: str = ""  # ours: why it was not created; Run:ai's tool leaves such workloads out


class SampledWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `sampled.json` or `sampled-all.json`. None: not happened, or the time is unknown."""

    job_name: str
    job_namespace: str
    project_name: str
    workload_created_timestamp: str | None = None
    job_created_timestamp: str | None = None
    first_pod_created_timestamp: str | None = None
    last_pod_created_timestamp: str | None = None
    pod_group_created_timestamp: str | None = None
    pod_scheduling_decision_timestamp: str | None = None
    first_eviction_timestamp: str | None = None
    first_pvc_bind_request_timestamp: str | None = msgspec.field(default=None, name="firstPVCBindRequestTimestamp")
    first_pvc_bind_timestamp: str | None = msgspec.field(default=None, name="firstPVCBindTimestamp")
    backend_job_created_timestamp: str | None = None
    pod_scheduling_decision: str | None = None  # ours: scheduled or unschedulable
    sampled_timestamp: str | None = None  # ours: time of the sample, by the server's clock


class BegunSubmission(msgspec.Struct, frozen=True):
    """A submission in a folder, recorded so that it can be cleaned up even after a kill."""

    version: int
    run: str  # value of the label seatrial/run on every workload
    namespace: str
    api_version: str
    kind: str
    count: int
    context: str = ""
