"""Reads scheduling times from the API server's audit log, in microseconds.

Submissions align its clock with ours: the server received each after our send and before its answer arrived. Thousands
of them leave less than a round trip. Level `Metadata` for pods, bindings and workloads is enough; times that are not in
the log come from the watch."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.scale.driver.stages import Reached, share_of
from seatrial.kinds.scale.followed import SCHEDULED
from seatrial.kinds.scale.work import AuditMetrics, Submission


class _Ref(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    name: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    stage: str = ""
    verb: str = ""
    object_ref: _Ref | None = None
    response_status: _Answer = _Answer()
    request_uri: str = msgspec.field(default="", name="requestURI")
    request_received_timestamp: str = ""
    stage_timestamp: str = ""


class Audited(msgspec.Struct, frozen=True):
    """`offset_s` is the log's clock minus our monotonic clock, ± `within_s`."""

    bound: dict[int, list[float]]  # when the pods of each workload were bound, by our clock
    offset_s: float
    within_s: float
    requests: int


def read_audit(path: Path, prefix: str, submissions: Mapping[int, Submission]) -> Audited:
    """Raises ValueError if the log cannot be used."""
    low_s, high_s, requests = float("-inf"), float("inf"), 0
    bound: dict[str, float] = {}
    for line in _lines(path, prefix):
        ref, name = line.object_ref, line.object_ref.name if line.object_ref else ""
        if ref is None or line.verb != "create" or "dryRun=" in line.request_uri:  # the dry run before the first
            continue
        received_s, done_s = _seconds(line.request_received_timestamp), _seconds(line.stage_timestamp)
        number = name.removeprefix(f"{prefix}-")
        requests += 1
        if ref.resource == "pods" and ref.subresource == "binding":
            bound[name] = min(bound.get(name, done_s), done_s)
            continue
        one = submissions.get(int(number)) if number.isdecimal() and not ref.subresource else None
        if one is not None and one.sent_s is not None and one.acknowledged_s is not None:
            low_s, high_s = max(low_s, received_s - one.acknowledged_s), min(high_s, received_s - one.sent_s)
    if requests == 0:
        advice = "check that it is this API server's log and covers their kind and pods"
        raise ValueError(f"{path} has no requests for these workloads; {advice}")
    if low_s > high_s or high_s == float("inf"):
        why = "the clock was adjusted during the trial, or the log is from several servers"
        raise ValueError(f"cannot align the clock of {path}: {why}")
    offset_s = (low_s + high_s) / 2
    of: dict[int, list[float]] = {}
    for name, at_s in bound.items():
        number = name.removeprefix(f"{prefix}-").partition("-")[0]  # a pod's name begins with its workload's
        if number.isdecimal():
            of.setdefault(int(number), []).append(at_s - offset_s)
    return Audited(of, offset_s, (high_s - low_s) / 2, requests)


def _lines(path: Path, prefix: str) -> Iterator[_Line]:
    """Lines that name a workload, including those of rotated files."""
    wanted = f'"{prefix}-'.encode()
    try:
        for file in [*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path]:
            with open(file, "rb") as log:
                for line in log:
                    if wanted in line:
                        with contextlib.suppress(Unreadable):  # the last line may be incomplete
                            found = decode(line, _Line)
                            if found.stage == "ResponseComplete" and found.response_status.code // 100 == 2:
                                yield found
    except OSError as error:
        raise ValueError(f"cannot read the audit log {path}: {error.strerror}") from None


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(f"invalid time {text!r} in the audit log") from None


def use_audit(
    path: Path, prefix: str, submissions: Mapping[int, Submission], reached: Reached, pods: Mapping[int, int]
) -> tuple[Reached, AuditMetrics]:
    """Replaces scheduling times by those of the log, for workloads whose pods are all in it, and measures how far the
    watch differs. If the log cannot be used, returns the times unchanged with the reason."""
    try:
        audited = read_audit(path, prefix, submissions)
    except ValueError as error:
        return reached, AuditMetrics(problem=str(error))
    bound = [(number, sorted(times), pods.get(number, 1)) for number, times in audited.bound.items()]
    exact = {number: times[needed - 1] for number, times, needed in bound if len(times) >= needed}
    watched = reached.times[SCHEDULED]
    both = [number for number in exact if number in watched and number in submissions]
    by_watch = [watched[number][1] - submissions[number].intended_s for number in both]
    by_log = [exact[number] - submissions[number].intended_s for number in both]
    p50_s, p99_s = (share_of(by_watch, one) - share_of(by_log, one) if both else None for one in (0.5, 0.99))
    metrics = AuditMetrics(audited.requests, audited.within_s, len(exact), p50_s, p99_s)
    scheduled = {**watched, **{number: (at_s, at_s) for number, at_s in exact.items()}}
    return msgspec.structs.replace(reached, times={**reached.times, SCHEDULED: scheduled}), metrics
