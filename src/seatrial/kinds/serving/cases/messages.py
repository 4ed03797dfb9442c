"""Reads the request and the expected answer of a case: TGIS's proto-JSON in either spelling, with extensions."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from seatrial.kinds.serving.cases.fields import MOST_U64, Fields
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, Token, Tokenization, ToolCall, TopToken
from seatrial.kinds.serving.request import (
    Decoding,
    ErrorMatch,
    ExpectedError,
    Guide,
    Guided,
    LengthPenalty,
    Method,
    Mode,
    Request,
    Sampling,
    Stopping,
    Wanted,
)
from seatrial.suite.yaml.problem import nearest
from seatrial.suite.yaml.source import Node, Source

_INPUTS = ("requests", "request", "prompt", "messages")
_IDS = ("prefix_id", "adapter_id", "model_id")
_REQUEST = (*_INPUTS, "params", *_IDS, "limit_s")
_TOKENIZE = ("requests", "return_tokens", "return_offsets", "truncate_input_tokens", *_IDS)
_PARAMS = ("method", "sampling", "stopping", "response", "decoding", "truncate_input_tokens")
_STOPPING = ("max_new_tokens", "min_new_tokens", "time_limit_millis", "stop_sequences", "include_stop_sequence")
_WANTED = ("input_text", "generated_tokens", "input_tokens", "token_logprobs", "token_ranks", "top_n_tokens")
_GUIDES = ("format", "json_schema", "regex", "choice", "grammar")
_DECODING = ("repetition_penalty", "length_penalty", *_GUIDES)


def read_request(source: Source, node: Node | None, tokenize: bool) -> Request:
    if tokenize:
        fields = Fields(source, node, _TOKENIZE, "a tokenize request")
        tokens, offsets = bool(fields.flag("return_tokens")), bool(fields.flag("return_offsets"))
        truncated = fields.whole("truncate_input_tokens") or 0
        wanted = Wanted(generated_tokens=tokens, offsets=offsets)
        made = Request(mode=Mode.TOKENIZE, wanted=wanted, truncate_input_tokens=truncated)
    else:
        fields = Fields(source, node, _REQUEST, "`request`")
        made = _generate(fields)
    return msgspec.structs.replace(
        made,
        inputs=_inputs(fields),
        model=fields.text("model_id") or "",
        prefix_id=fields.text("prefix_id"),
        adapter_id=fields.text("adapter_id"),
    )


def _generate(fields: Fields) -> Request:
    _only(fields, _INPUTS)
    params = fields.map("params", _PARAMS)
    sampling = params.map("sampling", Sampling.__struct_fields__)
    stopping = params.map("stopping", _STOPPING)
    wanted = params.map("response", _WANTED)
    return Request(
        messages=tuple(_messages(fields)),
        mode=Mode.STREAM if "request" in fields else Mode.UNARY,
        method=params.word("method", Method) or Method.GREEDY,
        sampling=Sampling(
            **{name: sampling.number(name) for name in Sampling.__struct_fields__ if name not in ("top_k", "seed")},
            top_k=sampling.whole("top_k"),
            seed=sampling.whole("seed", MOST_U64),
        ),
        stopping=Stopping(
            max_new_tokens=stopping.whole("max_new_tokens"),
            min_new_tokens=stopping.whole("min_new_tokens"),
            time_limit_ms=stopping.whole("time_limit_millis"),
            stop_sequences=stopping.texts("stop_sequences"),
            include_stop_sequence=stopping.flag("include_stop_sequence"),
        ),
        decoding=_decoding(params.map("decoding", _DECODING)),
        wanted=Wanted(
            **{name: bool(wanted.flag(name)) for name in _WANTED if name != "top_n_tokens"},
            top_n_tokens=wanted.whole("top_n_tokens") or 0,
        ),
        truncate_input_tokens=params.whole("truncate_input_tokens") or 0,
        limit_s=fields.number("limit_s"),
    )


def _inputs(fields: Fields) -> tuple[str, ...]:
    if "requests" in fields:
        inputs = fields.maps("requests", ("text",), "an input of `requests`")
        return tuple(inner.text("text") or "" for inner in inputs)
    if "request" in fields:
        return (fields.map("request", ("text",)).text("text") or "",)
    prompt = fields.text("prompt")
    return () if prompt is None else (prompt,)


def _messages(fields: Fields) -> Iterator[dict[str, Any]]:
    for message in fields.maps("messages", ("role", "content"), "a message"):
        role, content = message.text("role"), message.text("content")
        if role is None or content is None:
            message.report("a message needs `role` and `content`")
        else:
            yield {"role": role, "content": content}


def _decoding(fields: Fields) -> Decoding:
    penalty = fields.map("length_penalty", LengthPenalty.__struct_fields__)
    start, decay = penalty.whole("start_index"), penalty.number("decay_factor")
    guide = _only(fields, _GUIDES)
    guided = None
    if guide == "format":
        guided = Guided(fields.word("format", (Guide.TEXT, Guide.JSON)) or Guide.TEXT)
    elif guide == "choice":
        guided = Guided(Guide.CHOICE, choices=fields.map("choice", ("choices",)).texts("choices"))
    elif guide is not None:
        guided = Guided(Guide(guide), fields.text(guide) or "")
    return Decoding(
        repetition_penalty=fields.number("repetition_penalty"),
        length_penalty=LengthPenalty(start or 0, decay or 0.0) if "length_penalty" in fields else None,
        guided=guided,
    )


def _only(fields: Fields, names: Iterable[str]) -> str | None:
    """The one of these that is set; reports if there are several."""
    given = [name for name in names if name in fields]
    if len(given) > 1:
        spelled = " and ".join(f"`{fields.spelled(name)}`" for name in given)
        fields.report(f"set only one of {spelled}", fields.get(given[1]))
    return given[0] if given else None


class WrittenTopToken(msgspec.Struct, omit_defaults=True):
    text: str | None = None
    logprob: float | str | None = None


class WrittenToken(WrittenTopToken, omit_defaults=True, rename="camel"):
    rank: int | None = None
    top_tokens: list[WrittenTopToken] | None = None


class WrittenToolCall(msgspec.Struct, omit_defaults=True):
    name: str = ""
    arguments: str = ""


class WrittenGeneration(msgspec.Struct, omit_defaults=True, rename="camel"):
    """An answer in protobuf's JSON format."""

    input_token_count: int | None = None
    generated_token_count: int | None = None
    text: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    seed: int | str | None = None
    input_tokens: list[WrittenToken] | None = None
    tokens: list[WrittenToken] | None = None
    reasoning: str | None = None
    model: str | None = None
    tool_calls: list[WrittenToolCall] | None = None
    vector: list[float] | None = None


