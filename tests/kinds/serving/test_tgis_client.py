"""TGIS's protocol against a grpcio server that answers from llama.cpp; and its messages on the wire."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import authority, certificate
from llama import free_port, model, started

from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.answers.answer import check_messages
from seatrial.kinds.serving.driver.tgis import TgisClient
from seatrial.kinds.serving.driver.tgis_format import Messages, generate_request
from seatrial.kinds.serving.generation import Answer, Failure, StopReason, Trouble, generations_of
from seatrial.kinds.serving.request import (
    Decoding,
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
from seatrial.kinds.serving.work import ServingWork, Tls

SERVER = Path(__file__).with_name("tgis_server.py")
LIMIT_S = 60.0
ONCE = Request(
    inputs=("Once upon a time",),
    stopping=Stopping(max_new_tokens=8),
    wanted=Wanted(generated_tokens=True, token_logprobs=True, top_n_tokens=3),
)


@contextmanager
def tgis(**env: str) -> Iterator[str]:
    with started(str(SERVER), str(model("f32")), **env) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    with tgis() as address:
        yield address


@asynccontextmanager
async def client(address: str, token: str = "", **work: Any) -> AsyncIterator[TgisClient]:
    made = TgisClient(ServingWork(model="tiny", protocol="tgis", **work), address, token)
    try:
        yield made
    finally:
        await made.close()


async def ask(address: str, request: Request = ONCE, stream: bool = False, **options: Any) -> Answer:
    async with client(address, **options) as made:
        return await made.ask(request, stream, LIMIT_S)


def failure(answer: Answer) -> Failure:
    assert answer.failure is not None, answer
    return answer.failure


def test_messages_on_the_wire_have_the_numbers_of_the_protocol() -> None:
    request = Request(
        inputs=("a",),
        method=Method.SAMPLE,
        sampling=Sampling(0.5, 3, 0.25, 0.125, seed=7),
        stopping=Stopping(5, 2, 9, ("x",), True),
        decoding=Decoding(1.5, LengthPenalty(4, 2.0), Guided(Guide.REGEX, "r")),
        wanted=Wanted(True, True, True, True, True, 2),
        truncate_input_tokens=6,
        prefix_id="p",
        adapter_id="d",
    )
    # By hand, from the published numbers: field << 3 | type, then the value.
    sampling = b"\x0d\x00\x00\x00\x3f\x10\x03\x1d\x00\x00\x80\x3e\x25\x00\x00\x00\x3e\x28\x07"
    stopping = b"\x08\x05\x10\x02\x18\x09\x22\x01x\x28\x01"
    response = b"\x08\x01\x10\x01\x18\x01\x20\x01\x28\x01\x30\x02"
    decoding = b"\x0d\x00\x00\xc0\x3f\x12\x07\x08\x04\x15\x00\x00\x00\x40\x2a\x01r"
    parts = [b"\x08\x01"]
    parts += [
        bytes([number << 3 | 2, len(data)]) + data
        for number, data in ((2, sampling), (3, stopping), (4, response), (5, decoding))
    ]
    params = b"".join([*parts, b"\x30\x06"])
    wanted = b"\x0a\x01m\x12\x01p\x1a\x03\x12\x01a\x22\x01d" + b"\x52" + bytes([len(params)]) + params
    assert generate_request(request, "m", False).SerializeToString(deterministic=True) == wanted
    token = b"\x12\x01t\x1d\x00\x00\x80\xbf\x20\x01\x2a\x00"
    listed = b"\x42" + bytes([len(token)]) + token
    answer = Messages["GenerationResponse"].FromString(
        b"\x10\x03\x22\x02hi\x30\x04\x38\x05" + listed + b"\x50\x09\x5a\x01,"
    )
    assert (answer.generated_token_count, answer.text, answer.input_token_count) == (3, "hi", 4)
    assert (answer.stop_reason, answer.seed, answer.stop_sequence) == (5, 9, ",")
    (info,) = answer.tokens
    assert (info.text, info.logprob, info.rank, len(info.top_tokens)) == ("t", -1.0, 1, 1)


async def test_an_answer_has_its_text_tokens_and_counts_whole_and_as_a_stream(real: str) -> None:
    whole, stream = await ask(real), await ask(real, stream=True)
    (one,), (merged,) = whole.generations, generations_of(stream)
    assert one.text == merged.text == "d-only, the\nf"
    assert (one.input_count, one.generated_count, one.stop_reason) == (8, 8, StopReason.MAX_TOKENS)
    assert [token.text for token in merged.tokens or ()] == [token.text for token in one.tokens or ()]
    assert [len(token.top) for token in one.tokens or ()] == [3] * 8
    assert check_messages(stream.messages, ONCE, "tgis") is None
    assert len(stream.messages) == len(stream.times.messages_s) == 9


async def test_several_inputs_tokens_and_what_the_server_says_of_itself(real: str) -> None:
    two = await ask(real, Request(inputs=("a b", "c d"), stopping=Stopping(max_new_tokens=4)))
    assert [one.text for one in two.generations] == ["ackage to\n", "one, and\n  "]
    asked = Request(inputs=("Once upon",), mode=Mode.TOKENIZE, wanted=Wanted(generated_tokens=True, offsets=True))
    (one,) = (await ask(real, asked)).tokenizations
    assert (one.count, one.tokens, one.offsets) == (4, ("O", "nce", " up", "on"), ((0, 1), (1, 4), (4, 7), (7, 9)))
    async with client(real) as made:
        assert await made.health(LIMIT_S) is None
        info = await made.describe(LIMIT_S)
        assert info is not None
        assert info.max_new_tokens == 100


async def test_an_error_has_the_code_and_the_text_of_the_server(real: str) -> None:
    found = failure(await ask(real, Request(inputs=("hi",), stopping=Stopping(1, 2))))
    assert (found.code, found.trouble) == ("INVALID_ARGUMENT", Trouble.ANSWERED)
    assert found.message == "min_new_tokens must be <= max_new_tokens"
    assert failure(await ask(real, Request(messages=({"role": "user", "content": "hi"},)))).trouble is Trouble.NOT_ASKED


async def test_nobody_there_and_an_answer_that_is_late(real: str) -> None:
    assert failure(await ask(f"127.0.0.1:{free_port()}")).trouble is Trouble.UNREACHABLE
    async with client(real) as made:
        for stream in (False, True):
            late = await made.ask(Request(inputs=("A list of",), stopping=Stopping(100)), stream, 0.001)
            assert failure(late).trouble is Trouble.LATE


async def test_a_server_that_dies_in_mid_stream_leaves_what_had_come() -> None:
    with tgis(DIE_IN_STREAM="1") as address:
        got = await ask(address, stream=True)
    assert failure(got).trouble is Trouble.BROKEN
    assert got.generations == ()


async def test_tls_wants_the_right_authority_name_client_and_token(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    cert, key = certificate(tmp_path, "server")
    mine, my_key = certificate(tmp_path, "client")
    token = "sesame-0815"
    with tgis(TLS_CERT=str(cert), TLS_KEY=str(key), TLS_CLIENT_CA=str(ca), TOKEN=token) as address:
        pair = {"cert": mine.read_text(), "key": my_key.read_text()}
        good = Tls(ca=str(ca), **pair)
        assert (await ask(address, tls=good, token=token)).generations
        assert failure(await ask(address, tls=good)).code == "UNAUTHENTICATED"
        for wrong in (Tls(ca=str(ca), **pair, name="other.example"), Tls(**pair)):
            assert failure(await ask(address, tls=wrong, token=token)).trouble is Trouble.UNREACHABLE
        assert failure(await ask(address, tls=Tls(ca=str(ca)), token=token)).trouble in (
            Trouble.UNREACHABLE,
            Trouble.BROKEN,
        )
    with pytest.raises(DriverError, match="always verifies"):
        await ask(address, tls=Tls(verify=False))
