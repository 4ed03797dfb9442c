"""Faults of model servers: a proxy in front of llama.cpp that breaks requests and answers in one way each.

The path of a request names its fault: `http://127.0.0.1:PORT/wrong-usage/v1/completions`. `none` breaks nothing. Faults
of the model itself are servers with other weights, which the proxy asks instead."""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import xllamacpp
from aiohttp import web

from kinds.serving.answers.tiny_llama import FILE, weights_in

Json = dict[str, Any]
EVERY = 10  # of the requests of a load, one in so many is faulty
MOST_TOKENS = 256  # of a prompt that is cut
LLAMA_BOS = 1
TOKEN_S = 0.1  # time of each token of a paced server
ERROR = {"error": {"message": "the engine is dead", "type": "internal_error", "code": 500}}


# ---- the model, and copies of it with wrong weights


def _noisy(size: float) -> Callable[[Mapping[str, Any]], None]:
    def edit(weights: Mapping[str, Any]) -> None:
        values = weights["blk.0.ffn_up.weight"]
        values *= (1 + size * np.random.default_rng(1).standard_normal(values.shape)).astype(np.float32)

    return edit


def _without_a_layer(weights: Mapping[str, Any]) -> None:
    for name in ("attn_output", "ffn_down"):  # nothing is added to what the layer was given
        weights[f"blk.1.{name}.weight"][:] = 0


MODELS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "1-percent-noise-on-one-tensor": _noisy(0.01),
    "0.1-percent-noise-on-one-tensor": _noisy(0.001),
    "one-layer-skipped": _without_a_layer,
}
ROPE = "wrong-rope-base"


