"""All that came back of one request against what the case expects: an answer or an error, checked or only counted."""

from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from seatrial.kinds.serving.answers.compare import EXACT, Agreement, Comparison, Walk, structure, worst_of
from seatrial.kinds.serving.answers.rules import Comparing, compare_by_rule, same_stop, unsound
from seatrial.kinds.serving.generation import (
    Answer,
    Case,
    ErrorMatch,
    ExpectedError,
    Generation,
    Method,
    Mode,
    Request,
    StopReason,
    merge_messages,
)

# The messages of a stream: that each has what it should and nothing else, in an order that makes sense.


def check_messages(messages: Sequence[Generation], request: Request, protocol: str) -> Comparison | None:
    """The first thing that is wrong; None when nothing is."""
    of_protocol = _tgis(messages, request) if protocol == "tgis" else ()
    return next(chain(_common(messages), of_protocol), None)


def _finished(message: Generation) -> bool:
    return message.stop_reason is not None and message.stop_reason is not StopReason.NOT_FINISHED


def _common(messages: Sequence[Generation]) -> Iterator[Comparison]:
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
    so_far = listed = 0
    for place, message in enumerate(messages):
        listed += len(message.tokens or ())
        if (count := message.generated_count) is None:
            continue
        if count < so_far:
            yield structure(f"message {place} of the stream says {count} tokens after {so_far}", place)
        so_far = count
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
    second = messages[1]
    other = second.text or second.generated_count or second.stop_reason
    if request.wanted.input_tokens and (other or not second.input_tokens):
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


def compare_answer(case: Case, answer: Answer, comparing: Comparing, protocol: str) -> tuple[Comparison, list[Walk]]:
    """The worst of all that was compared, and the walks."""
    if case.error is not None:
        return compare_error(case.error, answer), []
    if answer.failure is not None:
        return Comparison(Agreement.ERROR, f"an answer is expected, and an error came: {answer.failure.text}"), []
    if case.answer is None:
        return structure("nothing is expected of this case: `seatrial record` writes what a trusted server answers"), []
    if case.request.mode is Mode.TOKENIZE:
        return _tokenized(case.answer, answer), []
    if answer.messages and (broken := check_messages(answer.messages, case.request, protocol)) is not None:
        return broken, []
    expected, got = case.answer.generations, generations_of(answer)
    if len(expected) != len(got):
        return structure(f"{len(got)} answers; expected {len(expected)}"), []
    found: list[Comparison] = []
    walks: list[Walk] = []
    for one, other in zip(expected, got, strict=True):
        found += _against_request(case.request, other)
        if case.skip_check:
            found += _counted(case.request, one, other)
        else:
            comparison, walk = compare_by_rule(_of_stream(one, other, case.request, answer), other, comparing)
            found.append(comparison)
            walks += [walk] if walk is not None else []
    return worst_of(found), walks


def generations_of(answer: Answer) -> Sequence[Generation]:
    """Of a stream the one that its messages come to."""
    return (merge_messages(answer.messages),) if answer.messages else answer.generations


def is_determined(request: Request) -> bool:
    """Asked twice, it is answered alike."""
    sampling = request.sampling
    return request.method is Method.GREEDY or sampling.seed is not None or sampling.top_k == 1


def compare_ways(case: Case, one: Answer, other: Answer, comparing: Comparing) -> Comparison:
    """The same case asked in two ways, whole and as a stream or alone and in a crowd: the answers must agree."""
    if one.failure is not None or other.failure is not None:
        return EXACT if one.failure == other.failure else Comparison(Agreement.ERROR, "one way gave an error")
    if case.request.mode is Mode.TOKENIZE:
        return _tokenized(one, other)
    ones, others = generations_of(one), generations_of(other)
    if len(ones) != len(others):
        return structure(f"{len(others)} answers in one way, {len(ones)} in the other")
    found = []
    determined = is_determined(case.request) and not comparing.rule.similarity
    for first, second in zip(ones, others, strict=True):
        if determined:
            # Servers leave out of a stream what they say of a whole answer; what both say must agree.
            absent = {name: None for name in first.__struct_fields__ if getattr(second, name) is None}
            shared = msgspec.structs.replace(first, **absent)
            found.append(compare_by_rule(_of_stream(shared, second, case.request, other), second, comparing)[0])
        elif first.input_count and second.input_count and first.input_count != second.input_count:
            found.append(structure(f"{second.input_count} input tokens in one way, {first.input_count} in the other"))
    return worst_of(found)


