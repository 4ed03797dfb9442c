"""A chat server whose answers a test chooses: what llama.cpp's tiny model cannot produce."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Reply = Body | list[Body] | tuple[int, Body]  # a body, the events of a stream, or a status and a body
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@contextmanager
def chat_server(reply: Callable[[Body], Reply]) -> Iterator[tuple[str, list[Body]]]:
    """Its address, and the requests that it got."""
    asked: list[Body] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"path": self.path}).encode())

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                body = json.loads(data)
            except ValueError:
                self._send(400, "application/json", b'{"error": {"message": "not JSON", "type": "invalid"}}')
                return
            asked.append(body)
            made = reply(body)
            if isinstance(made, list):
                events = [*map(json.dumps, made), "[DONE]"]
                self._send(200, "text/event-stream", "".join(f"data: {one}\n\n" for one in events).encode())
            else:
                status, made = made if isinstance(made, tuple) else (200, made)
                self._send(status, "application/json", json.dumps(made).encode())

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(finish: str = "stop", **message: Any) -> Body:
    """A whole answer of a chat."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None} | message, "finish_reason": finish}
    return {"object": "chat.completion", "model": "stub", "choices": [choice], "usage": USAGE}


def events(*deltas: Body, finish: str = "stop") -> list[Body]:
    """The events of a stream: each delta, the end, and the usage."""
    all_deltas = [{"role": "assistant", **deltas[0]}, *deltas[1:]]
    made = [{"index": 0, "delta": delta, "finish_reason": None} for delta in all_deltas]
    made.append({"index": 0, "delta": {}, "finish_reason": finish})
    found: list[Body] = [{"object": "chat.completion.chunk", "model": "stub", "choices": [one]} for one in made]
    return [*found, {"object": "chat.completion.chunk", "model": "stub", "choices": [], "usage": USAGE}]


def said(text: str) -> Callable[[Body], Reply]:
    """Answers every request with this text."""

    def reply(body: Body) -> Reply:
        pieces = [{"role": "assistant", "content": ""}, *({"content": letter} for letter in text)]
        return events(*pieces) if body.get("stream") else answer(content=text)

    return reply
