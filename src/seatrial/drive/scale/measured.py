"""What is known of the measuring itself, from the files of an attempt: gaps, lags, clocks, and the cluster's health in
stretches of time."""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from seatrial.drive.scale.health import CounterSample, at_time
from seatrial.drive.scale.stages import share_of
from seatrial.job import Unreadable, decode
from seatrial.job.measured import HealthPoint
from seatrial.job.scale import Submission

_MOST_POINTS = 120
LEAST_S = 1.0


class StampsLine(msgspec.Struct, frozen=True):
    """A line of the file of stamps that is no stamp."""

    at_s: float
    canary: str = ""
    loop_s: float | None = None
    gap_s: float | None = None
    kind: str = ""


def read_lines(path: Path) -> list[StampsLine]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().split(b"\n")[:-1]:
            if not line.startswith(b'{"workload"'):
                with contextlib.suppress(Unreadable):
                    found.append(decode(line, StampsLine))
    return found


def loop_lag_s(lines: Iterable[StampsLine]) -> float:
    return share_of(sorted(line.loop_s for line in lines if line.loop_s is not None), 0.99)


def gaps(lines: Iterable[StampsLine]) -> tuple[int, float]:
    """How many, and how long in all."""
    found = [line.at_s - line.gap_s for line in lines if line.gap_s is not None]
    return len(found), sum(found)


def health_points(
    submissions: Mapping[int, Submission],
    lags: Sequence[tuple[float, float]],
    lines: Sequence[StampsLine],
    samples: Sequence[CounterSample],
    end_s: float,
) -> list[HealthPoint]:
    """`lags` are (when, how late); all on one axis, in at most so many stretches."""
    start_s = min((one.intended_s for one in submissions.values()), default=end_s)
    width_s = max(LEAST_S, (end_s - start_s) / _MOST_POINTS)
    count = max(1, int((end_s - start_s) / width_s) + 1)

    def place(at_s: float) -> int:
        return min(max(int((at_s - start_s) / width_s), 0), count - 1)

    offered, acknowledged, refused = [0] * count, [0] * count, [0] * count
    took: list[list[float]] = [[] for _ in range(count)]
    for one in submissions.values():
        offered[place(one.intended_s)] += 1
        if one.acknowledged_s is not None:
            acknowledged[place(one.acknowledged_s)] += 1
            if one.sent_s is not None:
                took[place(one.acknowledged_s)].append(one.acknowledged_s - one.sent_s)
        refused[place(one.acknowledged_s or one.intended_s)] += len(one.refusals)
    lag: dict[int, float] = {}
    loop: dict[int, float] = {}  # a stretch in which it was not measured has none
    blind = [False] * count
    for at_s, late_s in lags:
        lag[place(at_s)] = max(lag.get(place(at_s), 0.0), late_s)
    for line in lines:
        if line.loop_s is not None:
            loop[place(line.at_s)] = max(loop.get(place(line.at_s), 0.0), line.loop_s)
        if line.gap_s is not None:
            for at in range(place(line.gap_s), place(line.at_s) + 1):
                blind[at] = True
    return [
        HealthPoint(
            round(at * width_s, 3),
            offered[at],
            acknowledged[at],
            refused[at],
            share_of(sorted(took[at]), 0.99) if took[at] else None,
            lag.get(at),
            loop.get(at),
            blind[at],
            **at_time(
                samples,
                start_s + at * width_s if at else -math.inf,
                start_s + (at + 1) * width_s if at < count - 1 else math.inf,
            ),
        )
        for at in range(count)
    ]
