"""Computes the durations between events of each workload from `submitted.json` and `sampled.json`. Pure.

1. A timestamp of whole seconds is a range, so differences are known to a second, and their quantiles are bounds. Whole
   seconds are subtracted, as in Run:ai's tool.
2. Every submitted workload is included. An event that has not happened lasts at least until the last sample.
3. A row is one workload with all of its times."""

import csv
import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from seatrial import SeatrialError
from seatrial.job import Unreadable
from seatrial.job.reading import read_json
from seatrial.migrate.runai.files import SAMPLED_FILE, SUBMITTED_FILE, SampledWorkload, SubmittedWorkload, epoch_seconds
from seatrial.stats.censored import quantiles

_SHARES = (0.5, 0.9, 0.99)
ALL_SAMPLED_FILE = "sampled-all.json"  # also incomplete workloads
SUBMISSION = "Workload Submission"
_MOST_S = 4e9  # in the year 2096
DONE, UNFINISHED, NOT_SEEN, REFUSED, ERROR = "done", "unfinished", "not sampled", "refused", "erroneous times"


class TimeRange(msgspec.Struct, frozen=True):
    """A time between the two, in seconds since the epoch."""

    earliest_s: float
    latest_s: float

    @property
    def exact(self) -> bool:
        return self.earliest_s == self.latest_s


class Milestone(msgspec.Struct, frozen=True):
    """An event, and the event it is measured from."""

    name: str
    reference: str
    field: str  # field of a sampled workload
    header: str = ""  # column of its time
    filled: str = ""  # field that Run:ai's tool writes if the event did not happen; only for optional events


_DECIDED = "pod_scheduling_decision_timestamp"
_REST = (
    Milestone("Workload Creation", SUBMISSION, "workload_created_timestamp", "Workload Created"),
    Milestone("Job Creation", "Workload Creation", "job_created_timestamp", "Job Created"),
    Milestone("First Pod Creation", "Job Creation", "first_pod_created_timestamp", "First Pod Created"),
    Milestone("Last Pod Creation", "Job Creation", "last_pod_created_timestamp", "Last Pod Created"),
    Milestone("Pod Group Creation", "First Pod Creation", "pod_group_created_timestamp", "Pod Group Created"),
    Milestone("Pod Scheduling Decision", "Pod Group Creation", _DECIDED, "Pod Scheduling Decision"),
    Milestone("First Eviction", "Pod Group Creation", "first_eviction_timestamp", "First Evicted", _DECIDED),
    Milestone("First PVC Bind Request", "Pod Group Creation", "first_pvc_bind_request_timestamp",
              "First PVC Bind Requested", _DECIDED),
    Milestone("First PVC Bind", "First PVC Bind Request", "first_pvc_bind_timestamp", "First PVC Bound", _DECIDED),
    Milestone("Backend Job Creation", "Pod Group Creation", "backend_job_created_timestamp", "Backend Job Created",
              "workload_created_timestamp"),
)  # fmt: skip
TOTALS = (
    Milestone("Total Pod Scheduling Decision", SUBMISSION, _DECIDED),
    replace(_REST[-1], name="Total Backend Job Creation", reference=SUBMISSION),
)
MILESTONES = (*_REST, *TOTALS)  # in the order of Run:ai's table


class Delta(msgspec.Struct, frozen=True):
    """In seconds. `value` is None if the event has not happened; `lower` is then the time waited so far."""

    value: float | None
    lower: float
    upper: float | None


class Row(msgspec.Struct, frozen=True):
    """One workload. A delta is missing if the event does not apply, or if the time of the event before is unknown."""

    submitted: SubmittedWorkload
    sampled: SampledWorkload | None
    submitted_s: float
    deltas: dict[str, Delta]
    state: str

    @property
    def name(self) -> str:
        return self.submitted.job_name


class Joined(msgspec.Struct, frozen=True):
    rows: list[Row]  # by time of submission
    strangers: list[str]  # sampled but not in submitted.json


