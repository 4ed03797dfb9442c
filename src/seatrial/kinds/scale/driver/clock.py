"""Measures the API server's clock offset from the Date header of its answers; needs no permission.

The server answered between our send and our receive, so each answer bounds the offset from both sides. Requests around
the turn of a second narrow it to little more than a round trip. No duration depends on the offset: it is only used to
compare server timestamps with observed times."""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.scale.work import ClockMetrics, Stamp, StampAgreement, Submission
from seatrial.kubernetes import Kubernetes, KubernetesError
from seatrial.kubernetes.objects import ApiRequest

_PROBES = 7  # at each turn of a second, spread over the remaining uncertainty
_AGAIN_S = 5.0  # interval once the offset is as narrow as a round trip allows
SLACK_S = 0.001


class ServerClock:
    """The server's time minus our monotonic time is between `low_s` and `high_s`."""

    def __init__(self) -> None:
        self.low_s, self.high_s = -math.inf, math.inf
        self.jumps = 0

    def take(self, sent_s: float, received_s: float, server_s: float) -> None:
        low_s, high_s = server_s - received_s, server_s + 1 - sent_s
        self.low_s, self.high_s = max(self.low_s, low_s), min(self.high_s, high_s)
        if self.low_s > self.high_s:  # the clock was set or drifts, or another server answered
            self.jumps += 1
            self.low_s, self.high_s = low_s, high_s

    @property
    def known(self) -> bool:
        return math.isfinite(self.low_s) and math.isfinite(self.high_s)

    def probes(self, now_s: float) -> list[float]:
        """When to send requests: around the next turn of the server's second."""
        if not self.known:
            return [now_s]
        second = math.ceil(now_s + self.high_s + SLACK_S)
        first_s, last_s = second - self.high_s, second - self.low_s
        return [first_s + (last_s - first_s) * (place + 0.5) / _PROBES for place in range(_PROBES)]

    def metrics(self, agreements: Iterable[StampAgreement]) -> ClockMetrics | None:
        """The offset as a difference of two wall clocks; None if it is unknown."""
        if not self.known:
            return None
        ours_s = time.time() - time.monotonic()
        middle_s, half_s = (self.low_s + self.high_s) / 2, (self.high_s - self.low_s) / 2
        return ClockMetrics(middle_s - ours_s, half_s, self.jumps, list(agreements))


async def measure_clock(client: Kubernetes, clock: ServerClock) -> None:
    """Measures until cancelled."""
    narrow_s = math.inf
    while True:
        for at_s in clock.probes(time.monotonic()):
            await asyncio.sleep(max(at_s - time.monotonic(), 0.0))
            attempts: list[RequestAttempt] = []
            with contextlib.suppress(KubernetesError, ValueError, TypeError):
                asked = ApiRequest("get", bare_path="/version")
                answer = await client.connection.request(asked, retry=False, attempts=attempts)
                server_s = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
                sent_s, received_s = attempts[-1].sent_s, attempts[-1].answered_s
                if sent_s is not None and received_s is not None:
                    clock.take(sent_s, received_s, server_s)
        width_s = clock.high_s - clock.low_s
        if width_s > narrow_s * 0.8:
            await asyncio.sleep(_AGAIN_S)
        narrow_s = width_s


def agreements(
    clock: ServerClock, stamps: Iterable[Stamp], submissions: Mapping[int, Submission]
) -> list[StampAgreement]:
    """Compares server timestamps (whole seconds) with ours: each must be after the send and not after the observation.
    A wrong one comes from another clock, or from an API server whose clock changed."""
    counted: dict[str, list[float]] = {}
    for stamp in stamps if clock.known else ():
        one = submissions.get(stamp.workload)
        if one is None or one.sent_s is None or not stamp.server:
            continue
        try:
            server_s = datetime.fromisoformat(stamp.server).timestamp()
        except (ValueError, OverflowError, OSError):
            continue
        early_s = one.sent_s + clock.low_s - (server_s + 1)  # before the send
        late_s = server_s - (stamp.at_s + clock.high_s)  # after the observation
        counted.setdefault(stamp.stage, []).append(-early_s if early_s > 0 else max(late_s, 0.0))
    return [
        StampAgreement(stage, len(found), sum(abs(one) > SLACK_S for one in found), max(found, key=abs))
        for stage, found in counted.items()
    ]
