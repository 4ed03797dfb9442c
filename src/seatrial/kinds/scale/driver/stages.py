"""Reads stamps: which workloads reached which stage, and when; and totals of all workloads."""

import contextlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.scale import followed
from seatrial.kinds.scale.followed import CREATED, DECIDED, EVICTED, SCHEDULED, STAGES, UNSCHEDULABLE
from seatrial.kinds.scale.work import Deletion, ScaleSummary, Stamp, Submission

EVENT = "Event"
STAMP_START = b'{"workload"'
MOST_PROBLEMS = 5
_latest = itemgetter(1)  # the later end of a range

_T = TypeVar("_T")


class StageTracker:
    """Tracks which workloads have reached a stage, reading only new lines of the stamps file."""

    def __init__(self, path: Path, stage: str, pods: Mapping[int, int]) -> None:
        self._path, self._stage, self._pods = path, stage, pods
        self._read_bytes = 0
        self._of: dict[int, tuple[set[str], set[str]]] = {}  # objects that reached it, and all that are expected to
        self._there: set[int] = set()

    def look(self) -> set[int]:
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
            self._read_bytes += len(whole) + 1 if whole else 0
            for stamp in decoded(whole.split(b"\n"), Stamp):
                pods = self._pods.get(stamp.workload, 1)
                is_pod = stamp.stage == followed.POD_CREATED and not pods and self._stage in followed.OF_PODS
                if stamp.stage != self._stage and not is_pod:
                    continue
                of, expected = self._of.setdefault(stamp.workload, (set(), set()))
                expected.add(stamp.pod)
                if stamp.stage == self._stage and not stamp.pending:
                    of.add(stamp.pod)
                is_there = len(of) >= _needed(self._stage, expected, pods)
                (self._there.add if is_there else self._there.discard)(stamp.workload)
        return self._there


def read_stamps(path: Path) -> list[Stamp]:
    """Reads all stamps. Raises Unreadable for an unknown stage."""
    stamps = read_records(path, Stamp)
    if unknown := {stamp.stage for stamp in stamps} - {*STAGES}:
        raise Unreadable(f"{path}: unknown stage {min(unknown)[:40]!r}; the file is damaged or from a newer Seatrial")
    return stamps


def read_records(path: Path, form: type[_T]) -> list[_T]:
    """The records of this form in the file; an incomplete last line, left by a writer that was killed, is left out."""
    return list(decoded(whole_lines(path), form))


def whole_lines(path: Path) -> list[bytes]:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().split(b"\n")[:-1]
    return []


def decoded(lines: Iterable[bytes], form: type[_T]) -> Iterator[_T]:
    """Decodes the lines; unreadable ones, and those of another form, are left out."""
    for line in lines:
        with contextlib.suppress(Unreadable):
            yield decode(line, form)


class Reached(msgspec.Struct, frozen=True):
    """When each workload reached each stage: (earliest, latest) by number."""

    times: dict[str, dict[int, tuple[float, float]]]
    failed: set[int]  # workloads with a failed pod
    evicted_by: dict[str, int] = {}  # cause -> number of pods


