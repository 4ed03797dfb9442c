"""Embeddings and responses of llama.cpp as things under test: recorded, compared, and with planted faults."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import xllamacpp
from aiohttp import web
from llama import model
from trial_in_process import cell_of, judged, record

from seatrial.kinds.serving.answers import tolerance_for
from seatrial.kinds.serving.answers.judge import compare_vectors
from seatrial.kinds.serving.driver.openai_format import ProtocolError, answer_of, response_message_of
from seatrial.kinds.serving.generation import Failure, Generation, StopReason, ToolCall
from seatrial.kinds.serving.request import EMBEDDINGS, Mode, Request

CASES = """
- {name: one text, input: What is a module?}
- {name: two texts, input: [A table, The import system of Python]}
"""
RESPONSES = """
- {name: a response, path: /v1/responses, input: What is a module?, max_output_tokens: 6}
"""


def embedding_server(precision: str = "f32", unified: bool = True) -> Any:
    """With one cache for all slots, unless it is not `unified`."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model(precision))
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.verbosity = 8 * 512, 8, False, 0
    parameters.cpuparams.n_threads = 1
    parameters.embedding, parameters.pooling_type, parameters.kv_unified = True, 1, unified
    return xllamacpp.Server(parameters)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = embedding_server()
    yield str(made.listening_address)
    del made


@asynccontextmanager
async def changed(url: str, change: Any) -> AsyncIterator[str]:
    """The address of a proxy that changes each body, as JSON, or each event."""

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
            session.post(url + request.path, json=body) as got,
        ):
            data, kind = await got.text(), got.content_type
        if kind == "application/json":
            return web.json_response(change(json.loads(data), body))
        events = [change(json.loads(line[6:]), body) for line in data.splitlines() if line.startswith("data: ")]
        text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events if one)
        return web.Response(text=text, content_type="text/event-stream")

    application = web.Application()
    application.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def failures(found: Any) -> dict[str, str]:
    return {f"{one.step} {one.check}": one.message for one in found.findings if not one.verdict.good}


async def test_recorded_embeddings_are_the_same_alone_and_in_a_batch(server: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES)
    await record(tmp_path, server, cases)
    assert "vector" in (tmp_path / "cases.answers.yaml").read_text()
    found = await judged(cell_of(tmp_path, server, cases), tmp_path)
    assert failures(found) == {}
    ways = sorted(one.check for one in found.findings if one.step == "case one text")
    assert ways == ["unary", "unary in a crowd", "unary in a crowd = unary"]
    for precision in ("f16", "q8_0"):
        other = embedding_server(precision)
        address = str(other.listening_address)
        good = cell_of(tmp_path, address, cases, compare={"precision": precision})
        assert failures(await judged(good, tmp_path)) == {}, precision
        strict = failures(await judged(cell_of(tmp_path, address, cases), tmp_path))
        assert (precision == "q8_0") == any("cosine" in text for text in strict.values()), strict


