"""The messages of a stream: that each has what it should and nothing else, in an order that makes sense."""

from collections.abc import Iterator, Sequence

from seatrial.check.answers.comparison import Comparison, structure
from seatrial.job.generation import Generation, Request, StopReason

TGIS = "tgis"


def check_messages(messages: Sequence[Generation], request: Request, protocol: str) -> Comparison | None:
    """The first thing that is wrong; None when nothing is."""
    checks = (_common, _tgis) if protocol == TGIS else (_common,)
    return next((found for check in checks for found in check(messages, request)), None)


def _finished(message: Generation) -> bool:
    return message.stop_reason is not None and message.stop_reason is not StopReason.NOT_FINISHED


def _common(messages: Sequence[Generation], request: Request) -> Iterator[Comparison]:
    """What holds for every protocol."""
    if not messages:
        yield structure("the stream has no messages")
        return
    ends = [place for place, message in enumerate(messages) if _finished(message)]
    if not ends:
        yield structure("no message of the stream has a stop reason: it did not end")
    elif len(ends) > 1:
        yield structure(f"messages {ends[0]} and {ends[1]} of the stream both have a stop reason", ends[1])
    else:
        late = next((i for i in range(ends[0] + 1, len(messages)) if messages[i].text or messages[i].tokens), None)
        if late is not None:
            yield structure(f"message {late} of the stream has text after the stop reason", late)
    yield from _counts(messages)


def _counts(messages: Sequence[Generation]) -> Iterator[Comparison]:
    so_far = listed = 0
    for place, message in enumerate(messages):
        listed += len(message.tokens or ())
        if message.generated_count is None:
            continue
        if message.generated_count < so_far:
            yield structure(
                f"message {place} of the stream says {message.generated_count} tokens after {so_far}", place
            )
        so_far = message.generated_count
        if listed > so_far and message.tokens:
            yield structure(f"message {place} of the stream says {so_far} tokens, and {listed} have come", place)


def _tgis(messages: Sequence[Generation], request: Request) -> Iterator[Comparison]:
    """First what is known of the input, then the input's tokens if they are asked for, then what is generated."""
    if len(messages) < 2:
        yield structure(f"the stream has {len(messages)} message; the input is one, and what is generated others")
        return
    first, last = messages[0], messages[-1]
    if not first.input_count:
        yield structure("the first message has no count of input tokens", 0)
    if first.generated_count or first.tokens or _finished(first):
        yield structure("the first message has more than the input", 0)
    if bool(first.text) != bool(request.wanted.input_text and any(request.inputs)):
        asked = "is asked for, and the first message has none" if request.wanted.input_text else "was not asked for"
        yield structure(f"the input's text {asked}", 0)
    elif first.text and request.inputs and request.inputs[0] not in first.text:
        yield structure(f"the first message has {first.text[:60]!r} as the input", 0)
    if request.wanted.input_tokens:
        second = messages[1]
        if not second.input_tokens or second.text or second.generated_count or second.stop_reason:
            yield structure("the second message is not the input's tokens alone, which are asked for", 1)
    for place, message in enumerate(messages[1:], 1):
        if message.input_count:
            yield structure(f"message {place} counts the input again", place)
        if message.seed and message is not last:
            yield structure(f"message {place} has the seed, which only the last one has", place)
    if not _finished(last):
        yield structure("the last message has no stop reason", len(messages) - 1)
    seed = request.sampling.seed
    if seed is not None and last.seed != seed:
        yield structure(f"the last message has seed {last.seed}; {seed} was asked for", len(messages) - 1)
