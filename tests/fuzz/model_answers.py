"""What a model server answers: whole bodies, streams of events, refusals."""

import json
import random
from collections.abc import Iterator

import msgspec

from fuzz import mutate
from fuzz.fuzzing import Kind
from seatrial.kinds.serving.driver.openai_format import (
    Events,
    ProtocolError,
    answer_of,
    message_of,
    refusal_of,
)
from seatrial.kinds.serving.generation import Answer, Failure, Generation
from seatrial.kinds.serving.request import Mode, Request

TOP = [{"token": " a", "logprob": -0.1, "bytes": [32, 97], "top_logprobs": [{"token": " b", "logprob": -2.5}]}]
CHAT = {
    "id": "c", "object": "chat.completion", "model": "tiny",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": " a"},
                 "logprobs": {"content": TOP}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}  # fmt: skip
TEXT = {
    "choices": [{"index": 0, "text": " a", "finish_reason": "length", "logprobs": {
        "tokens": [" a"], "token_logprobs": [-0.1], "top_logprobs": [{" a": -0.1, " b": None}], "text_offset": [0]}}],
}  # fmt: skip
DELTA = {"choices": [{"index": 0, "delta": {"content": " a"}, "finish_reason": None}]}
TOKENS = {"tokens": [1, 2, {"id": 3, "piece": "x"}], "count": 3, "token_strs": ["a", "b", "c"]}
ERROR = {"error": {"message": "too long", "type": "invalid_request_error", "code": 400}}
STREAM = b"".join(b"data: %s\n\n" % json.dumps(DELTA).encode() for _ in range(3)) + b": ping\n\ndata: [DONE]\n\n"


def of_models() -> Iterator[Kind]:
    bodies = [json.dumps(one).encode() for one in (CHAT, TEXT, ERROR)]
    yield Kind(
        "models-answers", bodies, mutate.json_text, lambda data: _answer(data, Request(inputs=("x",))), (ProtocolError,)
    )
    tokens = Request(inputs=("x",), mode=Mode.TOKENIZE)
    yield Kind(
        "models-tokens",
        [json.dumps(TOKENS).encode()],
        mutate.json_text,
        lambda data: _answer(data, tokens),
        (ProtocolError,),
    )
    yield Kind("models-refusals", bodies, mutate.json_text, lambda data: refusal_of(500, data, None))
    yield Kind("models-streams", [STREAM], _stream_text, _stream, (ProtocolError,))


def _stream_text(data: bytes, rng: random.Random) -> bytes:
    events = data.split(b"\n\n")
    at = rng.randrange(3)
    events[at] = b"data: " + mutate.json_text(events[at].removeprefix(b"data: "), rng)
    return b"\n\n".join(events)


def _answer(data: bytes, request: Request) -> object:
    return msgspec.json.encode(answer_of(data, request))


def _stream(data: bytes) -> object:
    events, messages = Events(), list[Generation]()
    for start in range(0, len(data), 100):
        for event in events.feed(data[start : start + 100]):
            if event != b"[DONE]":
                found = message_of(event)
                if isinstance(found, Failure):
                    return msgspec.json.encode(Answer(failure=found, messages=tuple(messages)))
                messages.append(found)
    return msgspec.json.encode(Answer(messages=tuple(messages)))
