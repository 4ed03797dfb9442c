"""Checks an answer against the expectations of its case. Pure.

Patterns and schemas come from the case and are searched in text of the server, so the caller limits the time."""

import re
from collections.abc import Iterator
from typing import Any

from seatrial.job import Unreadable, decode
from seatrial.kinds.serving.answers.compare import SHOWN, other_calls, same_json, short
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, Trouble, generations_of
from seatrial.kinds.serving.request import Expect, Guide, Guided, Request


def unmet(expect: Expect, request: Request, answer: Answer, stream: bool) -> Iterator[str]:
    """What the answer lacks. Only the body is checked if the server answered with an error."""
    guided = request.decoding.guided
    if answer.failure is None:
        for got in generations_of(answer):
            yield from _of_generation(expect, got)
            # An answer that was cut off cannot be complete.
            complete = got.stop_reason is not StopReason.MAX_TOKENS and not got.tool_calls
            if guided and complete and not unchecked(request):
                yield from _of_guide(guided, got.text or "")
    elif answer.failure.trouble is not Trouble.ANSWERED:
        return
    if not stream and expect.response is not None:
        yield from violations(expect.response, b"".join(answer.raw), "the response")
    last = len(answer.raw) - 1
    for name, schema in expect.events.items() if stream else ():
        found = {place: list(violations(schema, data, f"event {place}")) for place, data in enumerate(answer.raw)}
        if name == "any" and all(found.values()):
            yield "no event has the expected form" + "".join(f"; {one}" for one in found.get(last, ()))
        elif name in ("first", "last") and answer.raw:
            yield from found[0 if name == "first" else last]
        elif name == "each":
            yield from next(filter(None, found.values()), [])


def _of_generation(expect: Expect, got: Generation) -> Iterator[str]:
    text = got.text or ""
    if expect.text is not None and text != expect.text:
        yield f"text {short(text)} (expected {short(expect.text)})"
    missing = [one for one in expect.contains if one not in text]
    if missing:
        yield f"{', '.join(map(short, missing))} not in the text {short(text)}"
    if expect.matches is not None and not re.search(expect.matches, text):
        yield f"text {short(text)} does not match {expect.matches}"
    if expect.json is not None and not same_json(expect.json, text):
        yield f"text {short(text)} (expected the JSON {short(expect.json)})"
    if expect.finish_reason is not None and got.stop_reason is not expect.finish_reason:
        yield f"finish reason {got.stop_reason or 'missing'} (expected {expect.finish_reason})"
    if expect.tool_calls is not None and (problem := other_calls(expect.tool_calls, got.tool_calls or ())):
        yield problem


def unchecked(request: Request) -> str:
    """Why the structure of the answer is not checked; empty if it is, or if it has none."""
    guided = request.decoding.guided
    why = ""
    if guided and guided.guide is Guide.GRAMMAR:
        why = "Seatrial cannot check a grammar"
    elif guided and guided.guide is Guide.JSON_SCHEMA:
        try:
            why = schema_problem(decode(guided.value, object))
        except Unreadable as error:
            why = str(error)
    elif guided and guided.guide is Guide.REGEX:
        try:
            re.compile(guided.value)
        except re.error as error:
            why = f"Python cannot read the regular expression: {error}"
    return f"the structure was not checked: {why}" if why else ""


def _of_guide(guided: Guided, text: str) -> Iterator[str]:
    if guided.guide in (Guide.JSON, Guide.JSON_SCHEMA):
        yield from violations(decode(guided.value or "true", object), text, "the answer")
    elif guided.guide is Guide.REGEX and not re.fullmatch(guided.value, text):
        yield f"text {short(text)} does not match the requested {guided.value}"
    elif guided.guide is Guide.CHOICE and text not in guided.choices:
        yield f"text {short(text)} is not one of the choices {short(list(guided.choices))}"


def violations(schema: Any, data: bytes | str, what: str) -> Iterator[str]:
    """The most relevant violation of a JSON Schema, if there is one."""
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        value = decode(data, object)
        # Without a registry, references to other hosts would be fetched.
        error = best_match(_validator(schema)(schema, registry=Registry()).iter_errors(value))
    except Unreadable as problem:
        yield f"{what} is not valid JSON: {problem}"
    except Unresolvable as problem:
        yield f"{what} was not checked: the schema has an unknown reference {problem.ref}"
    else:
        if error is not None:
            yield f"{what} violates the schema at {error.json_path}: {error.message[:SHOWN]}"


def schema_problem(schema: Any) -> str:
    """Why this is not a JSON Schema; empty if it is one."""
    from jsonschema import SchemaError

    try:
        _validator(schema).check_schema(schema)
    except SchemaError as error:
        return f"invalid JSON Schema at {error.json_path}: {error.message[:SHOWN]}"
    return ""


def _validator(schema: Any) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)