def _of_stream(expected: Generation, got: Generation, request: Request, answer: Answer) -> Generation:
    """Between the input and what is generated, an encoder-decoder has two line breaks in a whole answer that it does
    not send in a stream."""
    if not (answer.messages and request.wanted.input_text and request.inputs) or expected.text == got.text:
        return expected
    given = request.inputs[0]
    text = expected.text or ""
    shorter = given + text[len(given) :].removeprefix("\n\n") if text.startswith(given) else text
    return msgspec.structs.replace(expected, text=shorter) if shorter == got.text else expected


def _against_request(request: Request, got: Generation) -> Iterator[Comparison]:
    """What is wrong by what was asked alone, whatever the text."""
    if (problem := unsound(got)) is not None:
        yield problem
    count, most, least = got.generated_count, request.stopping.max_new_tokens, request.stopping.min_new_tokens
    if count is not None and most and count > most:
        yield structure(f"{count} tokens were generated; at most {most} were asked for")
    if count is not None and most and got.stop_reason is StopReason.MAX_TOKENS and count < most:
        yield structure(f"it stopped for {most} tokens, and generated {count}")
    if count is not None and least and count < least and got.stop_reason is not StopReason.TIME_LIMIT:
        yield structure(f"{count} tokens were generated; at least {least} were asked for")
    if request.wanted.generated_tokens and count and not got.tokens:
        yield structure("the generated tokens were asked for, and are not there")
    if request.wanted.input_tokens and got.input_count and not got.input_tokens:
        yield structure("the input tokens were asked for, and are not there")
    if request.wanted.token_logprobs and got.tokens and all(token.logprob is None for token in got.tokens):
        yield structure("log-probabilities were asked for, and are not there")


def _counted(request: Request, expected: Generation, got: Generation) -> Iterator[Comparison]:
    """With `skip_check`: what does not depend on the text; how it ended only where that is determined."""
    if expected.input_count and got.input_count is not None and expected.input_count != got.input_count:
        yield structure(f"{got.input_count} input tokens; expected {expected.input_count}")
    if expected.input_tokens and got.input_tokens:
        ones = [token.text for token in expected.input_tokens]
        if ones != [token.text for token in got.input_tokens]:
            yield structure("the input's tokens are others")
    if got.stop_reason is None or got.stop_reason is StopReason.NOT_FINISHED:
        if expected.stop_reason is not None:
            yield structure(f"it has no stop reason; expected {expected.stop_reason.upper()}")
    elif is_determined(request):
        if expected.stop_reason is not None and not same_stop(expected.stop_reason, got.stop_reason):
            yield structure(f"stop reason {got.stop_reason.upper()}; expected {expected.stop_reason.upper()}")
        counts = expected.generated_count, got.generated_count
        if all(counts) and counts[0] != counts[1]:
            yield structure(f"{counts[1]} generated tokens; expected {counts[0]}")


def _tokenized(expected: Answer, got: Answer) -> Comparison:
    if len(expected.tokenizations) != len(got.tokenizations):
        return structure(f"{len(got.tokenizations)} answers; expected {len(expected.tokenizations)}")
    for one, other in zip(expected.tokenizations, got.tokenizations, strict=True):
        for name in ("count", "tokens", "offsets"):
            wanted, there = getattr(one, name), getattr(other, name)
            if wanted is not None and wanted != there:
                return structure(f"{name} {_short(there)}; expected {_short(wanted)}")
    return EXACT


def compare_error(expected: ExpectedError, answer: Answer) -> Comparison:
    failure = answer.failure
    wanted = f"{expected.code or 'an error'}{f': {expected.message}' if expected.message is not None else ''}"
    if failure is None:
        texts = [one.text for one in generations_of(answer)]
        return Comparison(Agreement.ERROR, f"an error is expected ({wanted}), and an answer came: {_short(texts)}")
    if expected.code is not None and failure.code != expected.code:
        return Comparison(Agreement.ERROR, f"another error: {failure.text}; expected {wanted}")
    matches = {
        ErrorMatch.EXACT: failure.message == expected.message,
        ErrorMatch.PREFIX: failure.message.startswith(expected.message or ""),
        ErrorMatch.PATTERN: failure.matches is True,
    }
    if expected.message is not None and not matches[expected.match]:
        how = {ErrorMatch.PREFIX: " at its beginning", ErrorMatch.PATTERN: " as a pattern"}.get(expected.match, "")
        return Comparison(Agreement.ERROR, f"another message: {failure.text}; expected{how} {wanted}")
    return EXACT


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:120] + "…"
