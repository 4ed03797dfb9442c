"""Answers in pieces of every size, and answers that are none."""

import asyncio
import gzip
from typing import Any

import pytest

from seatrial.http.http1 import BrokenConnection, NotHttp, Reply, Wire


class Sink(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def wire() -> tuple[Wire, Sink]:
    made, sink = Wire(), Sink()
    made.connection_made(sink)
    return made, sink


def head(*lines: str, status: int = 200) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode()


ANSWERS = {
    "length": (head("Content-Length: 11") + b"hello world", b"hello world"),
    "nothing": (head("Content-Length: 0"), b""),
    "no content": (head(status=204), b""),
    "chunks": (
        head("Transfer-Encoding: chunked") + b"5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\n\r\n",
        b"hello world",
    ),
    "trailer": (head("Transfer-Encoding: chunked") + b"2\r\n\r\n\r\n0\r\nX: y\r\n\r\n", b"\r\n"),
    "gzip": (
        head("Content-Encoding: gzip", f"Content-Length: {len(gzip.compress(b'packed', mtime=0))}")
        + gzip.compress(b"packed", mtime=0),
        b"packed",
    ),
    "in between": (head(status=103) + head("Content-Length: 2") + b"ok", b"ok"),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_may_come_in_pieces_of_any_size(name: str) -> None:
    data, body = ANSWERS[name]
    for size in range(1, len(data) + 1):
        made, _ = wire()
        answer = made.ask(b"x")
        for start in range(0, len(data), size):
            assert not answer.done()
            made.data_received(data[start : start + size])
        assert (await answer).body == body
        assert not made.closed
        again = made.ask(b"y")  # the connection is good for the next
        made.data_received(data)
        assert (await again).body == body


async def test_an_answer_without_length_ends_with_the_connection() -> None:
    made, _ = wire()
    answer = made.ask(b"x")
    made.data_received(head("Connection: close") + b"to the")
    made.data_received(b" end")
    assert not answer.done()
    made.connection_lost(None)
    assert (await answer).body == b"to the end"
    assert made.closed


@pytest.mark.parametrize("name", ["length", "chunks", "gzip"])
async def test_an_answer_that_is_cut_anywhere_is_no_answer(name: str) -> None:
    data, _ = ANSWERS[name]
    for cut in range(len(data)):
        made, _ = wire()
        answer = made.ask(b"x")
        if cut:
            made.data_received(data[:cut])
        made.connection_lost(None)
        with pytest.raises(BrokenConnection) as caught:
            await answer
        assert caught.value.sent


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.example ESMTP\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        head("Content-Length: many"),
        head("Content-Length: 1") + b"two",
        head("Transfer-Encoding: chunked") + b"xyz\r\n",
        head("Content-Encoding: gzip", "Content-Length: 3") + b"abc",
        b"HTTP/1.1 200 OK\r\n" + b"x" * (1 << 19),
    ],
)
async def test_what_is_no_answer_is_told_and_the_connection_closed(data: bytes) -> None:
    made, sink = wire()
    answer = made.ask(b"x")
    made.data_received(data)
    with pytest.raises(NotHttp):
        await answer
    assert sink.aborted


async def test_headers_that_come_twice_are_both_kept_and_close_is_obeyed() -> None:
    made, sink = wire()
    answer = made.ask(b"x")
    made.data_received(head('Warning: 299 - "a"', 'warning: 299 - "b"', "Connection: Close", "Content-Length: 0"))
    assert await answer == Reply(
        200, {"warning": '299 - "a"\n299 - "b"', "connection": "Close", "content-length": "0"}, b""
    )
    assert sink.aborted


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    made, sink = wire()
    made.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert sink.aborted
