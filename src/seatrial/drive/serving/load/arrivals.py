"""When each request of a load is to begin, in seconds from its start; and what it asks. Pure, by a seed."""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import count, islice, takewhile

import msgspec

from seatrial.drive.driver import DriverError
from seatrial.job.generation import Mode, Request, Stopping
from seatrial.job.load import Arrivals, Lengths, LoadWork
from seatrial.job.serving import Question

MOST = 5_000_000
_WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "family", "problem")


def offsets(load: LoadWork) -> list[float]:
    """In order: as many as `requests` says, and none that would begin after `seconds`."""
    times = _times(load.arrivals, load.seed)
    if load.seconds is not None:
        limit_s = load.seconds
        times = takewhile(lambda at_s: at_s < limit_s, times)
    found = list(islice(times, min(load.requests or MOST, MOST)))
    if not found:
        raise DriverError("the load has no requests: none of its arrivals is before its end")
    return found


def _times(arrivals: Arrivals, seed: int) -> Iterator[float]:
    if arrivals.shape == "trace":
        yield from arrivals.times
    elif arrivals.shape == "rate":
        yield from (number / arrivals.rate for number in count())
    elif arrivals.shape == "burst":
        yield from (number // arrivals.burst * arrivals.every_s for number in count())
    elif arrivals.shape == "poisson":
        chance, at_s = random.Random(seed), 0.0
        while True:
            at_s += chance.expovariate(arrivals.rate)
            yield at_s
    elif arrivals.shape == "ramp":
        yield from (_ramp_s(number, arrivals) for number in count())
    else:
        raise DriverError(f"this Seatrial has no arrivals {arrivals.shape!r}")


def _ramp_s(number: int, arrivals: Arrivals) -> float:
    """When so many have come: the rate goes from one to the other in `every_s`, and stays there."""
    first, last, over_s = arrivals.rate, arrivals.to_rate, arrivals.every_s
    within = (first + last) / 2 * over_s
    if number >= within:
        return over_s + (number - within) / last
    growth = (last - first) / over_s
    if growth == 0:
        return number / first
    return (math.sqrt(first * first + 2 * growth * number) - first) / growth


def requests_of(load: LoadWork, questions: Sequence[Question], number: int) -> list[Request]:
    """What each of so many asks: cases that expect an answer, shuffled anew each time round; or made-up prompts."""
    chance = random.Random(f"{load.seed} requests")
    if load.lengths is not None:
        return [_made_up(load.lengths, chance) for _ in range(number)]
    good = [one.request for one in questions if not one.error and _loadable(one.request)]
    if not good:
        raise DriverError("no case can be a load: one is needed that has one input and expects an answer")
    found: list[Request] = []
    while len(found) < number:
        found += chance.sample(good, len(good))
    return found[:number]


def _loadable(request: Request) -> bool:
    return request.mode is not Mode.TOKENIZE and (len(request.inputs) == 1 or bool(request.messages))


def _made_up(lengths: Lengths, chance: random.Random) -> Request:
    words = " ".join(chance.choices(_WORDS, k=chance.randint(*lengths.input)))
    tokens = chance.randint(*lengths.output)
    return msgspec.structs.replace(
        Request(inputs=(words,)), stopping=Stopping(max_new_tokens=tokens, min_new_tokens=tokens)
    )
