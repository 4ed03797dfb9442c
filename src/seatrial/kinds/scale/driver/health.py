"""Samples the metrics of the API server and scheduler during a trial, if they can be read, and combines them with the
attempt's records (gaps, lags) into a time series. Also samples queries to Prometheus."""

import asyncio
import contextlib
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.job import Unreadable, decode
from seatrial.kinds.driver import in_background
from seatrial.kinds.scale.driver.stages import STAMP_START, decoded, share_of, whole_lines
from seatrial.kinds.scale.followed import DELETED, POD_CREATED, SCHEDULED, UNSCHEDULABLE
from seatrial.kinds.scale.work import NOT_A_NUMBER, VERBS, Prometheus, QueryResult, Stamp, Submission
from seatrial.kubernetes import Kubernetes, KubernetesError
from seatrial.kubernetes.objects import ApiRequest

_EVERY_S = 5.0
_ANSWER_BYTES, _MOST_TEXT = 1 << 20, 200
_LINE = re.compile(rb"(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(rb'(\w+)="([^"]*)"')
_SIZES = (b"apiserver_storage_size_bytes", b"apiserver_storage_db_total_size_in_bytes", b"etcd_db_total_size_in_bytes")
_WANTED = (
    b"apiserver_request_duration_seconds_bucket", b"apiserver_request_total", b"apiserver_current_inflight_requests",
    b"apiserver_flowcontrol_rejected_requests_total", b"scheduler_pending_pods", *_SIZES,
)  # fmt: skip
_GAUGES = {b"apiserver_current_inflight_requests": "in flight", b"scheduler_pending_pods": "pending"}
_ERRORS = ("refused", "rejected", "blind")  # shown only if there were any


class CounterSample(msgspec.Struct, frozen=True):
    """The server's counters at one time."""

    at_s: float
    latency: dict[str, dict[float, float]]  # verb -> upper end of a bucket -> cumulative requests
    rejected: int
    gauges: dict[str, float]


class ServerHealth:
    def __init__(self) -> None:
        self.samples: list[CounterSample] = []
        self._failed = False

    @contextlib.asynccontextmanager
    async def measured(self, client: Kubernetes) -> AsyncIterator[None]:
        """Samples during the block until the server refuses, and once at its end."""

        async def measure() -> None:
            again = True
            while again:
                again = await self._sample(client)
                await asyncio.sleep(_EVERY_S)

        try:
            async with in_background(measure()):
                yield
        finally:
            if not self._failed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._sample(client), _EVERY_S)

    async def _sample(self, client: Kubernetes) -> bool:
        """Takes a sample; returns whether to continue."""
        try:
            asked = ApiRequest("get", bare_path="/metrics")
            answer = await client.connection.request(asked, retry=False, accept="text/plain")
            sample = await asyncio.to_thread(read_sample, answer.body, time.monotonic())  # megabytes of text
            self.samples.append(sample)
        except KubernetesError as error:
            self._failed = True
            return not error.lasting
        return True


def read_sample(text: bytes, at_s: float) -> CounterSample:
    latency: dict[str, dict[float, float]] = {verb: {} for verb in VERBS}
    gauges, rejected, too_many = dict[str, float](), 0.0, 0.0
    for line in text.split(b"\n"):
        if not line.startswith(_WANTED) or (match := _LINE.match(line)) is None:
            continue
        labels = {key.decode(): value.decode() for key, value in _LABEL.findall(match["labels"])}
        name, value = match["name"], _number(match["value"])
        if name == b"apiserver_request_duration_seconds_bucket":
            buckets, end = latency.get(labels.get("verb", ""), {}), _number(labels.get("le", "+Inf").encode())
            buckets[end] = buckets.get(end, 0.0) + value
        elif name == b"apiserver_request_total":
            too_many += value if labels.get("code") == "429" else 0.0
        elif name == b"apiserver_flowcontrol_rejected_requests_total":
            rejected += value
        elif name in _GAUGES:
            gauges[_GAUGES[name]] = gauges.get(_GAUGES[name], 0.0) + value
        else:
            gauges["size"] = max(gauges.get("size", 0.0), value)
    return CounterSample(at_s, latency, int(max(rejected, too_many)), gauges)


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _p99(now: dict[float, float], before: dict[float, float]) -> float | None:
    """Upper end of the bucket that holds the 99th percentile of requests since `before`; None without requests, or in
    the last, open bucket."""
    counts = sorted((end, value - before.get(end, 0.0)) for end, value in now.items())
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    end = next(end for end, count in counts if count >= 0.99 * total)
    return end if math.isfinite(end) else None


class _PromData(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: Any = None


class _PromAnswer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _PromData | None = None


class PrometheusSampler:
    def __init__(self, asked: Prometheus) -> None:
        self._asked = asked
        self.results = {name: QueryResult(name, [], {}) for name in asked.queries}

    async def sample(self) -> None:
        """Samples until cancelled."""
        start_s = time.monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(max(self._asked.every_s, 1.0))) as session:
            while True:
                at_s = time.monotonic() - start_s
                await asyncio.gather(*(self._ask(session, one, at_s) for one in self.results.values()))
                await asyncio.sleep(self._asked.every_s)

    async def _ask(self, session: aiohttp.ClientSession, result: QueryResult, at_s: float) -> None:
        url, query = f"{self._asked.url.rstrip('/')}/api/v1/query", {"query": self._asked.queries[result.name]}
        try:
            async with session.get(url, params=query) as answer:
                value = prometheus_value(answer.status, await answer.content.read(_ANSWER_BYTES))
            why = "" if math.isfinite(value) else NOT_A_NUMBER if math.isnan(value) else "infinite"
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = str(error)[:_MOST_TEXT] or "no answer in time"
        if why:
            result.problems[why] = result.problems.get(why, 0) + 1
        else:
            result.samples.append((round(at_s, 3), value))


def prometheus_value(status: int, body: bytes) -> float:
    """The number in an answer. Raises ValueError if it is not exactly one. Pure."""
    try:
        answer = decode(body, _PromAnswer)
        data = answer.data or _PromData()
        if answer.status != "success":
            raise ValueError(answer.error or f"HTTP status {status}")
        series = [data.result] if data.result_type == "scalar" else [one["value"] for one in data.result]
        if len(series) != 1:
            raise ValueError(f"{len(series)} series; aggregate them, for example max(…)" if series else "no data")
        return float(series[0][1])
    except (Unreadable, TypeError, LookupError):
        raise ValueError(f"not a result of an instant query (HTTP status {status})") from None


_MOST_POINTS = 120
LEAST_S = 1.0
LEAST_OUTAGE_S = 0.5


class StampsLine(msgspec.Struct, frozen=True):
    """A line of the stamps file that is not a stamp."""

    at_s: float
    canary: str = ""
    loop_s: float | None = None
    gap_s: float | None = None


def read_lines(path: Path) -> list[StampsLine]:
    return list(decoded((line for line in whole_lines(path) if not line.startswith(STAMP_START)), StampsLine))


def gaps(lines: Iterable[StampsLine]) -> tuple[int, float]:
    """Number and total duration of gaps in the watch."""
    found = [line.at_s - line.gap_s for line in lines if line.gap_s is not None]
    return len(found), sum(found)


def outages_of(attempts: Iterable[RequestAttempt], start_s: float, end_s: float) -> list[tuple[float, float]]:
    """When the API server gave no answer to any of these requests. Shorter times are single broken connections."""
    found, since_s = [], math.inf
    for one in (*attempts, RequestAttempt(end_s, answered_s=end_s)):
        if one.problem:
            since_s = min(since_s, one.sent_s or one.queued_s)
        elif one.answered_s is not None:  # else it still waits
            found.append((max(since_s, start_s), min(one.answered_s, end_s)))
            since_s = math.inf
    return [(from_s, until_s) for from_s, until_s in found if until_s - from_s >= LEAST_OUTAGE_S]


def longest_idle(
    stamps: Iterable[Stamp], workloads: Collection[int], outages: Iterable[tuple[float, float]], end_s: float
) -> tuple[float, int]:
    """The longest time without a scheduling decision, outside of outages, while pods of these workloads waited for one,
    and how many did."""
    out = [Stamp(-1, "", SCHEDULED, until_s, from_s) for from_s, until_s in outages]
    waiting, since_s, longest = set[str](), 0.0, (0.0, 0)
    for stamp in sorted([*stamps, *out, Stamp(-1, "", SCHEDULED, end_s)], key=lambda one: one.at_s):
        if stamp.stage == POD_CREATED and stamp.workload in workloads:
            since_s = since_s if waiting else stamp.at_s
            waiting.add(stamp.pod)
        elif stamp.stage in (SCHEDULED, UNSCHEDULABLE, DELETED):
            before_s = stamp.at_s if stamp.since_s is None else stamp.since_s  # a gap of the watch may hide decisions
            longest = max(longest, (before_s - since_s, len(waiting))) if waiting else longest
            since_s = since_s if stamp.stage == DELETED else stamp.at_s
            waiting.discard(stamp.pod)
    return longest


def health_columns(
    submissions: Mapping[int, Submission],
    lags: Sequence[tuple[float, float]],
    lines: Sequence[StampsLine],
    samples: Sequence[CounterSample],
    end_s: float,
) -> dict[str, list[float | None]]:
    """All series on one time axis. `lags` are (time, lag)."""
    start_s = min((one.intended_s for one in submissions.values()), default=end_s)
    width_s = max(LEAST_S, (end_s - start_s) / _MOST_POINTS)
    count = max(1, int((end_s - start_s) / width_s) + 1)

    def place(at_s: float) -> int:
        return min(max(int((at_s - start_s) / width_s), 0), count - 1)

    took, lag, loop = (defaultdict[int, list[float]](list) for _ in range(3))  # by interval
    offered, acknowledged, refused = Counter[int](), Counter[int](), Counter[int]()
    for one in submissions.values():
        offered[place(one.intended_s)] += 1
        refused[place(one.acknowledged_s or one.intended_s)] += len(one.refusals)
        if one.acknowledged_s is not None:
            acknowledged[place(one.acknowledged_s)] += 1
            if one.sent_s is not None:
                took[place(one.acknowledged_s)].append(one.acknowledged_s - one.sent_s - one.paused_s)
    for at_s, late_s in lags:
        lag[place(at_s)].append(late_s)
    blind = set[int]()
    for line in lines:
        if line.loop_s is not None:
            loop[place(line.at_s)].append(line.loop_s)
        if line.gap_s is not None:
            blind |= {*range(place(line.gap_s), place(line.at_s) + 1)}
    sampled = defaultdict[str, dict[int, float]](dict)
    for before, now in zip([None, *samples], samples, strict=False):  # the last sample of an interval counts
        counted = dict(now.gauges)
        if before is not None and before.rejected <= now.rejected:  # else the server was restarted
            counted["rejected"] = now.rejected - before.rejected
            latency = {f"{verb} p99": _p99(now.latency[verb], before.latency[verb]) for verb in VERBS}
            counted |= {name: value for name, value in latency.items() if value is not None}
        for name, value in counted.items():
            sampled[name][place(now.at_s)] = value
    by_place: dict[str, Mapping[int, float]] = {
        "create p99": {at: share_of(times, 0.99) for at, times in took.items()},
        "watch lag": {at: max(times) for at, times in lag.items()},
        "own loop lag": {at: max(times) for at, times in loop.items()},
        **sampled,
    }
    columns: dict[str, list[float | None]] = {
        "seconds": [round(at * width_s, 3) for at in range(count)],
        "offered": [offered[at] for at in range(count)],
        "acknowledged": [acknowledged[at] for at in range(count)],
        "refused": [refused[at] for at in range(count)],
        "blind": [int(at in blind) for at in range(count)],
        **{name: [values.get(at) for at in range(count)] for name, values in by_place.items() if values},
    }
    return {name: values for name, values in columns.items() if name not in _ERRORS or any(values)}
