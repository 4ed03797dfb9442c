"""OpenAI's HTTP protocol: encodes neutral requests, and decodes bodies and stream events into neutral answers. Pure.

Every option that changes the generation is sent, also if it is off, because servers have different defaults. This
includes fields of vLLM and llama.cpp; for servers that reject unknown fields, `server.extra` removes them with null."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.kinds.serving.generation import (
    Answer,
    Failure,
    Generation,
    Guide,
    Guided,
    Method,
    Mode,
    Request,
    StopReason,
    Token,
    Tokenization,
    TopToken,
    Trouble,
)

_T = TypeVar("_T")
COMPLETIONS, CHAT, TOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize"
_SHOWN = 120  # characters shown of an invalid response
_STOPS = {"length": StopReason.MAX_TOKENS, "stop": StopReason.STOP, "tool_calls": StopReason.STOP}


class ProtocolError(Exception):
    """The protocol cannot express the request, or the response violates it; the message says how."""


# ---- requests


def path_of(request: Request) -> str:
    if request.mode is Mode.TOKENIZE:
        return TOKENIZE
    return CHAT if request.messages else COMPLETIONS


def body_of(request: Request, model: str, stream: bool, extra: Mapping[str, object]) -> dict[str, object]:
    body: dict[str, object] = {"model": request.model or model}
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
    sampling, stopping, decoding = request.sampling.explicit, request.stopping, request.decoding.explicit
    options: dict[str, object] = {
        "max_tokens": stopping.explicit.max_new_tokens,
        "temperature": 0.0 if request.method is Method.GREEDY else sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "typical_p": sampling.typical_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": decoding.repetition_penalty,  # vLLM
        "repeat_penalty": decoding.repetition_penalty,  # llama.cpp
        "n": 1,
        "stop": list(stopping.stop_sequences),
        "min_tokens": stopping.min_new_tokens or 0,
    }
    if sampling.seed is not None:
        options["seed"] = sampling.seed
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


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


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
    body = _read(data, _Body)
    if body.error is not None:
        return Answer(failure=failure_of("", body.error))
    choices = sorted(body.choices or [], key=lambda one: one.index)
    wanted = len(request.inputs) or 1
    if len(choices) != wanted:
        came = f"got {len(choices)} choices for {wanted} input{'s' if wanted > 1 else ''}"
        raise ProtocolError(f"{came}: {_shown(data)}")
    # For several inputs, usage is only the total.
    usage = body.usage if wanted == 1 else None
    return Answer(generations=tuple(_generation(choice, usage) for choice in choices))


def message_of(data: bytes) -> Generation | Failure:
    """Decodes one event of a stream. Raises ProtocolError."""
    body = _read(data, _Body)
    if body.error is not None:
        return failure_of("", body.error)
    if body.choices is None:
        raise ProtocolError(f"an event has no choices: {_shown(data)}")
    if len(body.choices) > 1:
        raise ProtocolError(f"an event has {len(body.choices)} choices (expected 1): {_shown(data)}")
    return _generation(body.choices[0] if body.choices else _Choice(), body.usage)


def _read(data: bytes, form: type[_T]) -> _T:
    try:
        return decode(data, form)
    except Unreadable as error:
        raise ProtocolError(f"{error}: {_shown(data)}") from error


def _generation(choice: _Choice, usage: _Usage | None) -> Generation:
    message = choice.delta or choice.message
    stop = None
    if choice.finish_reason is not None:
        stop = _STOPS.get(choice.finish_reason)
        if stop is None:
            raise ProtocolError(f"unknown finish_reason {choice.finish_reason!r}; known: {', '.join(_STOPS)}")
    return Generation(
        text=message.content if message else choice.text,
        input_count=usage.prompt_tokens if usage else None,
        generated_count=usage.completion_tokens if usage else None,
        stop_reason=stop,
        tokens=_tokens(choice.logprobs) if choice.logprobs else None,
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
    made = []
    for text, logprob, top in zip(found.tokens, logprobs, tops, strict=True):
        likeliest_first = sorted((top or {}).items(), key=lambda item: math.inf if item[1] is None else -item[1])
        made.append(Token(text, logprob, top=tuple(TopToken(*item) for item in likeliest_first)))
    return tuple(made)


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
