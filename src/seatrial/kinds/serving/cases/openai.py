"""Reads cases in OpenAI's own words: fields of the API as written, and what is expected of the answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from seatrial.kinds.serving.answers.expect import schema_problem
from seatrial.kinds.serving.cases.fields import Fields, read_case, snake
from seatrial.kinds.serving.cases.messages import read_tool_calls
from seatrial.kinds.serving.generation import FINISH_REASONS
from seatrial.kinds.serving.request import (
    ANSWER,
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    Case,
    Decoding,
    ErrorMatch,
    Expect,
    ExpectedError,
    Guide,
    Guided,
    Method,
    Mode,
    Request,
    Sampling,
    Stopping,
    Wanted,
)
from seatrial.suite.yaml.problem import closest
from seatrial.suite.yaml.source import Node, Source

BEGINNINGS = frozenset(("prompt", "messages", "input", "path", "body", "turns"))  # only cases in this format have them
_OWN = (
    *("name", "tags", "skip_check", "single_shard_only", "limit_s", "path", "body", "expect", "why", "cancelled"),
    *("repeated", "turns"),
)
_OF_A_TURN = ("role", "content", "tool_call_id")  # fields of its message
_EXPECT = ("text", "contains", "matches", "json", "tool_calls", "finish_reason", "error", "response", "events")
_EVENTS = ("first", "each", "any", "last")
_MOST_REPEATED, _MOST_CANCELLED = 1_000_000, 1000
_GUIDES = {
    **{"json": Guide.JSON_SCHEMA, "json_schema": Guide.JSON_SCHEMA, "json_object": Guide.JSON, "regex": Guide.REGEX},
    **{"choice": Guide.CHOICE, "grammar": Guide.GRAMMAR, "ebnf": Guide.GRAMMAR},
}
_STATUS = re.compile(r"[1-5x][0-9x]{2}")


def read_openai_cases(source: Source, node: Node) -> Iterator[Case]:
    """The case, or one for each turn of a conversation. The messages of a turn have `ANSWER` in place of each earlier
    answer."""
    turns = node.items.get("turns") if isinstance(node.items, dict) else None
    if turns is None or not isinstance(node.items, dict):
        yield _case(source, node)
        return
    if not isinstance(turns.items, list) or not turns.items or "prompt" in node.keys:
        source.report_at(turns, "`turns` must be a list of messages, without a `prompt`")
        return
    messages = node.data.get("messages")
    history = list(messages) if isinstance(messages, list) else []
    for number, turn in enumerate(turns.items):
        own = turn.items if isinstance(turn.items, dict) else {}
        if not isinstance(turn.data, str) and "content" not in own:
            source.report_at(turn, "a turn must be a text, or a map with `content`")
        said = {key: own[key].data for key in _OF_A_TURN if key in own} or {"content": turn.data}
        history.append({"role": "user"} | said)
        one = Node(turn.line, turn.column)
        shared = {key: inner for key, inner in node.items.items() if key not in ("turns", "expect", "why")}
        one.items = shared | {key: inner for key, inner in own.items() if key not in _OF_A_TURN}
        one.keys = {key: (node.keys | turn.keys)[key] for key in one.items} | {"messages": (turn.line, turn.column)}
        one.data = {key: inner.data for key, inner in one.items.items()} | {"messages": list(history)}
        case = _case(source, one)
        request = msgspec.structs.replace(case.request, turn=number)
        yield msgspec.structs.replace(case, name=f"{case.name}, turn {number + 1}", request=request)
        history.append(ANSWER)


def _case(source: Source, node: Node) -> Case:
    fields = Fields(source, node, (*_OWN, *map(snake, node.keys)), "a case")
    body: dict[str, Any] = {}
    for key, place in node.keys.items():
        if snake(key) not in _OWN:
            body[key] = node.data[key]
            if close := closest(key, _OWN):
                source.report(f"unknown field {key!r}; did you mean {close!r}?", *place)
    text, path = fields.text("body"), fields.text("path")
    if "repeated" in fields and not isinstance(body.get("prompt"), str):
        fields.report("`repeated` needs a `prompt` that is one text", fields.get("repeated"))
    if text is not None and body:
        fields.report("`body` is the whole request; remove the other fields of the API")
    if "prompt" in body and "messages" in body:
        fields.report("set only one of `prompt` and `messages`")
    if path is None:
        path = CHAT if "messages" in body else EMBEDDINGS if "input" in body else COMPLETIONS
    expect, error = _expect(fields, source) if "expect" in fields else (None, None)
    if expect is not None and expect.response is not None and body.get("stream") is True:
        fields.report("`response` describes an answer that is not a stream; use `events`", fields.get("expect"))
    request = msgspec.structs.replace(
        described(body, path, text, fields.number("limit_s")),
        cancelled=fields.whole("cancelled", _MOST_CANCELLED) or 0,
        repeated=fields.whole("repeated", _MOST_REPEATED) or 1,
    )
    why, skips = fields.text("why") or "", bool(fields.flag("skip_check"))
    return read_case(source, node, fields, request, error=error, expect=expect, why=why, skip_check=skips)


def described(body: dict[str, Any], path: str, text: str | None = None, limit_s: float | None = None) -> Request:
    """The request with this body. Fields of the API with an unusual type are sent, and count as not set here."""

    def whole(*names: str) -> int | None:
        found = [body[name] for name in names if isinstance(body.get(name), int) and not isinstance(body[name], bool)]
        return found[0] if found and found[0] >= 0 else None

    prompt, messages, stop = body.get("prompt"), body.get("messages"), body.get("stop")
    if "input" in body:
        prompt = body["input"] if path == EMBEDDINGS else str(body["input"])
    inputs: list[Any] = prompt if isinstance(prompt, list) and not all(isinstance(one, int) for one in prompt) else []
    said = messages if isinstance(messages, list) and all(isinstance(one, dict) for one in messages) else []
    stops = stop if isinstance(stop, list) else [stop]
    logprobs = body.get("logprobs")
    listed = logprobs is not None and logprobs is not False
    return Request(
        inputs=tuple(map(str, inputs or ([prompt] if prompt is not None else []))),
        messages=tuple(said),
        mode=Mode.EMBED if path == EMBEDDINGS else Mode.STREAM if body.get("stream") is True else Mode.UNARY,
        method=Method.GREEDY if body.get("temperature", 0) == 0 else Method.SAMPLE,
        sampling=Sampling(top_k=whole("top_k"), seed=whole("seed")),
        stopping=Stopping(
            whole("max_completion_tokens", "max_tokens", "max_output_tokens"),
            whole("min_tokens"),
            stop_sequences=tuple(one for one in stops if isinstance(one, str)),
        ),
        decoding=Decoding(guided=_guided(body)),
        wanted=Wanted(generated_tokens=listed, token_logprobs=listed),
        model=body["model"] if isinstance(body.get("model"), str) else "",
        limit_s=limit_s,
        path=path,
        body=body,
        text=text,
        choices=whole("n") or 1,
        tools=tuple(map(_name, tools)) if isinstance(tools := body.get("tools"), list) else (),
        tool_choice=choice if isinstance(choice := body.get("tool_choice"), str) else _name(choice),
    )


def _name(tool: Any) -> str:
    """The name of a function, as `tools` and `tool_choice` have it; empty if there is none."""
    found = tool.get("function") if isinstance(tool, dict) else None
    return str(found.get("name") or "") if isinstance(found, dict) else ""


def _guided(body: dict[str, Any]) -> Guided | None:
    """The structure that is asked for: in OpenAI's field, or in one of vLLM, llama.cpp or SGLang."""
    asked = {name: value for key, value in body.items() if (name := key.removeprefix("guided_")) in _GUIDES}
    form, outputs = body.get("response_format"), body.get("structured_outputs")
    asked |= outputs if isinstance(outputs, dict) else {}
    if isinstance(form, dict) and form.get("type") == "json_object":
        asked["json_schema" if "schema" in form else "json_object"] = form.get("schema", True)
    elif isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        asked["json_schema"] = form["json_schema"].get("schema", True)
    for key, value in asked.items():
        if key in _GUIDES and value is not None:
            choices = tuple(map(str, value)) if key == "choice" and isinstance(value, list) else ()
            written = value if isinstance(value, str) else json.dumps(value)
            return Guided(_GUIDES[key], "" if key in ("choice", "json_object") else written, choices)
    return None


