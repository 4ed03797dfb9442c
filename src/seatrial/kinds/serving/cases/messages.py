"""The request of a case: proto-JSON of TGIS, in either spelling, and what TGIS has no words for."""

import re
from collections.abc import Iterator

from seatrial.kinds.serving.cases.fields import MOST_U64, Fields
from seatrial.kinds.serving.generation import (
    Answer,
    ChatMessage,
    Decoding,
    ErrorMatch,
    ExpectedError,
    Generation,
    Guide,
    Guided,
    LengthPenalty,
    Method,
    Mode,
    Request,
    Sampling,
    Stopping,
    StopReason,
    Token,
    Tokenization,
    TopToken,
    Wanted,
)
from seatrial.suite.yaml.problem import nearest
from seatrial.suite.yaml.source import Node, Source

_INPUTS = ("requests", "request", "prompt", "messages")
_REQUEST = (*_INPUTS, "params", "prefix_id", "adapter_id", "model_id", "limit_s")
_TOKENIZE = (
    "requests",
    "return_tokens",
    "return_offsets",
    "truncate_input_tokens",
    "prefix_id",
    "adapter_id",
    "model_id",
)
_PARAMS = ("method", "sampling", "stopping", "response", "decoding", "truncate_input_tokens")
_SAMPLING = (
    *("temperature", "top_k", "top_p", "typical_p", "seed"),
    *("min_p", "presence_penalty", "frequency_penalty"),
)
_STOPPING = ("max_new_tokens", "min_new_tokens", "time_limit_millis", "stop_sequences", "include_stop_sequence")
_WANTED = ("input_text", "generated_tokens", "input_tokens", "token_logprobs", "token_ranks", "top_n_tokens")
_GUIDES = ("format", "json_schema", "regex", "choice", "grammar")
_DECODING = ("repetition_penalty", "length_penalty", *_GUIDES)


def read_request(source: Source, node: Node | None, tokenize: bool) -> Request:
    if tokenize:
        return _tokenize(Fields(source, node, _TOKENIZE, "a tokenize request"))
    fields = Fields(source, node, _REQUEST, "`request`")
    given = [name for name in _INPUTS if name in fields]
    if len(given) > 1:
        names = " and ".join(f"`{fields.spelled(name)}`" for name in given)
        fields.report(f"{names} are here; a request has one of them", fields.get(given[1]))
    params = fields.map("params", _PARAMS)
    wanted = params.map("response", _WANTED)
    return Request(
        inputs=_inputs(fields),
        messages=tuple(_messages(fields)),
        mode=Mode.STREAM if "request" in fields else Mode.UNARY,
        method=params.word("method", Method) or Method.GREEDY,
        sampling=_sampling(params.map("sampling", _SAMPLING)),
        stopping=_stopping(params.map("stopping", _STOPPING)),
        decoding=_decoding(params.map("decoding", _DECODING)),
        wanted=Wanted(
            **{name: bool(wanted.flag(name)) for name in _WANTED if name != "top_n_tokens"},
            top_n_tokens=wanted.whole("top_n_tokens") or 0,
        ),
        truncate_input_tokens=params.whole("truncate_input_tokens") or 0,
        model=fields.text("model_id") or "",
        prefix_id=fields.text("prefix_id"),
        adapter_id=fields.text("adapter_id"),
        limit_s=fields.number("limit_s"),
    )


def _tokenize(fields: Fields) -> Request:
    return Request(
        inputs=tuple(_texts(fields)),
        mode=Mode.TOKENIZE,
        wanted=Wanted(generated_tokens=bool(fields.flag("return_tokens")), offsets=bool(fields.flag("return_offsets"))),
        truncate_input_tokens=fields.whole("truncate_input_tokens") or 0,
        model=fields.text("model_id") or "",
        prefix_id=fields.text("prefix_id"),
        adapter_id=fields.text("adapter_id"),
    )


def _inputs(fields: Fields) -> tuple[str, ...]:
    if "requests" in fields:
        return tuple(_texts(fields))
    if "request" in fields:
        return (fields.map("request", ("text",)).text("text") or "",)
    prompt = fields.text("prompt")
    return () if prompt is None else (prompt,)


def _texts(fields: Fields) -> Iterator[str]:
    return (inner.text("text") or "" for inner in fields.maps("requests", ("text",), "an input of `requests`"))


def _messages(fields: Fields) -> Iterator[ChatMessage]:
    for message in fields.maps("messages", ("role", "content"), "a message"):
        role, content = message.text("role"), message.text("content")
        if role is None or content is None:
            message.report("a message has a `role` and a `content`")
        else:
            yield ChatMessage(role, content)


