"""The control plane's own metrics during a trial, where they may be read: of the API server, and of the scheduler where
that answers through it."""

import asyncio
import contextlib
import math
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from seatrial.drive.driver import in_background
from seatrial.kubernetes import Kubernetes, KubernetesError
from seatrial.kubernetes.resources import ApiRequest

_EVERY_S = 5.0
_LINE = re.compile(rb"(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")
_LABEL = re.compile(rb'(\w+)="([^"]*)"')
_SIZES = (b"apiserver_storage_size_bytes", b"apiserver_storage_db_total_size_in_bytes", b"etcd_db_total_size_in_bytes")
_WANTED = (
    b"apiserver_request_duration_seconds_bucket", b"apiserver_request_total", b"apiserver_current_inflight_requests",
    b"apiserver_flowcontrol_rejected_requests_total", b"scheduler_pending_pods", *_SIZES,
)  # fmt: skip
VERBS = ("POST", "GET", "LIST", "PATCH", "PUT", "DELETE")
TOO_MANY = "429"


class CounterSample(msgspec.Struct, frozen=True):
    """Counters since the server began, at one time."""

    at_s: float
    latency: dict[str, dict[float, float]]  # verb -> upper end of a bucket -> requests up to it
    rejected: int
    in_flight: int
    etcd_bytes: int | None
    queue: int | None


class ServerHealth:
    def __init__(self) -> None:
        self.samples: list[CounterSample] = []
        self.problem = ""  # why there are none


@contextlib.asynccontextmanager
async def measured_health(client: Kubernetes) -> AsyncIterator[ServerHealth]:
    """Sampled while the block is open, until the server refuses, and once at its end."""
    health = ServerHealth()
    try:
        async with in_background(_measure(client, health)):
            yield health
    finally:
        if not health.problem:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(_sample(client, health), _EVERY_S)


async def _measure(client: Kubernetes, health: ServerHealth) -> None:
    again = True
    while again:
        again = await _sample(client, health)
        await asyncio.sleep(_EVERY_S)


async def _sample(client: Kubernetes, health: ServerHealth) -> bool:
    """Whether there is a point in asking again."""
    try:
        asked = ApiRequest("get", bare_path="/metrics")
        answer = await client.connection.request(asked, retry=False, accept="text/plain")
        sample = await asyncio.to_thread(read_sample, answer.body, time.monotonic())  # it is megabytes of text
        health.samples.append(sample)
    except KubernetesError as error:
        health.problem = health.problem or str(error)
        return not error.lasting
    return True


def read_sample(text: bytes, at_s: float) -> CounterSample:
    latency: dict[str, dict[float, float]] = {}
    rejected, too_many, in_flight, queue = 0.0, 0.0, 0.0, None
    sizes: list[float] = []
    for line in text.split(b"\n"):
        if not line.startswith(_WANTED) or (match := _LINE.match(line)) is None:
            continue
        labels = {key.decode(): value.decode() for key, value in _LABEL.findall(match["labels"])}
        name, value = match["name"], _number(match["value"])
        if name == b"apiserver_request_duration_seconds_bucket":
            verb = labels.get("verb", "")
            if verb in VERBS:
                buckets = latency.setdefault(verb, {})
                end = _number(labels.get("le", "+Inf").encode())
                buckets[end] = buckets.get(end, 0.0) + value
        elif name == b"apiserver_request_total":
            too_many += value if labels.get("code") == TOO_MANY else 0.0
        elif name == b"apiserver_flowcontrol_rejected_requests_total":
            rejected += value
        elif name == b"apiserver_current_inflight_requests":
            in_flight += value
        elif name == b"scheduler_pending_pods":
            queue = (queue or 0.0) + value
        else:
            sizes.append(value)
    size = int(max(sizes)) if sizes else None
    return CounterSample(
        at_s, latency, int(max(rejected, too_many)), int(in_flight), size, None if queue is None else int(queue)
    )


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def at_time(samples: Sequence[CounterSample], from_s: float, to_s: float) -> dict[str, Any]:
    """What a point of health says of a stretch: of the last sample in it, since the one before."""
    at = max((place for place, one in enumerate(samples) if from_s <= one.at_s < to_s), default=None)
    if at is None:
        return {}
    now, before = samples[at], samples[at - 1] if at else None
    found: dict[str, Any] = {"in_flight": now.in_flight, "etcd_bytes": now.etcd_bytes, "queue": now.queue}
    if before is not None and before.rejected <= now.rejected:  # else it was restarted meanwhile
        found["rejected"] = now.rejected - before.rejected
        latency = {verb: _p99(now.latency[verb], before.latency.get(verb, {})) for verb in now.latency}
        found["latency_s"] = {verb: value for verb, value in latency.items() if value is not None}
    return found


def _p99(now: dict[float, float], before: dict[float, float]) -> float | None:
    """The upper end of the bucket that 99 of 100 requests since then are in; None: there were none, or they are in the
    last, which has no end."""
    counts = sorted((end, value - before.get(end, 0.0)) for end, value in now.items())
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    end = next(end for end, count in counts if count >= 0.99 * total)
    return end if math.isfinite(end) else None
