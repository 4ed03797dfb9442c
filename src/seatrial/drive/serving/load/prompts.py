"""What each request of a load asks. Pure, by a seed."""

import random
from collections.abc import Sequence

import msgspec

from seatrial.drive.driver import DriverError
from seatrial.job.generation import Mode, Request, Stopping
from seatrial.job.load import Lengths, LoadWork
from seatrial.job.serving import Question

_WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "family", "problem")


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
