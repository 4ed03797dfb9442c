"""`times.csv`, and the two files that it is made from, read with what is wrong in them told by its place."""

import csv
import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from seatrial.job import Unreadable
from seatrial.job.reading import read_json
from seatrial.job.runai import SAMPLED_FILE, SUBMITTED_FILE, SampledWorkload, SubmittedWorkload
from seatrial.report.runai.times import MILESTONES, Joined, Row, join_samples, parse_moment

# Beside each field the header that it has; where their tool had two of one name, the first is named otherwise.
INFO = (
    ("Workload Created", "workload_created_timestamp"),
    ("Job Created", "job_created_timestamp"),
    ("First Pod Created", "first_pod_created_timestamp"),
    ("Last Pod Created", "last_pod_created_timestamp"),
    ("Pod Group Created", "pod_group_created_timestamp"),
    ("Pod Scheduling Decided", "pod_scheduling_decision_timestamp"),
    ("First Evicted", "first_eviction_timestamp"),
    ("First PVC Bind Requested", "first_pvc_bind_request_timestamp"),
    ("First PVC Bound", "first_pvc_bind_timestamp"),
    ("Backend Job Created", "backend_job_created_timestamp"),
)
HEADERS = (
    "Job Name", "Namespace", "projectName", *(header for header, _ in INFO), "Workload Submitted",
    *(one.name for one in MILESTONES), "State",
)  # fmt: skip

_T = TypeVar("_T")


class BadFile(Exception):
    """A file that cannot be used; the message says which, why, and what to do."""


def read_folder(folder: Path) -> Joined:
    """Raises BadFile."""
    submitted = _read(folder / SUBMITTED_FILE, SubmittedWorkload, "seatrial scale submit writes it")
    sampled = _read(folder / SAMPLED_FILE, SampledWorkload, "seatrial scale sample writes it")
    try:
        return join_samples(submitted, sampled)
    except Unreadable as error:
        raise BadFile(f"{folder}: {error}") from None


def _read(path: Path, form: type[_T], hint: str) -> list[_T]:
    try:
        return read_json(path, list[form])  # type: ignore[valid-type]
    except FileNotFoundError:
        raise BadFile(f"there is no {path}: {hint}") from None
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}") from None
    except Unreadable as error:
        raise BadFile(f"{path} is not what it should be ({hint}): {error}") from None


def csv_text(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADERS)
    writer.writerows(_cells(row) for row in rows)
    return text.getvalue()


def _cells(row: Row) -> list[str]:
    one = row.submitted
    times = [getattr(row.sampled, field) if row.sampled else None for _, field in INFO]
    deltas = [row.deltas.get(milestone.name) for milestone in MILESTONES]
    return [
        one.job_name, one.job_namespace, one.project_name,
        *(_time(text) for text in (*times, one.submit_timestamp)),
        *("" if delta is None or delta.value is None else seconds_text(delta.value) for delta in deltas),
        row.state,
    ]  # fmt: skip


def _time(text: str | None) -> str:
    """In UTC, as spreadsheets read it; milliseconds where they are known."""
    if not text:
        return ""
    moment = parse_moment(text)
    at = datetime.fromtimestamp(moment.earliest_s, UTC).replace(tzinfo=None)
    return at.isoformat(" ", "milliseconds" if moment.exact else "seconds")


def seconds_text(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if math.isfinite(value) else ""