def compatible(sampled: Sequence[SampledWorkload]) -> list[SampledWorkload]:
    """As Run:ai's tool writes them: only complete workloads, another event's time for an optional one that did not
    happen, and none of our fields."""
    some = [one for one in _REST if one.filled]
    ours = {"pod_scheduling_decision": None, "sampled_timestamp": None}
    return [
        replace(one, **{to.field: getattr(one, to.field) or getattr(one, to.filled) for to in some}, **ours)
        for one in sampled
        if all(getattr(one, needed.field) for needed in _REST if not needed.filled)
    ]


def compatible_entries(sampled: Sequence[SampledWorkload]) -> list[dict[str, str]]:
    """The content of `sampled.json` for Run:ai's tool, which cannot read null."""
    entries = msgspec.to_builtins(compatible(sampled))
    return [{name: value for name, value in entry.items() if value is not None} for entry in entries]


def parse_moment(text: str, workload: str) -> TimeRange:
    """Raises Unreadable with the name of the workload."""
    at_s = epoch_seconds(text.strip())
    if at_s is None or not 0 <= at_s < _MOST_S:
        raise Unreadable(f"workload {workload[:80]!r}: invalid time {text[:60]!r}; use 2024-09-08T13:40:34Z")
    return TimeRange(at_s, at_s if "." in text or "," in text else at_s + 1.0)


def join_samples(submitted: Sequence[SubmittedWorkload], sampled: Sequence[SampledWorkload]) -> Joined:
    """Raises Unreadable with the name of a workload."""
    # Time of the last sample; for files without it, the latest of all times.
    fields = {one.field for one in MILESTONES}
    times = [(one.sampled_timestamp, one.job_name) for one in sampled if one.sampled_timestamp] or [
        *((one.submit_timestamp, one.job_name) for one in submitted),
        *((text, one.job_name) for one in sampled for field in fields if (text := getattr(one, field))),
    ]
    looked_s = max((parse_moment(*time).latest_s for time in times), default=0.0)
    found = {(one.job_name, one.project_name): one for one in sampled}
    rows = [_row(one, found.pop((one.job_name, one.project_name), None), looked_s) for one in submitted]
    return Joined(sorted(rows, key=lambda row: (row.submitted_s, row.name)), [name for name, _ in found])


def _row(submitted: SubmittedWorkload, sampled: SampledWorkload | None, looked_s: float) -> Row:
    sent = parse_moment(submitted.submit_timestamp, submitted.job_name)
    if sampled and sampled.sampled_timestamp is None:
        # Run:ai's tool writes another event's time if there is none; ours leaves the time empty.
        some = [one for one in _REST if one.filled]
        filled = [one.field for one in some if getattr(sampled, one.field) == getattr(sampled, one.filled)]
        sampled = replace(sampled, **dict.fromkeys(filled))
    moments: dict[str, TimeRange | None] = {SUBMISSION: sent}
    for one in _REST:
        text = getattr(sampled, one.field, None)
        moments[one.name] = parse_moment(text, submitted.job_name) if text else None
    deltas = {}
    for one in () if submitted.error else MILESTONES:
        at = moments[one.name.removeprefix("Total ")]
        since = moments[one.reference]
        if (at is None and not one.filled) or (at is not None and since is not None):
            deltas[one.name] = _delta(since, at, looked_s)
    pod, group = moments["First Pod Creation"], moments["Pod Group Creation"]
    if submitted.error:
        state = REFUSED
    elif sampled is None:
        state = NOT_SEEN
    elif (pod and group and group.latest_s <= pod.earliest_s) or (deltas[TOTALS[0].name].value or 0.0) < 0:
        state = ERROR
    else:
        state = UNFINISHED if any(one.value is None for one in deltas.values()) else DONE
    return Row(submitted, sampled, sent.earliest_s, deltas, state)


def _delta(since: TimeRange | None, at: TimeRange | None, looked_s: float) -> Delta:
    if since is None:
        return Delta(None, 0.0, None)
    if at is None:
        return Delta(None, max(looked_s - since.latest_s, 0.0), None)
    if since.exact and at.exact:
        exact_s = at.earliest_s - since.earliest_s
        return Delta(exact_s, max(exact_s, 0.0), max(exact_s, 0.0))
    value = math.floor(at.earliest_s) - math.floor(since.earliest_s)
    upper = at.latest_s - since.earliest_s
    return Delta(0.0 if value == -1 else float(value), max(at.earliest_s - since.latest_s, 0.0), max(upper, 0.0))