def _sampling(fields: Fields) -> Sampling:
    return Sampling(
        temperature=fields.number("temperature"),
        top_k=fields.whole("top_k"),
        top_p=fields.number("top_p"),
        typical_p=fields.number("typical_p"),
        min_p=fields.number("min_p"),
        presence_penalty=fields.number("presence_penalty"),
        frequency_penalty=fields.number("frequency_penalty"),
        seed=fields.whole("seed", MOST_U64),
    )


def _stopping(fields: Fields) -> Stopping:
    return Stopping(
        max_new_tokens=fields.whole("max_new_tokens"),
        min_new_tokens=fields.whole("min_new_tokens"),
        time_limit_ms=fields.whole("time_limit_millis"),
        stop_sequences=fields.texts("stop_sequences"),
        include_stop_sequence=fields.flag("include_stop_sequence"),
    )


def _decoding(fields: Fields) -> Decoding:
    penalty = fields.map("length_penalty", ("start_index", "decay_factor"))
    start, decay = penalty.whole("start_index"), penalty.number("decay_factor")
    return Decoding(
        repetition_penalty=fields.number("repetition_penalty"),
        length_penalty=LengthPenalty(start or 0, decay or 0.0) if "length_penalty" in fields else None,
        guided=_guided(fields),
    )


def _guided(fields: Fields) -> Guided | None:
    given = [name for name in _GUIDES if name in fields]
    if len(given) > 1:
        fields.report(f"{' and '.join(given)} are here; decoding is guided by one of them", fields.get(given[1]))
    if not given:
        return None
    if given[0] == "format":
        return Guided(fields.word("format", (Guide.TEXT, Guide.JSON)) or Guide.TEXT)
    if given[0] == "choice":
        return Guided(Guide.CHOICE, choices=fields.map("choice", ("choices",)).texts("choices"))
    return Guided(Guide(given[0]), fields.text(given[0]) or "")


_GENERATION = (
    *("text", "input_token_count", "generated_token_count", "stop_reason", "stop_sequence", "seed"),
    *("tokens", "input_tokens"),
)
_TOKEN = ("text", "logprob", "rank", "top_tokens")
_TOKENIZATION = ("token_count", "tokens", "offsets")
ERROR = ("code", "message", "message_prefix", "message_pattern")
GRPC_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_HTTP_CODE = re.compile(r"[1-5][0-9]{2}")


def read_answer(fields: Fields, tokenize: bool) -> Answer:
    """Counts and text that are left out are zero and empty: protobuf writes no zeros."""
    if tokenize:
        found = fields.maps("responses", _TOKENIZATION, "a response")
        return Answer(tokenizations=tuple(map(_tokenization, found)))
    return Answer(tuple(map(_generation, fields.maps("responses", _GENERATION, "a response"))))


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
    )


def _tokens(fields: Fields, name: str) -> Iterator[Token]:
    for token in fields.maps(name, _TOKEN, "a token"):
        top = tuple(
            TopToken(one.text("text") or "", one.number("logprob", nan=True))
            for one in token.maps("top_tokens", ("text", "logprob"), "a top token")
        )
        yield Token(token.text("text") or "", token.number("logprob", nan=True), token.whole("rank") or None, top)


def _tokenization(fields: Fields) -> Tokenization:
    offsets = (
        (one.whole("start") or 0, one.whole("end") or 0)
        for one in fields.maps("offsets", ("start", "end"), "an offset")
    )
    return Tokenization(
        fields.whole("token_count") or 0,
        fields.texts("tokens") if "tokens" in fields else None,
        tuple(offsets) if "offsets" in fields else None,
    )


def read_error(fields: Fields) -> ExpectedError:
    ways = {"message": ErrorMatch.EXACT, "message_prefix": ErrorMatch.PREFIX, "message_pattern": ErrorMatch.PATTERN}
    given = [name for name in ways if name in fields]
    if len(given) > 1:
        fields.report(f"{' and '.join(given)} are here; an error has one of them", fields.get(given[1]))
    if not given and "code" not in fields:
        fields.report("an error has a `code`, a `message`, or both; without either, every error would do")
    message = fields.text(given[0]) if given else None
    match = ways[given[0]] if given else ErrorMatch.EXACT
    if match is ErrorMatch.PATTERN and message is not None:
        try:
            re.compile(message)
        except re.error as error:
            fields.report(f"`message_pattern` is no regular expression: {error}", fields.get("message_pattern"))
    code = fields.text("code")
    if code is not None and code not in GRPC_CODES and not _HTTP_CODE.fullmatch(code):
        fields.report(f"{code!r} is no code of gRPC or HTTP{nearest(code, GRPC_CODES)}", fields.get("code"))
    return ExpectedError(code, message, match)
