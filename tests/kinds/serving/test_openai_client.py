"""OpenAI's protocol against llama.cpp, and against servers that are broken in one way each."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broken_server import DONE, END, event, head, in_chunks, server, whole
from certificates import authority, certificate
from llama import llama
from tls_front import behind_tls

from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver import GREETING, readiness_request
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.driver.openai_format import broken_rules
from seatrial.kinds.serving.generation import Answer, Failure, StopReason, Trouble, generations_of
from seatrial.kinds.serving.request import Method, Mode, Request, Sampling, Stopping, Wanted
from seatrial.kinds.serving.work import Question, ServingWork, Tls

LIMIT_S = 60.0
ONCE = Request(
    inputs=("Once upon a time",),
    stopping=Stopping(max_new_tokens=8),
    wanted=Wanted(generated_tokens=True, token_logprobs=True, top_n_tokens=3),
)
OK = {"choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}]}


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with llama() as url:
        yield url


async def ask(
    url: str, request: Request = ONCE, stream: bool = False, limit_s: float = LIMIT_S, token: str = "", **work: Any
) -> Answer:
    client = OpenAiClient(ServingWork(model="tiny", **work), url, token)
    try:
        return await client.ask(request, stream, limit_s)
    finally:
        await client.close()


def failure(answer: Answer) -> Failure:
    assert answer.failure is not None, answer
    return answer.failure


async def test_a_completion_has_its_text_tokens_logprobs_counts_and_times(real: str) -> None:
    answer = await ask(real)
    (one,) = generations_of(answer)
    assert one.text == "d-only, the\nf"
    assert (one.input_count, one.generated_count, one.stop_reason) == (8, 8, StopReason.MAX_TOKENS)
    assert one.tokens is not None
    assert "".join(token.text for token in one.tokens) == one.text
    assert all(len(token.top) == 3 and token.top[0].logprob == token.logprob for token in one.tokens)
    times = answer.times
    assert times.sent_s is not None
    assert times.first_byte_s is not None
    assert times.ended_s is not None
    assert times.sent_s <= times.first_byte_s <= times.ended_s


async def test_a_stream_comes_to_the_same_and_keeps_each_message_with_its_time(real: str) -> None:
    unary, stream = await ask(real), await ask(real, stream=True)
    (whole_one,), (merged,) = unary.generations, generations_of(stream)
    assert (merged.text, merged.input_count, merged.generated_count) == (whole_one.text, 8, 8)
    assert merged.tokens is not None
    assert [token.text for token in merged.tokens] == [token.text for token in whole_one.tokens or ()]
    assert len(stream.messages) == len(stream.times.messages_s) > 8
    assert list(stream.times.messages_s) == sorted(stream.times.messages_s)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_and_several_inputs(real: str, stream: bool) -> None:
    chat = Request(
        messages=({"role": "user", "content": "hi"},), stopping=Stopping(max_new_tokens=3), wanted=ONCE.wanted
    )
    (one,) = generations_of(await ask(real, chat, stream))
    assert one.text == "s. "
    assert [token.text for token in one.tokens or ()] == ["s", ".", " "]
    two = await ask(real, Request(inputs=("a b", "c d"), stopping=Stopping(max_new_tokens=4)))
    assert [generation.text for generation in two.generations] == ["ackage to\n", "one, and\n  "]


async def test_a_stop_sequence_is_no_token_of_the_text_in_either_way(real: str) -> None:
    stopped = msgspec.structs.replace(ONCE, stopping=Stopping(max_new_tokens=20, stop_sequences=(",",)))
    (unary,) = generations_of(await ask(real, stopped))
    (stream,) = generations_of(await ask(real, stopped, stream=True))
    assert unary.text == stream.text == "d-only"
    assert [token.text for token in stream.tokens or ()] == ["d", "-", "on", "ly"]
    assert stream.stop_reason is unary.stop_reason is StopReason.STOP


async def test_a_text_is_tokenized(real: str) -> None:
    (one,) = (await ask(real, Request(inputs=("Once upon",), mode=Mode.TOKENIZE))).tokenizations
    assert one.count == 4
    assert one.tokens == ("O", "nce", " up", "on")


async def test_an_error_of_the_server_has_its_code_and_its_text(real: str) -> None:
    found = failure(await ask(real, Request(inputs=("word " * 600,))))
    assert (found.code, found.trouble) == ("400", Trouble.ANSWERED)
    assert "exceeds the available context size" in found.message


async def test_every_option_is_sent_whatever_the_case_says_and_extra_takes_one_away() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await whole(writer, json.dumps(OK).encode())

    async with server(answer) as (url, bodies):
        await ask(url, Request(inputs=("x",)), extra={"min_p": None, "cache_prompt": False})
        sampled = Sampling(temperature=0.5, top_k=3, seed=9)
        await ask(url, Request(inputs=("x",), method=Method.SAMPLE, sampling=sampled))
    greedy, sample = bodies
    assert greedy == {
        "model": "tiny",
        "prompt": "x",
        "max_tokens": 20,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "typical_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "repeat_penalty": 1.0,
        "n": 1,
        "stop": [],
        "min_tokens": 0,
        "stream": False,
        "cache_prompt": False,
    }
    assert (sample["temperature"], sample["top_k"], sample["seed"], sample["min_p"]) == (0.5, 3, 9, 0.0)


async def test_what_the_protocol_has_no_word_for_is_not_asked() -> None:
    found = failure(
        await ask("http://127.0.0.1:1", Request(inputs=("x",), prefix_id="p", wanted=Wanted(input_text=True)))
    )
    assert found.trouble is Trouble.NOT_ASKED
    assert found.message == "OpenAI's protocol cannot ask for a prefix, the input back"


async def test_a_bearer_token_opens_the_server() -> None:
    with llama(API_KEY="sesame-0815") as url:
        assert failure(await ask(url)).code == "401"
        assert (await ask(url, token="sesame-0815")).generations


async def test_a_certificate_is_checked_against_authority_and_name(real: str, tmp_path: Path) -> None:
    ca = authority(tmp_path)
    cert, key = certificate(tmp_path, "server")
    async with behind_tls(real, cert, key) as url:
        assert (await ask(url, tls=Tls(ca=str(ca)))).generations
        for wrong in (Tls(), Tls(ca=str(ca), name="other.example")):
            found = failure(await ask(url, tls=wrong))
            assert (found.code, found.trouble) == ("certificate", Trouble.UNREACHABLE)
            assert "server certificate rejected" in found.message
        assert (await ask(url, tls=Tls(verify=False))).generations


async def test_a_server_that_wants_a_certificate_of_its_clients_gets_it(real: str, tmp_path: Path) -> None:
    ca = authority(tmp_path)
    cert, key = certificate(tmp_path, "server")
    mine, my_key = (path.read_text() for path in certificate(tmp_path, "client"))
    async with behind_tls(real, cert, key, ca) as url:
        for pair in ({"cert": mine, "key": my_key}, {"cert": my_key + mine}):
            assert (await ask(url, tls=Tls(ca=str(ca), **pair))).generations
        assert failure(await ask(url, tls=Tls(ca=str(ca)))).trouble in (Trouble.BROKEN, Trouble.UNREACHABLE)
        with pytest.raises(DriverError, match="cannot use the TLS files"):
            await ask(url, tls=Tls(ca=str(ca), cert=mine))


async def test_a_character_that_comes_in_halves_is_whole() -> None:
    text = "naïve 日本 🚢"
    data = event(text) + event("", finish_reason="stop") + DONE

    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await in_chunks(writer, [data[at : at + 1] for at in range(len(data))])
        writer.write(END)

    async with server(answer) as (url, _):
        got = await ask(url, stream=True)
    assert got.failure is None
    assert generations_of(got)[0].text == text


async def test_lines_that_end_in_two_characters_and_comments_are_understood() -> None:
    data = (b": ping\n\n" + event("a") + event("", finish_reason="length") + DONE).replace(b"\n", b"\r\n")

    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await in_chunks(writer, [data[:9], data[9:30], data[30:]])
        writer.write(END)

    async with server(answer) as (url, _):
        assert generations_of(await ask(url, stream=True))[0].text == "a"


async def test_a_server_that_dies_in_mid_stream_leaves_what_had_come() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await in_chunks(writer, [event("one"), event("two"), event("thr")[:20]])
        writer.transport.abort()

    async with server(answer) as (url, _):
        got = await ask(url, stream=True)
    assert failure(got).trouble is Trouble.BROKEN
    assert [message.text for message in got.messages] == ["one", "two"]
    assert got.generations == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_stops_answering_is_late_and_no_longer_waited_for(stream: bool) -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        if stream:
            await in_chunks(writer, [event("one")])
        await asyncio.Event().wait()

    async with server(answer) as (url, _):
        got = await ask(url, stream=stream, limit_s=3.0 if stream else 0.2)  # in which the first message comes
    assert failure(got).trouble is Trouble.LATE
    assert [message.text for message in got.messages] == (["one"] if stream else [])


@pytest.mark.parametrize(
    ("body", "content", "said"),
    [
        (b"<html>Sign in</html>", "text/html; charset=utf-8", "content type text/html"),
        (b'{"choices": [', "application/json", "truncated"),
        (b'{"choices": []}', "application/json", "got 0 choices (expected 1)"),
        (b'{"choices": [{"text": 7}]}', "application/json", "Expected `str"),
        (b'{"choices": [{"text": "x", "finish_reason": "bored"}]}', "application/json", "finish_reason 'bored'"),
        (b"\xff\xfe", "application/json", "it begins with"),
    ],
)
async def test_what_is_not_an_answer_is_garbage_and_shown(body: bytes, content: str, said: str) -> None:
    async def answer(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        await whole(writer, body, content)

    async with server(answer) as (url, _):
        found = failure(await ask(url))
    assert found.trouble is Trouble.GARBAGE
    assert said in found.message


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("a"), event("", finish_reason="stop")], "without [DONE]"),
        ([event("a"), b"data: {half"], "without [DONE] after"),
        ([event("a"), DONE, event("b")], "after [DONE]"),
        ([b"data: nonsense\n\n", DONE], "nonsense"),
    ],
)
async def test_a_stream_that_breaks_the_protocol_is_garbage(events: list[bytes], said: str) -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        await in_chunks(writer, events)
        writer.write(END)

    async with server(answer) as (url, _):
        found = failure(await ask(url, stream=True))
    assert found.trouble is Trouble.GARBAGE
    assert said in found.message


async def test_an_error_in_the_middle_of_a_stream_is_the_servers() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        wrong = b'data: {"error": {"code": 500, "message": "the engine died"}}\n\n'
        await in_chunks(writer, [event("a"), wrong, DONE])
        writer.write(END)

    async with server(answer) as (url, _):
        got = await ask(url, stream=True)
    assert (failure(got).code, failure(got).message) == ("500", "the engine died")
    assert [message.text for message in got.messages] == ["a"]


async def test_what_is_not_http_and_nobody_there_are_told_apart() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await writer.drain()

    async with server(answer) as (url, _):
        assert failure(await ask(url)).trouble is Trouble.GARBAGE
    gone = failure(await ask(url))
    assert gone.trouble is Trouble.UNREACHABLE


async def test_a_busy_server_says_when_to_come_back() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        text = b'{"error": {"message": "overloaded"}}'
        writer.write(
            head("application/json", f"Content-Length: {len(text)}", "Retry-After: 7", status="429 Busy") + text
        )
        await writer.drain()

    async with server(answer) as (url, _):
        found = failure(await ask(url))
    assert (found.code, found.message, found.retry_after_s) == ("429", "overloaded", 7.0)


async def test_a_kept_connection_that_the_server_closed_is_replaced_and_nothing_else_is_asked_twice() -> None:
    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        if len(bodies) == 2:
            writer.close()  # the second request on a kept connection: no byte comes back
        else:
            await whole(writer, json.dumps(OK).encode())

    async with server(answer) as (url, bodies):
        client = OpenAiClient(ServingWork(), url, "")
        answers = [await client.ask(ONCE, False, LIMIT_S) for _ in range(2)]
        await client.close()
    assert [one.failure for one in answers] == [None, None]
    assert len(bodies) == 3


CHUNK = {"id": "a", "created": 5, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "x"}}]}
CHATS = Request(messages=({"role": "user", "content": "hi"},))


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        (
            [CHUNK, {**CHUNK, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}],
            [],
        ),
        ([CHUNK, {**CHUNK, "created": 4}], ["`created` goes back in time"]),
        ([CHUNK, {**CHUNK, "id": "b"}], ["events have 2 different ids"]),
        (
            [CHUNK, {**CHUNK, "choices": [{"index": 1, "delta": {"role": "assistant"}}]}],
            ["event 1: index 1 of a choice (expected 0 to 0)"],
        ),
        ([{**CHUNK, "choices": [{"index": 0, "delta": {"content": "x"}}]}], ["event 0: the first delta has no role"]),
        (
            [CHUNK, {**CHUNK, "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}}],
            ["event 1: total_tokens is 4, but the parts are 1 and 2"],
        ),
    ],
)
def test_events_that_break_rules_of_the_protocol(bodies: list[dict[str, Any]], said: list[str]) -> None:
    assert list(broken_rules([json.dumps(body).encode() for body in bodies], CHATS, True)) == said


@pytest.mark.parametrize(
    ("message", "sound"),
    [
        ({"content": ""}, True),
        ({"content": None}, False),
        ({"content": None, "tool_calls": [{"function": {"name": "f"}}]}, True),
        ({"content": None, "reasoning_content": "hm"}, True),
        ({"content": None, "refusal": "no"}, True),
    ],
)
def test_content_is_null_only_if_the_message_has_something_else(message: dict[str, Any], sound: bool) -> None:
    body = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", **message}}]}).encode()
    assert (list(broken_rules([body], CHATS, False)) == []) is sound


async def test_a_cancelled_request_is_closed_at_its_first_byte_and_then_asked(real: str) -> None:
    asked = msgspec.structs.replace(ONCE, cancelled=20)  # more than the server has slots
    assert (await ask(real, asked)).generations[0].text == "d-only, the\nf"
    refused = await ask("http://127.0.0.1:9", asked)
    assert failure(refused).trouble is Trouble.UNREACHABLE


def test_the_first_request_is_the_shortest_case_with_a_text() -> None:
    """A server may answer every other request and refuse an empty prompt."""
    cases = [Question(name, Request(inputs=(name,))) for name in ("", "a longer one", "short")]
    assert readiness_request(tuple(cases)).inputs == ("short",)
    assert readiness_request(tuple(cases[:1])).inputs == GREETING.inputs
