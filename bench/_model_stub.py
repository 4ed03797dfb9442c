"""A stub of a model server that costs as little as it can: answers at once, or tokens at an even pace, 10 ms apart. It
keeps its own stamps of what came and what it wrote, and tells their medians on `GET /stamps`."""

import asyncio
import json
import socket
import statistics
import sys
import time
from collections import deque

PHASES = 10  # streams write in turns, a millisecond apart, so that the pace is even
TICK_S = 0.001
EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
)
LAST = (
    b'data: {"id":"cmpl-1","choices":[{"index":0,"text":"","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'
)
WHOLE = json.dumps(
    {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [{"index": 0, "text": " word" * 16, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 16, "total_tokens": 20},
    }
).encode()
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TOKEN = chunk(EVENT)
ttft_s: list[float] = []
gaps_s: list[float] = []
phases: list[deque["Stream"]] = [deque() for _ in range(PHASES)]


class Stream:
    __slots__ = ("came_s", "last_s", "left", "tokens", "transport")

    def __init__(self, transport: asyncio.Transport, tokens: int, came_s: float) -> None:
        self.transport, self.tokens, self.left, self.came_s, self.last_s = transport, tokens, tokens, came_s, 0.0

    def write(self, now_s: float) -> bool:
        first = self.last_s == 0.0
        (ttft_s if first else gaps_s).append(now_s - (self.came_s if first else self.last_s))
        self.last_s = now_s
        self.left -= 1
        data = (STREAM_HEAD + TOKEN) if first else TOKEN
        if self.left == 0:
            data += chunk(LAST % (self.tokens, self.tokens + 4)) + b"0\r\n\r\n"
        self.transport.write(data)
        return self.left > 0


class Server(asyncio.Protocol):
    turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.data = transport, b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        came_s = time.monotonic()
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, rest = self.data.partition(b"\r\n\r\n")
            found = head.lower().partition(b"content-length:")[2]
            length = int(found.split(b"\r\n")[0]) if found else 0
            if len(rest) < length:
                return
            body, self.data = rest[:length], rest[length:]
            self.answer(head, body, came_s)

    def answer(self, head: bytes, body: bytes, came_s: float) -> None:
        if head.startswith(b"GET /stamps"):
            told = {"ttft": statistics.median(ttft_s or [0]), "itl": statistics.median(gaps_s or [0])}
            ttft_s.clear()
            gaps_s.clear()
            return self.whole(json.dumps(told).encode())
        if head.startswith(b"GET"):
            return self.whole(b'{"object": "list", "data": [{"id": "stub", "object": "model"}]}')
        if b'"stream":true' in body.replace(b" ", b""):
            stream = Stream(self.transport, json.loads(body).get("max_tokens") or 16, came_s)
            Server.turn += 1
            phases[Server.turn % PHASES].append(stream)
            return None
        return self.whole(WHOLE)

    def whole(self, body: bytes) -> None:
        self.transport.write(JSON_HEAD % len(body) + body)


async def main() -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Server, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    print(listening.sockets[0].getsockname()[1], flush=True)
    tick, due_s = 0, loop.time()
    while True:
        due_s += TICK_S
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        now_s = time.monotonic()
        streams = phases[tick % PHASES]
        for _ in range(len(streams)):
            stream = streams.popleft()
            if not stream.transport.is_closing() and stream.write(now_s):
                streams.append(stream)
        tick += 1


asyncio.run(main())
