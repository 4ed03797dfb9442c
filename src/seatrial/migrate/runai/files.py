"""The files of Run:ai's scale test tool, under the names that their fields have there; what is beside those is ours and
has a default, so that files of either tool are read."""

from datetime import UTC, datetime

import msgspec

SUBMITTED_FILE, SAMPLED_FILE, TIMES_FILE = "submitted.json", "sampled.json", "times.csv"
SUBMISSION_FILE = "submission.json"  # ours: what was begun, written before the first workload is sent
WORKLOAD_TYPES = ("training", "distributed", "interactive")
NAMESPACE_PREFIX = "runai-"
DEFAULT_PROJECT, DEFAULT_FOLDER = "project-0", "logs"


def epoch_seconds(text: str | None) -> float | None:
    """Since the epoch; None for what is no time. Without a zone it is UTC, as all files have it."""
    try:
        at = datetime.fromisoformat(text or "")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class SubmittedWorkload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of `submitted.json`."""

    job_name: str
    project_name: str
    job_namespace: str
    submit_timestamp: str  # before it was sent, by the clock of who sent it
    acknowledged_timestamp: str = ""  # ours: when the server said that it exists, by the same clock
    error: str = ""  # ours: why it does not exist; their tool leaves such a workload out


class SampledWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """One of `sampled.json`. None: it has not happened, or nothing says when."""

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
    sampled_timestamp: str | None = None  # ours: when this was looked at, by the server's clock


class BegunSubmission(msgspec.Struct, frozen=True):
    """What was begun in a folder, so that it can be cleaned up whatever became of who began it."""

    version: int
    run: str  # the value of the label seatrial/run of every workload
    namespace: str
    api_version: str
    kind: str
    count: int
    context: str = ""