def _expect(case: Fields, source: Source) -> tuple[Expect, ExpectedError | None]:
    fields = case.map("expect", _EXPECT)
    if not any(name in fields for name in _EXPECT):
        fields.report(f"`expect` is empty; use {', '.join(_EXPECT)}", case.get("expect"))
    finish = fields.text("finish_reason")
    if finish is not None and finish not in FINISH_REASONS:
        known = ", ".join(FINISH_REASONS)
        fields.report(f"unknown finish_reason {finish!r}; known: {known}", fields.get("finish_reason"))
    contains, wanted, events = fields.get("contains"), fields.get("json"), fields.get("events")
    many = contains is not None and isinstance(contains.items, list)
    schemas: dict[str, Any] = {}
    if events is not None:
        parted = isinstance(events.data, dict) and events.data and set(events.data) <= set(_EVENTS)
        schemas = events.data if parted else {"each": events.data}
    node = fields.get("response")
    response = node.data if node else None
    for name, schema in [("response", response), *(("events", one) for one in schemas.values())]:
        if schema is not None and (problem := schema_problem(schema)):
            fields.report(f"`{name}`: {problem}", fields.get(name))
    expect = Expect(
        text=fields.text("text"),
        contains=fields.texts("contains") if many else tuple(filter(None, [fields.text("contains")])),
        matches=_pattern(fields),
        json=json.dumps(wanted.data) if wanted is not None else None,
        tool_calls=read_tool_calls(fields) if "tool_calls" in fields else None,
        finish_reason=FINISH_REASONS.get(finish or ""),
        response=response,
        events=schemas,
    )
    return expect, _error(fields.map("error", ("status", "matches"))) if "error" in fields else None


def _error(fields: Fields) -> ExpectedError:
    status = fields.get("status")
    many = status is not None and isinstance(status.items, list)
    codes = fields.texts("status") if many else tuple(filter(None, [fields.text("status")]))
    if not codes or any(not _STATUS.fullmatch(code) for code in codes):
        fields.report("`error` needs a `status`: 400, [400, 422] or 4xx", status)
    return ExpectedError("|".join(codes), _pattern(fields), ErrorMatch.PATTERN)


def _pattern(fields: Fields) -> str | None:
    found = fields.text("matches")
    try:
        re.compile(found or "")
    except re.error as error:
        fields.report(f"invalid regular expression in `matches`: {error}", fields.get("matches"))
    return found
