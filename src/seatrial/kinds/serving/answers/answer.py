"""Compares the response to one request with what the case expects: an answer or an error."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.serving.answers.compare import EXACT, Agreement, Comparison, Walk, short, structure, worst_of
from seatrial.kinds.serving.answers.judge import Comparing, compare_by_rule, same_stop, unsound
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, ToolCall, by_choice, generations_of
from seatrial.kinds.serving.request import Case, ErrorMatch, ExpectedError, Method, Mode, Request


def check_messages(messages: Sequence[Generation], request: Request, protocol: str) -> Comparison | None:
    """The first problem with the content or order of a stream's messages; None if there is none."""
    of_protocol = _tgis(messages, request) if protocol == "tgis" else ()
    if not messages:
        return structure("the stream has no messages")
    return next(chain(*map(_common, by_choice(messages)), of_protocol), None)


def _finished(message: Generation) -> bool:
    return message.stop_reason is not None and message.stop_reason is not StopReason.NOT_FINISHED


def _common(messages: Sequence[Generation]) -> Iterator[Comparison]:
    """Rules for every protocol."""
    ends = [index for index, message in enumerate(messages) if _finished(message)]
    if not ends:
        yield structure("no message of the stream has a stop reason: it did not end")
    elif len(ends) > 1:
        yield structure(f"messages {ends[0]} and {ends[1]} of the stream both have a stop reason", ends[1])
    else:
        after = enumerate(messages[ends[0] + 1 :], ends[0] + 1)
        late = next((i for i, one in after if one.text or one.tokens or one.reasoning or one.tool_calls), None)
        if late is not None:
            yield structure(f"message {late} of the stream has text after the stop reason", late)
    so_far = listed = 0
    for index, message in enumerate(messages):
        listed += len(message.tokens or ())
        if (count := message.generated_count) is None:
            continue
        if count < so_far:
            yield structure(f"message {index} of the stream reports {count} tokens after {so_far}", index)
        so_far = count
        if listed > so_far and message.tokens:
            yield structure(f"message {index} of the stream reports {so_far} tokens after listing {listed}", index)


def _tgis(messages: Sequence[Generation], request: Request) -> Iterator[Comparison]:
    """Rules for TGIS: first the input, then its tokens if requested, then the generated text."""
    if len(messages) < 2:
        yield structure(f"the stream has only {len(messages)} message (expected one for the input, then others)")
        return
    first, last = messages[0], messages[-1]
    if not first.input_count:
        yield structure("the first message has no count of input tokens", 0)
    if first.generated_count or first.tokens or _finished(first):
        yield structure("the first message has more than the input", 0)
    if bool(first.text) != bool(request.wanted.input_text and any(request.inputs)):
        asked = "was requested, but the first message has none" if request.wanted.input_text else "was not requested"
        yield structure(f"the input text {asked}", 0)
    elif first.text and request.inputs and request.inputs[0] not in first.text:
        yield structure(f"the input text in the first message is not that of the request: {first.text[:60]!r}", 0)
    second = messages[1]
    other = second.text or second.generated_count or second.stop_reason
    if request.wanted.input_tokens and (other or not second.input_tokens):
        yield structure("the second message must have only the requested input tokens", 1)
    for index, message in enumerate(messages[1:], 1):
        if message.input_count:
            yield structure(f"message {index} counts the input again", index)
        if message.seed and message is not last:
            yield structure(f"message {index} has a seed; only the last message may", index)
    if not _finished(last):
        yield structure("the last message has no stop reason", len(messages) - 1)
    seed = request.sampling.seed
    if seed is not None and last.seed != seed:
        yield structure(f"the last message has seed {last.seed} (expected {seed})", len(messages) - 1)


def compare_answer(case: Case, answer: Answer, comparing: Comparing, protocol: str) -> tuple[Comparison, list[Walk]]:
    """The worst comparison, and the walks of all generations."""
    comparison, walks = _compare(case, answer, comparing, protocol)
    unmet = [Comparison(Agreement.EXPECT, "; ".join(answer.problems))] if answer.problems else []
    return worst_of([comparison, *unmet]), walks