async def test_batches_that_llama_cpp_mixes_up_are_found(server: str, tmp_path: Path) -> None:
    """With a cache for each slot, the mean of a text depends on the texts beside it (xllamacpp 2026.10)."""
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES)
    mixing = embedding_server(unified=False)
    await record(tmp_path, str(mixing.listening_address), cases)
    found = failures(await judged(cell_of(tmp_path, str(mixing.listening_address), cases), tmp_path))
    assert "cosine 0." in found["case two texts unary in a crowd = unary"]
    assert "case two texts unary" not in found


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("shorter", "63 dimensions (expected 64)"),
        ("longer vector", "the vector has the length 2 (expected 1)"),
        ("noise", "cosine 0.99"),
        ("swapped", "cosine"),
        ("batch", "cosine"),
        ("one missing", "embeddings (expected"),
    ],
)
async def test_a_wrong_embedding_is_found(server: str, tmp_path: Path, fault: str, said: str) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES)
    await record(tmp_path, server, cases)

    def change(body: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        data = body["data"]
        for one in data:
            vector = one["embedding"]
            if fault == "shorter":
                vector.pop()
            elif fault == "longer vector":
                one["embedding"] = [2 * value for value in vector]
            elif fault == "noise" or (fault == "batch" and len(data) > 1):
                one["embedding"] = [value + (0.01 if at % 2 else -0.01) for at, value in enumerate(vector)]
        if fault == "swapped" and len(data) > 1:
            data[0]["embedding"], data[1]["embedding"] = data[1]["embedding"], data[0]["embedding"]
        if fault == "one missing" and len(data) > 1:
            data.pop()
        return body

    async with changed(server, change) as url:
        found = failures(await judged(cell_of(tmp_path, url, cases), tmp_path))
    assert any(said in text for text in found.values()), found
    if fault == "batch":
        assert "case one text unary" not in found
        assert "case one text unary in a crowd" in found


def test_vectors_are_compared_by_direction_and_length() -> None:
    f32 = tolerance_for("f32")
    assert compare_vectors((1.0, 0.0), (1.0, 0.0), f32).passes
    assert compare_vectors((1.0, 0.0), (math.cos(0.001), math.sin(0.001)), f32).passes
    assert not compare_vectors((1.0, 0.0), (math.cos(0.003), math.sin(0.003)), f32).passes
    assert not compare_vectors((1.0, 0.0), (0.0, 0.0), f32).passes
    assert compare_vectors((0.0, 0.0), (0.0, 0.0), f32).passes


def test_embeddings_as_base64_are_read_and_others_refused() -> None:
    asked = Request(inputs=("a",), mode=Mode.EMBED, path=EMBEDDINGS)
    (one,) = answer_of(b'{"data": [{"index": 0, "embedding": "AACAPwAAAMA="}]}', asked).generations
    assert one.vector == (1.0, -2.0)
    for bad in (b'{"data": [{"index": 0, "embedding": "AAA"}]}', b'{"data": [{"index": 1, "embedding": [1]}]}'):
        with pytest.raises(ProtocolError):
            answer_of(bad, asked)


async def test_recorded_responses_are_the_same_whole_and_as_a_stream(server: str, tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(RESPONSES)
    await record(tmp_path, server, cases)
    found = await judged(cell_of(tmp_path, server, cases), tmp_path)
    assert failures(found) == {}
    assert {one.check for one in found.findings if one.step == "case a response"} >= {
        "unary",
        "stream",
        "stream = unary",
    }

    def lost(event: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        return {} if event.get("delta") else event

    def unfinished(event: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        return {} if event.get("type") == "response.completed" else event

    for change, said in ((lost, "differs"), (unfinished, "ended without response.completed")):
        async with changed(server, change) as url:
            bad = failures(await judged(cell_of(tmp_path, url, cases), tmp_path))
        assert said in bad["case a response stream"]
        assert "case a response unary" not in bad
    await asyncio.sleep(0)


def test_calls_reasoning_ends_and_errors_of_responses_are_read() -> None:
    call = {"type": "function_call", "name": "paint", "arguments": '{"color": "red"}'}
    output = [{"type": "reasoning", "summary": [{"text": "hm"}]}, call]
    body = {"status": "completed", "output": output, "usage": {"input_tokens": 3, "output_tokens": 4}}
    asked = Request(inputs=("a",), path="/v1/responses")
    expected = Generation(
        "", 3, 4, StopReason.TOOL_CALLS, reasoning="hm", tool_calls=(ToolCall("paint", call["arguments"]),)
    )
    assert answer_of(json.dumps(body).encode(), asked).generations == (expected,)

    def event(**fields: Any) -> Generation | Failure:
        return response_message_of(json.dumps(fields).encode())

    assert event(type="response.output_item.done", item=call).tool_calls == expected.tool_calls  # type: ignore[union-attr]
    assert event(type="response.incomplete", response={"status": "incomplete"}) == Generation(
        stop_reason=StopReason.MAX_TOKENS
    )
    assert event(type="response.reasoning_text.delta", delta="hm") == Generation(reasoning="hm")
    failed = event(type="response.failed", response={"status": "failed", "error": {"message": "no"}})
    assert isinstance(failed, Failure)
    assert failed.message == "no"
    with pytest.raises(ProtocolError, match="status 'failed'"):
        answer_of(b'{"status": "failed", "error": {"message": "no"}}', asked)