def reached_stages(submissions: Mapping[int, Submission], stamps: Iterable[Stamp], pods: Mapping[int, int]) -> Reached:
    """When each workload reached each stage: by its last pod, or its first where one is enough."""
    seen: dict[str, dict[int, dict[str, tuple[float, float]]]] = {stage: {} for stage in STAGES}  # by workload and pod
    pending: dict[tuple[int, str], set[str]] = {}  # objects that exist and have not reached the stage
    failed = set()
    evictors: dict[str, str] = {}
    for stamp in stamps:
        if stamp.pending:
            pending.setdefault((stamp.workload, stamp.stage), set()).add(stamp.pod)
            continue
        times = (stamp.at_s if stamp.since_s is None else stamp.since_s, stamp.at_s)
        for stage in (stamp.stage, DECIDED) if stamp.stage in (SCHEDULED, UNSCHEDULABLE) else (stamp.stage,):
            of = seen[stage].setdefault(stamp.workload, {})
            if stamp.pod not in of or times[1] < of[stamp.pod][1]:
                of[stamp.pod] = times
        if stamp.failed:
            failed.add(stamp.workload)
        if stamp.stage == EVICTED and (stamp.kind == EVENT or stamp.pod not in evictors):  # an event has more detail
            evictors[stamp.pod] = stamp.by or "unknown"
    reached: dict[str, dict[int, tuple[float, float]]] = {stage: {} for stage in STAGES}
    for stage, workloads in seen.items():
        for workload, of in workloads.items():
            expected: Set[str] = of.keys()
            count = pods.get(workload, 1)
            if not count and stage in followed.OF_PODS:
                expected |= seen[followed.POD_CREATED].get(workload, {}).keys()
            elif (workload, stage) in pending:
                expected |= pending[workload, stage]
            if len(of) >= (needed := _needed(stage, expected, count)):
                reached[stage][workload] = sorted(of.values(), key=_latest)[needed - 1]
            if stage == followed.POD_CREATED:
                reached[followed.FIRST_POD_CREATED][workload] = min(of.values(), key=_latest)
    for number, one in submissions.items():
        if one.acknowledged_s is not None:
            reached[CREATED][number] = (one.acknowledged_s, one.acknowledged_s)
    return Reached(reached, failed, dict(Counter(evictors.values())))


def _needed(stage: str, expected: Collection[str], pods: int) -> int:
    """How many objects must reach a stage before their workload has. `expected` exist so far; `pods` is 0 if their
    number is not known."""
    if stage in followed.OF_PODS:
        return pods or max(len(expected), 1)
    return len(expected) if stage in followed.OF_ALL else 1


def summary_of(
    count: int,
    submissions: Mapping[int, Submission],
    reached: Reached,
    until: str,
    deletions: Iterable[Deletion],
    lags: Sequence[float] = (),
    **known: Any,
) -> ScaleSummary:
    """Totals of `count` workloads with the goal `until`. `lags` are those of the watch, `known` remaining fields."""
    every, deletions = submissions.values(), list(deletions)
    never_made = {number for number, one in submissions.items() if one.acknowledged_s is None}
    gone = {one.number for one in deletions if not one.problem}
    failed = never_made | (reached.failed & submissions.keys())  # other phases are not measured
    sent = [(one.sent_s, one.of) for one in every if one.sent_s is not None]
    return ScaleSummary(
        count=count,
        submitted=len(submissions) - len(never_made),
        failed=len(failed),
        unfinished=count - len(failed | ({*reached.times[until], *gone} & submissions.keys())),
        refused=sum(len(one.refusals) for one in every),
        problems=sorted({*(one.problem for one in every), *(one.problem for one in deletions)} - {""})[:MOST_PROBLEMS],
        rate=rate_of(sent_s for sent_s, _ in sent),
        offered_rate=rate_of(one.intended_s for one in every),
        late_p99_s=share_of([one.late_s for one in every], 0.99),
        lag_p50_s=share_of(lags, 0.5),
        lag_p99_s=share_of(lags, 0.99),
        lags=len(lags),
        deleted=len(gone),
        not_deleted=len(deletions) - len(gone),
        waited_s=sum(one.waited_s for one in every),
        mix=dict(sorted(Counter(of for _, of in sent).items())),
        **known,
    )


def rate_of(times: Iterable[float]) -> float | None:
    """Events per second from the first to the last; None if that is no time span."""
    found = sorted(times)
    return (len(found) - 1) / (found[-1] - found[0]) if len(found) > 1 and found[-1] > found[0] else None


def share_of(values: Sequence[float], share: float) -> float:
    """The quantile of complete data; 0 without values."""
    return sorted(values)[math.ceil(share * (len(values) - 1))] if values else 0.0