def _compare(case: Case, answer: Answer, comparing: Comparing, protocol: str) -> tuple[Comparison, list[Walk]]:
    if case.error is not None:
        return compare_error(case.error, answer), []
    if answer.failure is not None:
        return Comparison(Agreement.ERROR, f"expected an answer, got an error: {answer.failure.text}"), []
    if case.answer is None and case.expect is not None:
        return check_alone(case.request, answer, protocol), []
    if case.answer is None:
        return structure("no expected answer; run `seatrial record` with a trusted server to add it"), []
    if case.request.mode is Mode.TOKENIZE:
        return _tokenized(case.answer, answer), []
    if answer.messages and (broken := check_messages(answer.messages, case.request, protocol)) is not None:
        return broken, []
    expected, got = case.answer.generations, generations_of(answer)
    if len(expected) != len(got):
        return structure(f"{len(got)} answers (expected {len(expected)})"), []
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


def check_alone(request: Request, answer: Answer, protocol: str) -> Comparison:
    """Checks an answer by its request alone."""
    if answer.failure is not None:
        return Comparison(Agreement.ERROR, answer.failure.text)
    if answer.messages and (broken := check_messages(answer.messages, request, protocol)) is not None:
        return broken
    found = [structure(problem) for problem in answer.problems]
    for got in generations_of(answer):
        found += _against_request(request, got)
    return worst_of(found)