class Models:
    """Servers in this process, each started when it is first asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, Any] = {}

    def url(self, fault: str) -> str:
        name = fault if fault in (*MODELS, ROPE) else ""
        if name not in self._servers:
            parameters = xllamacpp.CommonParams()
            parameters.model.path = str(self._weights(name))
            parameters.model_alias = ["tiny"]
            parameters.hostnames, parameters.port = ["127.0.0.1"], 0
            parameters.n_ctx, parameters.n_parallel, parameters.warmup = 8 * 1024, 8, False
            parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
            parameters.verbosity = 0
            if name == ROPE:
                parameters.rope_freq_base = 8000.0
            self._servers[name] = xllamacpp.Server(parameters)
        return str(self._servers[name].listening_address)

    def _weights(self, name: str) -> Path:
        if name not in MODELS:
            return FILE
        data = bytearray(FILE.read_bytes())
        MODELS[name](weights_in(data))
        path = self._folder / f"{name}.gguf"
        path.write_bytes(data)
        return path


# ---- parts of an answer


def holder(choice: Json) -> tuple[Json, str]:
    """The map that has the text of a choice, and the key of the text."""
    inner = choice.get("message") or choice.get("delta")
    return (inner, "content") if inner is not None else (choice, "text")


def texts(events: list[Json]) -> list[int]:
    """Events with text."""
    found = []
    for index, event in enumerate(events):
        if event.get("choices"):
            inner, key = holder(event["choices"][0])
            found += [index] if inner.get(key) else []
    return found


@dataclass
class Asked:
    """A request, and what the proxy remembers for its fault."""

    body: Json
    path: str
    number: int  # of the requests with this fault, from 0
    memory: dict[Any, Any]

    @property
    def chat(self) -> bool:
        return "messages" in self.body

    @property
    def prompt(self) -> str:
        return "".join(one["content"] or "" for one in self.body["messages"]) if self.chat else str(self.body["prompt"])


Changed = Json | list[Json]  # a whole answer, or the events of a stream without [DONE]


@dataclass(frozen=True)
class Fault:
    ask: Callable[[Asked], Json] | None = None  # the request that the server gets instead
    change: Callable[[Changed, Asked], Changed] | None = None
    load: bool = False  # only some of many requests are faulty
    how: frozenset[str] = field(default_factory=frozenset)  # what the proxy does with the connection
    pace_s: float = 0.0  # time between two events of a stream


FAULTS: dict[str, Fault] = {"none": Fault(), "none-paced": Fault(pace_s=TOKEN_S)}


def _choices(change: Callable[[Json, Asked], None]) -> Callable[[Changed, Asked], Changed]:
    """Changes each choice, of a whole answer and of each event."""

    def run(answer: Changed, asked: Asked) -> Changed:
        for body in answer if isinstance(answer, list) else [answer]:
            for choice in body.get("choices") or ():
                change(choice, asked)
        return answer

    return run


def _usage(change: Callable[[Json], Json | None]) -> Callable[[Changed, Asked], Changed]:
    def run(answer: Changed, asked: Asked) -> Changed:
        for body in answer if isinstance(answer, list) else [answer]:
            if body.get("usage") and (usage := change(body.pop("usage"))) is not None:
                body["usage"] = {**usage, "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"]}
        return answer

    return run


def _events(change: Callable[[list[Json]], list[Json]]) -> Callable[[Changed, Asked], Changed]:
    """Changes only streams."""
    return lambda answer, asked: change(answer) if isinstance(answer, list) else answer


def _sometimes(change: Callable[[Changed, Asked], Changed]) -> Callable[[Changed, Asked], Changed]:
    return lambda answer, asked: change(answer, asked) if asked.number % EVERY == EVERY - 1 else answer


def _whole_text(change: Callable[[str, Asked], str]) -> Callable[[Changed, Asked], Changed]:
    """Changes the text of an answer; that of a stream is then in its first event with text."""

    def run(answer: Changed, asked: Asked) -> Changed:
        bodies = answer if isinstance(answer, list) and asked.body.get("n", 1) == 1 else [answer]
        found = [holder(body["choices"][0]) for body in bodies if isinstance(body, dict) and body.get("choices")]
        found = [(inner, key) for inner, key in found if inner.get(key)]
        if found:
            made = change("".join(inner[key] for inner, key in found), asked)
            for inner, key in found:
                inner[key] = ""
            found[0][0][found[0][1]] = made
        return answer

    return run


def _edited(**fields: Any) -> Callable[[Asked], Json]:
    return lambda asked: {**asked.body, **fields}


# ---- faults that change the request


def _without_template(asked: Asked) -> Json:
    """Of the messages only their text, which the server does not see as a chat."""
    if not asked.chat:
        return asked.body
    return {**asked.body, "messages": None, "prompt": asked.prompt}


def _one_more(asked: Asked) -> Json:
    return {**asked.body, "max_tokens": asked.body["max_tokens"] + 1}


def _other_seed(asked: Asked) -> Json:
    return {**asked.body, "seed": random.randrange(1 << 30)} if "seed" in asked.body else asked.body


FAULTS |= {
    "chat-template-dropped": Fault(_without_template, how=frozenset({"as completion"})),
    "temperature-ignored": Fault(_edited(temperature=0)),
    "stop-sequence-ignored": Fault(_edited(stop=[])),
    "max-tokens-off-by-one": Fault(_one_more),
    "repetition-penalty-on": Fault(_edited(repeat_penalty=1.1)),
    "seed-ignored": Fault(_other_seed),
    "n-ignored": Fault(_edited(n=1)),
    "prompt-truncated-at-256-tokens": Fault(how=frozenset({"truncate"})),
    "bos-added": Fault(how=frozenset({"bos"})),
    **{name: Fault() for name in (*MODELS, ROPE)},
}


# ---- faults that change the answer


def _include_stop(choice: Json, asked: Asked) -> None:
    if choice.get("finish_reason") == "stop" and asked.body.get("stop"):
        inner, key = holder(choice)
        inner[key] = (inner.get(key) or "") + asked.body["stop"][0]


def _other_reason(choice: Json, asked: Asked) -> None:
    if choice.get("finish_reason"):
        choice["finish_reason"] = "stop" if choice["finish_reason"] == "length" else "length"


def _listed(choice: Json) -> list[Json]:
    return (choice.get("logprobs") or {}).get("content") or []


def _shift(answer: Changed, asked: Asked) -> Changed:
    bodies = answer if isinstance(answer, list) else [answer]
    listed = [one for body in bodies for choice in body.get("choices") or () for one in _listed(choice)]
    numbers = [(one["logprob"], one["top_logprobs"]) for one in listed]
    for one, (logprob, top) in zip(listed, numbers[1:] + numbers[:1], strict=True):
        one["logprob"], one["top_logprobs"] = logprob, top
    return answer


def _middle(events: list[Json]) -> int:
    found = texts(events)
    return found[len(found) // 2] if found else 0


def _differently(events: list[Json]) -> list[Json]:
    if texts(events):
        inner, key = holder(events[_middle(events)]["choices"][0])
        inner[key] = inner[key].swapcase() if inner[key].swapcase() != inner[key] else "_"
    return events


def _reordered(events: list[Json]) -> list[Json]:
    found = [at for at in texts(events) if at + 1 in texts(events)]
    if found:
        at = found[len(found) // 2]
        events[at], events[at + 1] = events[at + 1], events[at]
    return events


def _decreasing(events: list[Json]) -> list[Json]:
    return [{**event, "created": event["created"] - at} for at, event in enumerate(events)]


def _wrong_index(choice: Json, asked: Asked) -> None:
    choice["index"] += 1


def _without_role(events: list[Json]) -> list[Json]:
    for event in events:
        for choice in event.get("choices") or ():
            choice.get("delta", {}).pop("role", None)
    return events


def _null(choice: Json, asked: Asked) -> None:
    inner, key = holder(choice)
    if inner.get(key) == "" and "delta" not in choice:
        inner[key] = None


def _other_call(events: list[Json]) -> list[Json]:
    for event in events:
        for choice in event.get("choices") or ():
            for call in choice.get("delta", {}).get("tool_calls") or ():
                if "name" in call.get("function", {}):
                    call["function"]["name"] = "erase"
    return events


def _leaked(choice: Json, asked: Asked) -> None:
    inner, _ = holder(choice)
    if inner.get("reasoning_content"):
        inner["content"] = inner.pop("reasoning_content") + (inner.get("content") or "")


def _against_schema(text: str, asked: Asked) -> str:
    return '{"colour": 7}' if "response_format" in asked.body else text


def _from_cache(answer: Changed, asked: Asked) -> Changed:
    """The answer to the first request that began with the same words and wanted the same kind of answer."""
    key = (asked.path, isinstance(answer, list), asked.prompt[:12])
    return json.loads(asked.memory.setdefault(key, json.dumps(answer)))  # type: ignore[no-any-return]


def _empty(answer: Changed, asked: Asked) -> Changed:
    if isinstance(answer, list):
        return [event for at, event in enumerate(answer) if at not in texts(answer)]
    return _whole_text(lambda *_: "")(answer, asked)


def _one_token(answer: Changed, asked: Asked) -> Changed:
    if isinstance(answer, list):
        kept = texts(answer)[:1]
        answer = [event for at, event in enumerate(answer) if at in kept or at not in texts(answer)]
    else:
        answer = _whole_text(lambda text, _: text[:2])(answer, asked)
    return _usage(lambda usage: {**usage, "completion_tokens": 1})(answer, asked)


def _other_model(answer: Changed, asked: Asked) -> Changed:
    for body in answer if isinstance(answer, list) else [answer]:
        body["model"] = "another-model"
    return answer


def _error_within(events: list[Json]) -> list[Json]:
    return [*events[:2], ERROR]


FAULTS |= {
    "stop-sequence-included": Fault(change=_choices(_include_stop)),
    "wrong-finish-reason": Fault(change=_choices(_other_reason)),
    "wrong-usage": Fault(change=_usage(lambda usage: {**usage, "completion_tokens": usage["completion_tokens"] + 1})),
    "missing-usage": Fault(change=_usage(lambda _: None)),
    "tokens-counted-without-the-prompt": Fault(change=_usage(lambda usage: {**usage, "prompt_tokens": 0})),
    "logprobs-shifted": Fault(change=_shift),
    "stream-differs-from-unary": Fault(change=_events(_differently)),
    "duplicate-chunk": Fault(change=_events(lambda events: [*events[: (at := _middle(events)) + 1], *events[at:]])),
    "missing-chunk": Fault(change=_events(lambda events: [*events[: (at := _middle(events))], *events[at + 1 :]])),
    "reordered-chunk": Fault(change=_events(_reordered)),
    "half-characters-lost": Fault(
        change=_whole_text(lambda text, _: text.encode("ascii", "replace").decode().replace("?", "\ufffd"))
    ),
    "answers-swapped": Fault(how=frozenset({"swap"})),
    "logprobs-of-another-request": Fault(how=frozenset({"swap", "only logprobs"})),
    "previous-answer-for-a-shared-prefix": Fault(change=_from_cache),
    "error-body-with-200": Fault(change=lambda *_: ERROR),
    "error-inside-a-stream": Fault(change=_events(_error_within)),
    "hang-in-1-of-20": Fault(load=True, how=frozenset({"hang"})),
    "empty-answers": Fault(change=_sometimes(_empty), load=True),
    "one-token-answers": Fault(change=_sometimes(_one_token), load=True),
    "repeated-text": Fault(
        change=_sometimes(_whole_text(lambda text, _: (text[:3] * len(text))[: len(text)])), load=True
    ),
    "wrong-model-name": Fault(change=_other_model),
    "tool-call-changed-in-stream": Fault(change=_events(_other_call)),
    "reasoning-leaked-into-content": Fault(change=_choices(_leaked)),
    "json-schema-violated": Fault(change=_whole_text(_against_schema)),
    "echo-of-the-prompt": Fault(change=_whole_text(lambda text, asked: asked.prompt + text)),
    "trailing-whitespace": Fault(change=_whole_text(lambda text, _: text + " \n")),
    "created-goes-back": Fault(change=_events(_decreasing)),
    "done-missing": Fault(how=frozenset({"no done"})),
    "wrong-content-type": Fault(how=frozenset({"text/plain"})),
    "chunk-index-wrong": Fault(change=_choices(_wrong_index)),
    "role-missing-in-first-delta": Fault(change=_events(_without_role)),
    "null-content-instead-of-empty": Fault(change=_choices(_null)),
    "connection-closed-before-the-last-chunk": Fault(how=frozenset({"close"})),
    "15-percent-slower": Fault(pace_s=1.15 * TOKEN_S),
}


# ---- the proxy


class Proxy:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._memory: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._in_flight: defaultdict[str, int] = defaultdict(int)
        self._waiting: dict[Any, tuple[Changed, asyncio.Future[Changed]]] = {}
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name, path = request.match_info["fault"], "/" + request.match_info["path"]
        if request.method == "GET":
            return web.json_response({})
        body = await request.json()
        fault = FAULTS[name] if body.get("max_tokens") != 1 else FAULTS["none"]  # it gets ready
        asked = Asked(body, path, self._counts[name], self._memory[name])
        self._counts[name] += 1
        self._in_flight[name] += 1
        try:
            return await self._answer(request, name, fault, asked)
        finally:
            self._in_flight[name] -= 1

    async def _answer(self, request: web.Request, name: str, fault: Fault, asked: Asked) -> web.StreamResponse:
        if "hang" in fault.how and asked.number == 60:
            await asyncio.sleep(3600)
        upstream, path = self._models.url(name), asked.path
        body = fault.ask(asked) if fault.ask else asked.body
        tokens = 0
        if fault.how & {"truncate", "bos"} and "prompt" in body and isinstance(body["prompt"], str):
            body, tokens = await self._retokenized(upstream, body, fault)
        as_completion = "as completion" in fault.how and asked.chat
        if as_completion:
            path = "/v1/completions"
            body = {name: value for name, value in body.items() if name not in ("messages", "top_logprobs")}
            body["logprobs"] = 5
        async with self.session.post(upstream + path, json=body) as got:
            data, kind = await got.read(), got.content_type
            if got.status != 200 or kind not in ("application/json", "text/event-stream"):
                return web.Response(body=data, status=got.status, content_type=kind)
        answer: Changed = json.loads(data) if kind == "application/json" else list(_parse(data))
        if as_completion:
            answer = _as_chat(answer)
        if tokens:
            answer = _usage(lambda usage: {**usage, "prompt_tokens": tokens})(answer, asked)
        if "choices" not in (answer[0] if isinstance(answer, list) else answer):
            return web.json_response(answer)  # as of /tokenize
        answer = _with_reasoning(_with_call(answer, asked), asked)
        if "swap" in fault.how and self._in_flight[name] > 1:
            answer = await self._swapped(name, fault, answer, asked)
        if fault.change:
            answer = fault.change(answer, asked)
        if isinstance(answer, dict):
            return web.json_response(
                answer, content_type="text/plain" if "text/plain" in fault.how else "application/json"
            )
        return await self._stream(request, fault, answer)

    async def _stream(self, request: web.Request, fault: Fault, events: list[Json]) -> web.StreamResponse:
        kind = "text/plain" if "text/plain" in fault.how else "text/event-stream"
        response = web.StreamResponse(headers={"Content-Type": kind})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for event in events[: -1 if "close" in fault.how else None]:
            await asyncio.sleep(fault.pace_s)
            await response.write(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")
        if "close" in fault.how:
            assert request.transport is not None
            request.transport.close()
            return response
        if "no done" not in fault.how:
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _retokenized(self, upstream: str, body: Json, fault: Fault) -> tuple[Json, int]:
        """The request with its prompt as tokens, changed, and their true number."""
        async with self.session.post(f"{upstream}/tokenize", json={"content": body["prompt"]}) as got:
            tokens = (await got.json())["tokens"]
        changed = [LLAMA_BOS, *tokens] if "bos" in fault.how else tokens[-MOST_TOKENS:]
        return {**body, "prompt": changed}, len(tokens)

    async def _swapped(self, name: str, fault: Fault, answer: Changed, asked: Asked) -> Changed:
        """The answer to another request of the same kind that is in flight; its own if there is none within 2 s."""
        key = (name, asked.path, isinstance(answer, list))
        other = self._waiting.pop(key, None)
        if other is None:
            arrived: asyncio.Future[Changed] = asyncio.get_running_loop().create_future()
            self._waiting[key] = answer, arrived
            try:
                return await asyncio.wait_for(arrived, 2)
            except TimeoutError:
                self._waiting.pop(key, None)
                return answer
        theirs, arrived = other
        if "only logprobs" in fault.how:
            _exchange_logprobs(answer, theirs)
            arrived.set_result(theirs)
            return answer
        arrived.set_result(answer)
        return theirs


def _exchange_logprobs(one: Changed, other: Changed) -> None:
    def listed(answer: Changed) -> list[Json]:
        bodies = answer if isinstance(answer, list) else [answer]
        return [item for body in bodies for choice in body.get("choices") or () for item in _listed(choice)]

    for first, second in zip(listed(one), listed(other), strict=False):
        for key in ("logprob", "top_logprobs"):
            first[key], second[key] = second[key], first[key]


def _parse(data: bytes) -> Iterator[Json]:
    for line in data.decode().split("\n\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _as_chat(answer: Changed) -> Changed:
    """A completion in the form of a chat."""
    if isinstance(answer, dict):
        for choice in answer["choices"]:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return answer
    for at, event in enumerate(answer):
        for choice in event["choices"]:
            choice["delta"] = {**({"role": "assistant"} if at == 0 else {}), "content": choice.pop("text")}
    return answer


def _with_call(answer: Changed, asked: Asked) -> Changed:
    """The model knows no tools: if there are some, the proxy calls the first one."""
    if not asked.body.get("tools"):
        return answer
    call = {"id": "call_1", "type": "function", "function": {"name": "paint", "arguments": '{"color": "red"}'}}
    if isinstance(answer, dict):
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {**answer, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    pieces = [{"name": "paint", "arguments": ""}, {"arguments": '{"color": '}, {"arguments": '"red"}'}]
    deltas = [
        {"role": "assistant", "content": None},
        *({"tool_calls": [{"index": 0, "function": one}]} for one in pieces),
    ]
    made = [{"index": 0, "delta": delta, "finish_reason": None} for delta in [*deltas, {}]]
    made[-1]["finish_reason"] = "tool_calls"
    return [*({**answer[0], "choices": [choice]} for choice in made), answer[-1]]


def _with_reasoning(answer: Changed, asked: Asked) -> Changed:
    """The model cannot think: for a prompt that asks for it, the proxy adds the same thoughts to every answer."""
    if not asked.chat or "think" not in asked.prompt:
        return answer
    if isinstance(answer, dict):
        answer["choices"][0]["message"]["reasoning_content"] = "Let me see."
        return answer
    head = json.loads(json.dumps(answer[0]))
    head["choices"][0]["delta"] = {"reasoning_content": "Let me see."}
    return [answer[0], head, *answer[1:]]


@asynccontextmanager
async def fault_proxy(models: Models) -> AsyncIterator[str]:
    """Its address. A fault follows as the first part of the path."""
    proxy = Proxy(models)
    application = web.Application(client_max_size=1 << 24)
    application.router.add_route("*", "/{fault}/{path:.*}", proxy.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await proxy.session.close()
        await runner.cleanup()