class MilestoneMetrics(msgspec.Struct, frozen=True):
    """One milestone over many workloads. A quantile lies between two bounds; None: above the first."""

    count: int
    unfinished: int
    average: float | None  # over events that happened
    quantiles: list[tuple[float, float, float | None]]  # share, lower, upper


def metrics_of(rows: Sequence[Row], milestone: str) -> MilestoneMetrics:
    deltas = [row.deltas[milestone] for row in rows if milestone in row.deltas]
    happened = [one.value is not None for one in deltas]
    values = [one.value for one in deltas if one.value is not None]
    lowers = [one.lower for one in deltas]
    uppers = [one.lower if one.upper is None else one.upper for one in deltas]
    longest = max(lowers, default=0.0)
    bounds = [
        (low.share, longest if low.value is None else low.value, high.value)
        for low, high in zip(quantiles(lowers, happened, _SHARES), quantiles(uppers, happened, _SHARES), strict=True)
    ]
    average = math.fsum(values) / len(values) if values else None
    return MilestoneMetrics(len(deltas), happened.count(False), average, bounds)


# Run:ai's columns in its order, two of them with one name; then ours.
HEADERS = (
    "Job Name", "Namespace", "projectName", *(one.header for one in _REST[:6]), "Workload Submitted", _REST[-1].header,
    *(one.name for one in MILESTONES), *(one.header for one in _REST[6:-1]), "State",
)  # fmt: skip

_T = TypeVar("_T")


def read_folder(folder: Path) -> Joined:
    """Reads the two files behind `times.csv`. Raises SeatrialError with the position of the problem."""
    submitted = _read(folder / SUBMITTED_FILE, SubmittedWorkload, "`seatrial scale submit` creates it")
    sampled = _read(folder / SAMPLED_FILE, SampledWorkload, "`seatrial scale sample` creates it")
    if (folder / ALL_SAMPLED_FILE).exists():
        every = _read(folder / ALL_SAMPLED_FILE, SampledWorkload, "`seatrial scale sample` creates it")
        sampled = every if compatible(every) == sampled else sampled  # else it is from another sample
    try:
        return join_samples(submitted, sampled)
    except Unreadable as error:
        raise SeatrialError(f"{folder}: {error}") from None


def _read(path: Path, form: type[_T], hint: str) -> list[_T]:
    try:
        return read_json(path, list[form])  # type: ignore[valid-type]
    except FileNotFoundError:
        raise SeatrialError(f"{path} not found; {hint}") from None
    except OSError as error:
        raise SeatrialError(f"cannot read {path}: {error.strerror}") from None
    except Unreadable as error:
        raise SeatrialError(f"cannot read {path} ({hint}): {error}") from None


def csv_text(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADERS)
    for row in rows:
        one = row.submitted
        known = [getattr(row.sampled, milestone.field, None) for milestone in _REST]
        times = [_time(text, row.name) if text else "" for text in known]
        deltas = [row.deltas.get(milestone.name) for milestone in MILESTONES]
        writer.writerow([
            one.job_name, one.job_namespace, one.project_name,
            *times[:6], _time(one.submit_timestamp, row.name), times[-1],
            *("" if delta is None or delta.value is None else seconds_text(delta.value) for delta in deltas),
            *times[6:-1], row.state,
        ])  # fmt: skip
    return text.getvalue()


def _time(text: str, workload: str) -> str:
    """In UTC, in a format that spreadsheets read, with milliseconds if known."""
    moment = parse_moment(text, workload)
    at = datetime.fromtimestamp(moment.earliest_s, UTC).replace(tzinfo=None)
    return at.isoformat(" ", "milliseconds" if moment.exact else "seconds")


def seconds_text(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if math.isfinite(value) else ""
