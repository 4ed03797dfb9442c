"""OpenAI's HTTP protocol: encodes neutral requests, and decodes bodies and stream events into neutral answers. Pure.

Every option that changes the generation is sent, also if it is off, because servers have different defaults. This
includes fields of vLLM and llama.cpp; for servers that reject unknown fields, `server.extra` removes them with null."""

from array import array
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.serving.generation import (
    FINISH_REASONS,
    Answer,
    Failure,
    Generation,
    StopReason,
    Token,
    Tokenization,
    ToolCall,
    TopToken,
    Trouble,
    tokens_of,
)
from seatrial.kinds.serving.request import CHAT, COMPLETIONS, RESPONSES, Guide, Guided, Method, Mode, Request

_T = TypeVar("_T")
TOKENIZE = "/tokenize"
_SHOWN = 120  # characters shown of an invalid response


class ProtocolError(Exception):
    """The protocol cannot express the request, or the response violates it; the message says how."""


# ---- requests


def path_of(request: Request) -> str:
    if request.mode is Mode.TOKENIZE:
        return TOKENIZE
    return request.path or (CHAT if request.messages else COMPLETIONS)


def body_of(request: Request, model: str, stream: bool, extra: Mapping[str, object]) -> dict[str, object]:
    body: dict[str, object] = {"model": request.model or model}
    if request.path:
        body = {name: value for name, value in {**body, "temperature": 0, **extra}.items() if value is not None}
        if request.mode is Mode.EMBED:
            body.pop("temperature", None)
        options = {} if request.path == RESPONSES else {"stream_options": {"include_usage": True}}
        streamed = {"stream": True, **options} if stream else {}
        long = {"prompt": request.body["prompt"] * request.repeated} if request.repeated > 1 else {}
        return {**body, **streamed, **request.body, **long}
    if request.mode is Mode.TOKENIZE:
        if len(request.inputs) != 1:
            raise ProtocolError("one input at a time can be tokenized over HTTP")
        # fields of vLLM and of llama.cpp
        body |= {"prompt": request.inputs[0], "content": request.inputs[0], "with_pieces": True}
        body |= {"add_special_tokens": True, "add_special": True, "return_token_strs": True}
    else:
        _check_supported(request)
        if request.messages:
            body["messages"] = request.messages
        else:
            body["prompt"] = request.inputs[0] if len(request.inputs) == 1 else list(request.inputs)
        body |= {**_options(request), "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
    return {name: value for name, value in {**body, **extra}.items() if value is not None or name not in extra}


def _options(request: Request) -> dict[str, object]:
    stopping, decoding = request.stopping, request.decoding.explicit
    options: dict[str, object] = {
        **msgspec.structs.asdict(request.sampling.explicit),
        "max_tokens": stopping.explicit.max_new_tokens,
        "repetition_penalty": decoding.repetition_penalty,  # vLLM
        "repeat_penalty": decoding.repetition_penalty,  # llama.cpp
        "n": 1,
        "stop": list(stopping.stop_sequences),
        "min_tokens": stopping.min_new_tokens or 0,
    }
    if request.method is Method.GREEDY:
        options["temperature"] = 0.0
    if options["seed"] is None:
        del options["seed"]
    if stopping.include_stop_sequence is not None:
        options["include_stop_str_in_output"] = stopping.include_stop_sequence
    if request.truncate_input_tokens:
        options["truncate_prompt_tokens"] = request.truncate_input_tokens
    if decoding.guided:
        options |= _guided(decoding.guided)
    wanted = request.wanted
    if wanted.token_logprobs or wanted.top_n_tokens or wanted.generated_tokens:
        # llama.cpp returns none for 0
        chat = {"logprobs": True, "top_logprobs": wanted.top_n_tokens}
        options |= chat if request.messages else {"logprobs": max(wanted.top_n_tokens, 1)}
    return options


def _guided(guided: Guided) -> dict[str, object]:
    if guided.guide is Guide.TEXT:
        return {}
    if guided.guide is Guide.JSON:
        return {"response_format": {"type": "json_object"}}
    if guided.guide is Guide.JSON_SCHEMA:
        try:
            schema = decode(guided.value, object)
        except Unreadable as error:
            raise ProtocolError(f"the JSON schema is not valid JSON: {error}") from error
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
    if guided.guide is Guide.GRAMMAR:
        return {"grammar": guided.value, "structured_outputs": {"grammar": guided.value}}
    value: Any = list(guided.choices) if guided.guide is Guide.CHOICE else guided.value
    return {"structured_outputs": {guided.guide.value: value}}


def _check_supported(request: Request) -> None:
    wanted = request.wanted
    asked = {
        "a prefix": request.prefix_id is not None,
        "an adapter (name it as the model)": request.adapter_id is not None,
        "a length penalty": request.decoding.length_penalty is not None,
        "a time limit of the server": bool(request.stopping.time_limit_ms),
        "the input back": wanted.input_text or wanted.input_tokens,
        "ranks of tokens": wanted.token_ranks,
    }
    missing = [name for name, is_asked in asked.items() if is_asked]
    if missing:
        raise ProtocolError(f"OpenAI's protocol cannot ask for {', '.join(missing)}")


# ---- answers


class _Top(msgspec.Struct):
    token: str
    logprob: float | None = None


class _Content(_Top):
    top_logprobs: list[_Top] | None = None
    bytes: list[int] | None = None

    @property
    def cut(self) -> bool:
        """True for a stop sequence, which is not part of the text; llama.cpp lists it only in streams."""
        return not self.token and self.bytes == []


class _Logprobs(msgspec.Struct):
    """Chats have `content`; completions the other three, or also `content` (llama.cpp)."""

    content: list[_Content] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None
    index: int | None = None  # only in streams


class _Message(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same field of other servers
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    completion_tokens_details: _Details | None = None


class Body(msgspec.Struct):
    """A whole answer, or an event of a stream."""

    id: str | None = None
    created: float | None = None
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Vector(msgspec.Struct):
    embedding: list[float] | str  # text: base64 of 32-bit floats
    index: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: _Usage | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Item(msgspec.Struct):
    """Of the output of /v1/responses: a message, reasoning or a call of a function."""

    type: str
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    name: str = ""
    arguments: str = ""


class _ResponseUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Response(msgspec.Struct):
    status: str = ""
    output: list[_Item] = []
    usage: _ResponseUsage | None = None
    error: Any = None


class _ResponseEvent(msgspec.Struct):
    type: str = ""
    delta: Any = None
    item: _Item | None = None
    output_index: int = 0
    response: _Response | None = None
    error: Any = None
    message: str = ""


class _Tokenized(msgspec.Struct):
    tokens: list[Any]
    count: int | None = None
    token_strs: list[str] | None = None


def answer_of(data: bytes, request: Request) -> Answer:
    """Decodes the body of a successful response. Raises ProtocolError."""
    if request.mode is Mode.TOKENIZE:
        found = _read(data, _Tokenized)
        pieces = [str(one["piece"]) for one in found.tokens if isinstance(one, dict) and "piece" in one]
        texts = found.token_strs or (pieces if len(pieces) == len(found.tokens) else None)
        count = len(found.tokens) if found.count is None else found.count
        return Answer(tokenizations=(Tokenization(count, tuple(texts) if texts is not None else None),))
    if request.mode is Mode.EMBED:
        return Answer(tuple(_vectors(data, len(request.inputs))))
    if request.path == RESPONSES:
        return Answer((_response(_read(data, _Response)),))
    if path_of(request) not in (COMPLETIONS, CHAT):
        _read(data, object)
        return Answer()
    body = _read(data, Body)
    if body.error is not None:
        return Answer(failure=failure_of("", body.error))
    choices = sorted(body.choices or [], key=lambda one: one.index)
    wanted = (len(request.inputs) or 1) * request.choices
    if len(choices) != wanted:
        raise ProtocolError(f"got {len(choices)} choices (expected {wanted}): {_shown(data)}")
    # For several inputs, usage is only the total.
    usage = body.usage if wanted == 1 else None
    return Answer(generations=tuple(_generation(choice, usage, body.model) for choice in choices))


def _vectors(data: bytes, wanted: int) -> Iterator[Generation]:
    found = _read(data, _Vectors)
    if sorted(one.index for one in found.data) != list(range(wanted)):
        raise ProtocolError(f"got {len(found.data)} embeddings (expected {wanted}, by index): {_shown(data)}")
    usage = found.usage if wanted == 1 else None
    for one in sorted(found.data, key=lambda vector: vector.index):
        values = one.embedding
        try:
            numbers = array("f", b64decode(values)).tolist() if isinstance(values, str) else values
        except ValueError as error:
            raise ProtocolError(f"an embedding is neither a list nor base64 of floats: {error}") from error
        yield Generation(input_count=usage.prompt_tokens if usage else None, vector=tuple(numbers))


def _response(found: _Response) -> Generation:
    """The answer in a body of /v1/responses, or in the last event of its stream."""
    ends = {"completed": StopReason.STOP, "incomplete": StopReason.MAX_TOKENS}
    if found.status not in ends:
        raise ProtocolError(f"status {found.status!r} of the response: {failure_of('', found.error).text}")
    usage = found.usage or _ResponseUsage()
    texts: dict[str, list[str]] = {"message": [], "reasoning": []}
    for item in found.output:
        texts.get(item.type, []).extend(part.text or "" for part in (*(item.content or ()), *(item.summary or ())))
    called = [item for item in found.output if item.type == "function_call"]
    return Generation(
        text="".join(texts["message"]),
        input_count=usage.input_tokens,
        generated_count=usage.output_tokens,
        stop_reason=ends[found.status] if not called else StopReason.TOOL_CALLS,
        reasoning="".join(texts["reasoning"]) or None,
        tool_calls=tuple(ToolCall(one.name, one.arguments, at) for at, one in enumerate(called)) or None,
    )


def response_message_of(data: bytes) -> Generation | Failure:
    """Decodes one event of a stream of /v1/responses; the last one has a stop reason. Raises ProtocolError."""
    event = _read(data, _ResponseEvent)
    if event.type in ("error", "response.failed"):
        return failure_of("", event.error or (event.response and event.response.error) or event.message)
    if event.type in ("response.completed", "response.incomplete"):
        whole = _response(event.response or _Response())
        return msgspec.structs.replace(whole, text=None, reasoning=None, tool_calls=None)
    if event.type == "response.output_text.delta":
        return Generation(text=str(event.delta))
    if event.type in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        return Generation(reasoning=str(event.delta))
    item = event.item
    if event.type == "response.output_item.done" and item is not None and item.type == "function_call":
        return Generation(tool_calls=(ToolCall(item.name, item.arguments, event.output_index),))
    return Generation()


def message_of(data: bytes) -> Generation | Failure:
    """Decodes one event of a stream. Raises ProtocolError."""
    body = _read(data, Body)
    if body.error is not None:
        return failure_of("", body.error)
    if body.choices is None:
        raise ProtocolError(f"an event has no choices: {_shown(data)}")
    if len(body.choices) > 1:
        raise ProtocolError(f"an event has {len(body.choices)} choices (expected 1): {_shown(data)}")
    choice = body.choices[0] if body.choices else _Choice()
    made = _generation(choice, body.usage, body.model)
    return msgspec.structs.replace(made, index=choice.index) if choice.index else made


def broken_rules(raw: Sequence[bytes], request: Request, stream: bool) -> Iterator[str]:
    """Rules of the protocol that a body, or the events of a stream, break in what the answer does not show."""
    if request.path == RESPONSES and stream and raw:
        deltas = "".join(one.text or "" for data in raw if isinstance(one := response_message_of(data), Generation))
        last = _read(raw[-1], _ResponseEvent).response
        if last is not None and _response(last).text != deltas:
            yield "the text of the last event differs from the deltas"
    if request.mode is Mode.TOKENIZE or path_of(request) not in (COMPLETIONS, CHAT):
        return
    bodies, most = [_read(data, Body) for data in raw], (len(request.inputs) or 1) * request.choices
    begun: set[int] = set()
    for place, body in enumerate(bodies):
        where = f"event {place}: " if stream else ""
        usage = body.usage or _Usage()
        total, parts = usage.total_tokens, (usage.prompt_tokens, usage.completion_tokens)
        if total is not None and None not in parts and total != sum(filter(None, parts)):
            yield f"{where}total_tokens is {total}, but the parts are {parts[0]} and {parts[1]}"
        for choice in body.choices or ():
            message, first = choice.delta or choice.message, choice.index not in begun
            begun.add(choice.index)
            if not 0 <= choice.index < most:
                yield f"{where}index {choice.index} of a choice (expected 0 to {most - 1})"
            if choice.delta is not None and first and choice.delta.role is None:
                yield f"{where}the first delta has no role"
            thought = message and (message.reasoning_content or message.reasoning)
            other = thought or (message and (message.tool_calls or message.refusal))
            if not stream and (message.content if message else choice.text) is None and not other:
                yield "the content is null, but there is no tool call, reasoning or refusal"
    times = [body.created for body in bodies if body.created is not None]
    if times != sorted(times):
        yield "`created` goes back in time"
    if len(ids := {body.id for body in bodies}) > 1:
        yield f"events have {len(ids)} different ids"


def _read(data: bytes, form: type[_T]) -> _T:
    try:
        return decode(data, form)
    except Unreadable as error:
        raise ProtocolError(f"{error}: {_shown(data)}") from error


def _generation(choice: _Choice, usage: _Usage | None, model: str | None) -> Generation:
    message = choice.delta or choice.message
    stop = None
    if choice.finish_reason is not None:
        stop = FINISH_REASONS.get(choice.finish_reason)
        if stop is None:
            known = ", ".join(FINISH_REASONS)
            raise ProtocolError(f"unknown finish_reason {choice.finish_reason!r}; known: {known}")
    calls = None
    if message and message.tool_calls:
        calls = tuple(
            ToolCall(function.name or "", function.arguments or "", place if one.index is None else one.index)
            for place, one in enumerate(message.tool_calls)
            for function in [one.function or _Function()]
        )
    return Generation(
        text=message.content if message else choice.text,
        input_count=usage.prompt_tokens if usage else None,
        generated_count=usage.completion_tokens if usage else None,
        stop_reason=stop,
        tokens=_tokens(choice.logprobs) if choice.logprobs else None,
        reasoning=(message.reasoning_content or message.reasoning) if message else None,
        tool_calls=calls,
        model=model if stop else None,  # once in a stream
        hidden_count=details.reasoning_tokens if usage and (details := usage.completion_tokens_details) else None,
    )


def _tokens(found: _Logprobs) -> tuple[Token, ...] | None:
    if found.content is not None:
        return tuple(
            Token(one.token, one.logprob, top=tuple(TopToken(top.token, top.logprob) for top in one.top_logprobs or ()))
            for one in found.content
            if not one.cut
        )
    if found.tokens is None:
        return None
    logprobs = found.token_logprobs or [None] * len(found.tokens)
    tops = found.top_logprobs or [None] * len(found.tokens)
    if not len(found.tokens) == len(logprobs) == len(tops):
        counts = f"{len(logprobs)} logprobs and {len(tops)} lists of top ones"
        raise ProtocolError(f"{len(found.tokens)} tokens have {counts}")
    return tokens_of(found.tokens, logprobs, tops)


def failure_of(code: str, error: Any, retry_after_s: float | None = None) -> Failure:
    """The failure for a server's error, in OpenAI's format or similar ones. Its own code is used if there is no HTTP
    status, as in the middle of a stream."""
    inner = error.get("error", error) if isinstance(error, dict) else error
    message = inner
    if isinstance(inner, dict):
        message = inner.get("message") or inner.get("detail") or inner
        code = code or str(inner.get("code") or inner.get("type") or "")
    text = message if isinstance(message, str) else msgspec.json.encode(message).decode()
    return Failure(code, text, Trouble.ANSWERED, retry_after_s)


def refusal_of(status: int, data: bytes, retry_after_s: float | None) -> Failure:
    """The failure for a response with a status other than 200."""
    try:
        found: Any = decode(data, object)
    except Unreadable:
        found = data.decode("utf-8", "replace").strip()[:1000]
    return failure_of(str(status), found, retry_after_s)


def _shown(data: bytes) -> str:
    return f"it begins with {data[:_SHOWN].decode('utf-8', 'replace')!r}"


DONE = b"[DONE]"


class Events:
    """Parses server-sent events from parts that may end anywhere, even inside a character."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> Iterator[bytes]:
        if not self._rest and part.startswith(b"data: ") and part.find(b"\n") == len(part) - 2 and part[-1:] == b"\n":
            if data := part[6:-2].removesuffix(b"\r"):  # the common case: one event of one line
                yield data
            return
        if b"\r" in part or self._rest.endswith(b"\r"):
            self._rest = (self._rest + part).replace(b"\r\n", b"\n")
        else:
            self._rest += part
        if b"\n\n" not in part and b"\n\n" not in self._rest:
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            if data := _event_data(event.split(b"\n")):
                yield data

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return self._rest.strip()


def _event_data(lines: Iterable[bytes]) -> bytes:
    found = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value.removeprefix(b" "))
        elif name == b"error":  # llama.cpp's format for an error inside a stream
            found.append(b'{"error": %s}' % value.strip())
    return b"\n".join(found)