def repeated_unit(text: str) -> str:
    """The beginning of a text that is the same characters over and over, at least 8 times; else empty."""
    sizes = (size for size in range(1, len(text) // 8 + 1) if text.startswith(text[size:]))
    return text[: next(sizes, 0)]


def is_determined(request: Request) -> bool:
    """True if the same request always has the same answer."""
    sampling = request.sampling
    return request.method is Method.GREEDY or sampling.seed is not None or sampling.top_k == 1


def compare_ways(case: Case, one: Answer, other: Answer, comparing: Comparing) -> Comparison:
    """Compares the answers to two ways of asking a case: whole or as a stream, alone or in a crowd."""
    if one.failure is not None or other.failure is not None:
        return EXACT if one.failure == other.failure else Comparison(Agreement.ERROR, "the errors differ")
    if case.request.mode is Mode.TOKENIZE:
        return _tokenized(one, other)
    ones, others = generations_of(one), generations_of(other)
    if len(ones) != len(others):
        return structure(f"{len(others)} answers, but {len(ones)} when the case was first asked")
    found = []
    determined = is_determined(case.request) and not comparing.rule.similarity
    for first, second in zip(ones, others, strict=True):
        if determined:
            # Streams may lack fields that a whole answer has; compare only fields that both have.
            names = set(first.__struct_fields__) - {"tool_calls", "reasoning"}
            absent = {name: None for name in names if getattr(second, name) is None}
            if first.model != second.model and second.model is not None:
                found.append(structure(f"the answer is from model {second.model!r}, not {first.model!r} as before"))
            shared = msgspec.structs.replace(first, **absent | {"model": None})
            found.append(compare_by_rule(_of_stream(shared, second, case.request, other), second, comparing)[0])
        elif first.input_count and second.input_count and first.input_count != second.input_count:
            asked = f"{second.input_count} input tokens, but {first.input_count} when the case was first asked"
            found.append(structure(asked))
    return worst_of(found)


def _of_stream(expected: Generation, got: Generation, request: Request, answer: Answer) -> Generation:
    """An encoder-decoder puts two line breaks between input and generated text in a whole answer, but not in a
    stream."""
    if not (answer.messages and request.wanted.input_text and request.inputs) or expected.text == got.text:
        return expected
    given = request.inputs[0]
    text = expected.text or ""
    shorter = given + text[len(given) :].removeprefix("\n\n") if text.startswith(given) else text
    return msgspec.structs.replace(expected, text=shorter) if shorter == got.text else expected


def _against_request(request: Request, got: Generation) -> Iterator[Comparison]:
    """Problems that follow from the request alone, whatever the text."""
    if (problem := unsound(got)) is not None:
        yield problem
    count, most, least = got.generated_count, request.stopping.max_new_tokens, request.stopping.min_new_tokens
    if count is not None and most and count > most:
        yield structure(f"{count} tokens generated (limit {most})")
    if count is not None and most and got.stop_reason is StopReason.MAX_TOKENS and count < most:
        yield structure(f"stopped at the limit of {most} tokens after only {count}")
    if count is not None and least and count < least and got.stop_reason is not StopReason.TIME_LIMIT:
        yield structure(f"{count} tokens generated (minimum {least})")
    calls = got.tool_calls or ()
    if got.stop_reason is not StopReason.MAX_TOKENS:
        yield from _against_tools(request, calls)
    if got.stop_reason is StopReason.TOOL_CALLS and not calls:
        yield structure("finish reason tool_calls without a tool call")
    if request.wanted.generated_tokens and count and not got.tokens:
        yield structure("requested generated tokens are missing")
    if request.wanted.input_tokens and got.input_count and not got.input_tokens:
        yield structure("requested input tokens are missing")
    if request.wanted.token_logprobs and got.tokens and all(token.logprob is None for token in got.tokens):
        yield structure("requested log-probabilities are missing")


def _against_tools(request: Request, calls: Sequence[ToolCall]) -> Iterator[Comparison]:
    names, choice = {call.name for call in calls}, request.tool_choice
    called = f"calls {', '.join(sorted(names)) or 'no tool'}"
    problems = []
    if not names <= set(request.tools):
        problems.append(f"{called}; the request has {', '.join(request.tools) or 'no tools'}")
    allowed = {name: names == {name} for name in request.tools} | {"none": not names, "required": bool(names)}
    if not allowed.get(choice, True):
        problems.append(f"{called}; `tool_choice` is {choice}")
    for call in calls:
        try:
            decode(call.arguments or "{}", dict)
        except Unreadable:
            problems.append(f"calls {call.name} with arguments that are not a JSON object: {short(call.arguments)}")
    yield from (Comparison(Agreement.TOOL_CALLS, problem) for problem in problems)


def _counted(request: Request, expected: Generation, got: Generation) -> Iterator[Comparison]:
    """For `skip_check`: compares what does not depend on the text, and the ending if it is deterministic."""
    if expected.input_count and got.input_count is not None and expected.input_count != got.input_count:
        yield structure(f"{got.input_count} input tokens (expected {expected.input_count})")
    if expected.input_tokens and got.input_tokens:
        ones = [token.text for token in expected.input_tokens]
        if ones != [token.text for token in got.input_tokens]:
            yield structure("the input tokens differ")
    if got.stop_reason is None or got.stop_reason is StopReason.NOT_FINISHED:
        if expected.stop_reason is not None:
            yield structure(f"no stop reason (expected {expected.stop_reason.upper()})")
    elif is_determined(request):
        if expected.stop_reason is not None and not same_stop(expected.stop_reason, got.stop_reason):
            yield structure(f"stop reason {got.stop_reason.upper()} (expected {expected.stop_reason.upper()})")
        counts = expected.generated_count, got.generated_count
        if all(counts) and counts[0] != counts[1]:
            yield structure(f"{counts[1]} generated tokens (expected {counts[0]})")


def _tokenized(expected: Answer, got: Answer) -> Comparison:
    if len(expected.tokenizations) != len(got.tokenizations):
        return structure(f"{len(got.tokenizations)} answers (expected {len(expected.tokenizations)})")
    for one, other in zip(expected.tokenizations, got.tokenizations, strict=True):
        for name in ("count", "tokens", "offsets"):
            wanted, there = getattr(one, name), getattr(other, name)
            if wanted is not None and wanted != there:
                return structure(f"{name} {short(there)} (expected {short(wanted)})")
    return EXACT


def compare_error(expected: ExpectedError, answer: Answer) -> Comparison:
    failure = answer.failure
    wanted = f"{expected.code or 'an error'}{f': {expected.message}' if expected.message is not None else ''}"
    if failure is None:
        texts = [one.text for one in generations_of(answer)]
        return Comparison(Agreement.ERROR, f"expected an error ({wanted}), got an answer: {short(texts)}")
    if expected.code is not None and not re.fullmatch(expected.code.replace("x", "[0-9]"), failure.code):
        return Comparison(Agreement.ERROR, f"wrong error: {failure.text} (expected {wanted})")
    matches = {
        ErrorMatch.EXACT: failure.message == expected.message,
        ErrorMatch.PREFIX: failure.message.startswith(expected.message or ""),
        ErrorMatch.PATTERN: failure.matches is True,
    }
    if expected.message is not None and not matches[expected.match]:
        how = {ErrorMatch.PREFIX: " prefix", ErrorMatch.PATTERN: " pattern"}.get(expected.match, "")
        return Comparison(Agreement.ERROR, f"wrong error message: {failure.text} (expected{how} {wanted})")
    return EXACT