_MATCHES = {"message": ErrorMatch.EXACT, "message_prefix": ErrorMatch.PREFIX, "message_pattern": ErrorMatch.PATTERN}
GRPC_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_HTTP_CODE = re.compile(r"[1-5][0-9]{2}")


def read_answer(fields: Fields, tokenize: bool) -> Answer:
    """Missing counts are zero and missing texts empty: protobuf does not write them."""
    if tokenize:
        found = fields.maps("responses", ("token_count", "tokens", "offsets"), "a response")
        return Answer(tokenizations=tuple(map(_tokenization, found)))
    return Answer(tuple(map(_generation, fields.maps("responses", WrittenGeneration.__struct_fields__, "a response"))))


def _generation(fields: Fields) -> Generation:
    return Generation(
        text=fields.text("text") or "",
        input_count=fields.whole("input_token_count") or 0,
        generated_count=fields.whole("generated_token_count") or 0,
        stop_reason=fields.word("stop_reason", StopReason),
        stop_sequence=fields.text("stop_sequence"),
        seed=fields.whole("seed", MOST_U64),
        tokens=tuple(_tokens(fields, "tokens")) if "tokens" in fields else None,
        input_tokens=tuple(_tokens(fields, "input_tokens")) if "input_tokens" in fields else None,
        reasoning=fields.text("reasoning"),
        tool_calls=read_tool_calls(fields) if "tool_calls" in fields else None,
        model=fields.text("model"),
        vector=tuple(float(node.data or 0) for node in fields.list("vector")) if "vector" in fields else None,
    )


def read_tool_calls(fields: Fields) -> tuple[ToolCall, ...]:
    """Calls as recorded, or as in OpenAI's answers. Arguments are a map, or JSON as text."""
    found: list[ToolCall] = []
    for call in fields.maps("tool_calls", ("name", "arguments", "id", "type", "function"), "a tool call"):
        inner = call.map("function", ("name", "arguments")) if "function" in call else call
        name, node = inner.text("name"), inner.get("arguments")
        if name is None:
            inner.report("a tool call needs `name`")
        is_json = node is not None and isinstance(node.items, dict)
        arguments = json.dumps(node.data) if node and is_json else inner.text("arguments") or ""
        found.append(ToolCall(name or "", arguments, len(found)))
    return tuple(found)


def _tokens(fields: Fields, name: str) -> Iterator[Token]:
    for token in fields.maps(name, WrittenToken.__struct_fields__, "a token"):
        listed = token.maps("top_tokens", WrittenTopToken.__struct_fields__, "a top token")
        top = tuple(TopToken(one.text("text") or "", one.logprob()) for one in listed)
        yield Token(token.text("text") or "", token.logprob(), token.whole("rank") or None, top)


def _tokenization(fields: Fields) -> Tokenization:
    found = fields.maps("offsets", ("start", "end"), "an offset")
    offsets = tuple((one.whole("start") or 0, one.whole("end") or 0) for one in found)
    tokens = fields.texts("tokens") if "tokens" in fields else None
    return Tokenization(fields.whole("token_count") or 0, tokens, offsets if "offsets" in fields else None)


def read_error(case: Fields) -> ExpectedError:
    fields = case.map("error", ("code", *_MATCHES))
    given = _only(fields, _MATCHES)
    if given is None and "code" not in fields:
        fields.report("`error` needs `code` or `message`; without both, any error would pass")
    message = fields.text(given) if given else None
    match = _MATCHES[given] if given else ErrorMatch.EXACT
    if match is ErrorMatch.PATTERN and message is not None:
        try:
            re.compile(message)
        except re.error as error:
            fields.report(f"invalid regular expression in `message_pattern`: {error}", fields.get("message_pattern"))
    code = fields.text("code")
    if code is not None and code not in GRPC_CODES and not _HTTP_CODE.fullmatch(code):
        fields.report(f"unknown gRPC or HTTP code {code!r}{nearest(code, GRPC_CODES)}", fields.get("code"))
    return ExpectedError(code, message, match)
