"""Feeds bad inputs to what reads them, one after the other, each known by its kind, a seed and its number.

An input fails when what reads it raises anything but the errors that it promises, takes more than 5 s of CPU time, or
makes this process grow by more than 500 MB."""

import contextlib
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from fuzz.mutate import Change

MOST_S = 5.0
MOST_BYTES = 500_000_000
SHOWN_BYTES = 2_000


Use = Callable[[bytes], object]


@dataclass(frozen=True)
class Kind:
    """Inputs of one kind: `use` reads one, and may raise `ours`."""

    name: str
    seeds: Sequence[bytes]
    change: Change
    use: Use
    ours: tuple[type[Exception], ...] = ()

    def input(self, seed: int, number: int) -> bytes:
        rng = random.Random(f"{self.name}/{seed}/{number}")
        return self.change(rng.choice(self.seeds), rng)


@dataclass(frozen=True)
class Failure:
    kind: str
    seed: int
    number: int
    data: bytes
    what: str

    def __str__(self) -> str:
        cut = "" if len(self.data) <= SHOWN_BYTES else f" (the first {SHOWN_BYTES} of {len(self.data)} bytes)"
        again = f"make fuzz KINDS={self.kind} SEED={self.seed} FIRST={self.number} COUNT=1"
        return f"{self.what}\ninput{cut}: {self.data[:SHOWN_BYTES]!r}\nagain: {again}"


class Hang(BaseException):
    """Not an Exception: nothing that is being tested may catch it."""


def failures(kind: Kind, seed: int, first: int, count: int) -> Iterator[Failure]:
    before = used_bytes()  # of whatever else this process did
    for number in range(first, first + count):
        data = kind.input(seed, number)
        what = _problem(kind, data, before)
        if what:
            yield Failure(kind.name, seed, number, data, what)


def _problem(kind: Kind, data: bytes, before: int) -> str:
    begun_s = time.process_time()
    try:
        with _limit(MOST_S):
            kind.use(data)
    except kind.ours:
        pass
    except Hang:
        return f"it was not read within {MOST_S:g} s"
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return traceback.format_exc(limit=-8)
    if time.process_time() - begun_s > MOST_S:
        return f"it took {time.process_time() - begun_s:.1f} s to read"
    grown = used_bytes() - before
    return f"this process grew by {grown:,} bytes" if grown > MOST_BYTES else ""


def used_bytes() -> int:
    """The most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Of CPU time: how busy the machine is says nothing about what is tested."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
