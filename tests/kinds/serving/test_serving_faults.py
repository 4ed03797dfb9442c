"""Servers that are broken in one way each, as parts of a trial: what the verdict is, that nothing hangs past its limit,
and that nothing is left."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from certificates import authority, certificate
from llama import CASES, command, free_port, llama
from tls_front import behind_tls

from engine.asking import WAIT_S, pid_of, until
from seatrial.job import Verdict
from world import World

# Does what its argument says, after the first request, which shows that it is ready.
PROGRAM = """
import http.server, json, os, socket, sys, time
how, asked, begun = sys.argv[1], [], time.monotonic()
CHOICE = {"index": 0, "text": "yes", "finish_reason": "stop"}
GOOD = {"choices": [CHOICE], "usage": {"completion_tokens": 1, "prompt_tokens": 1}}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(body)
        if how == "refuses twice" and len(asked) in (2, 3):
            return self.answer(503, {"error": {"message": "busy"}}, ("Retry-After", "0"))
        if how == "busy" and len(asked) > 1:
            return self.answer(429, {"error": {"message": "too many"}})
        if how == "loads" and len(asked) < 4:
            return self.answer(503, {"error": {"message": "Loading model"}})
        if how == "hangs" and len(asked) > 1:
            time.sleep(1000)
        if how == "garbage" and len(asked) > 1:
            self.wfile.write(b"\\x00\\x01 not HTTP at all\\r\\n\\r\\n")
            self.close_connection = True
            return None
        if how == "html" and len(asked) > 1:
            return self.answer(200, "<html>", ("Content-Type", "text/html"))
        if how == "cuts" and len(asked) > 1:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.close_connection = True
            return None
        if how == "dies in mid-stream" and body["stream"]:
            event = json.dumps({"choices": [{"index": 0, "text": "ye", "finish_reason": None}]})
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(event) + 8:x}\\r\\ndata: {event}\\n\\n\\r\\n".encode())
            self.wfile.flush()
            os.kill(os.getpid(), 9)
        return self.answer(200, GOOD)
    def answer(self, status, body, *headers):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (*headers, ("Content-Type", "application/json"))[:max(len(headers), 1)]:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""
# More than it may have, bit by bit, until it is killed: who asks for much too much at once gets nothing.
GREEDY = """
import time
held = []
try:
    for _ in range(100):
        held.append(b"x" * (10 << 20))
        time.sleep(0.01)
except MemoryError:
    pass
time.sleep(1404)
"""
LLAMA = f"command: '{command()}'"


YES = {"responses": [{"text": "yes", "inputTokenCount": 1, "generatedTokenCount": 1}]}
STREAMED = {"name": "streamed", "request": {"request": {"text": "x"}}, "response": {"responses": [{"text": "yes"}]}}


def trial(world: World, name: str, server: str, cases: Any = None, **fields: str) -> str:
    asked = cases or [{"name": "yes", "request": {"requests": [{"text": "x"}]}, "response": YES}]
    (world.folder / f"{name}.yaml").write_text(json.dumps(asked))
    more = "".join(f"\n    {name}: {value}" for name, value in fields.items())
    return f"""
  {name}:
    kind: serving
    retries: 0
    server: {{{server}}}
    cases: [{name}.yaml]
    stream: false
    batching: false{more}
"""


def suite(world: World, server: str, cases: Any = None, **fields: str) -> None:
    world.suite(f"name: faults\ntrials:{trial(world, 'cases', server, cases, **fields)}")


def program(world: World, how: str) -> str:
    (world.folder / "program.py").write_text(PROGRAM)
    return f"command: 'exec {sys.executable} {world.folder}/program.py \"{how}\"'"


def verdict(world: World) -> tuple[Verdict, str]:
    (cell,) = world.results().cells
    assert world.left() == []
    return cell.verdict, cell.why


@pytest.mark.parametrize(
    ("code", "wanted", "faults"),
    [
        (0, Verdict.PASSED, {"refuses twice": "", "loads": ""}),
        (124, Verdict.TIMEOUT, {"hangs": "timed out before the answer was complete (nothing received)"}),
        (
            1,
            Verdict.FAILED,
            {
                "busy": "the server answered with an error: 429: too many",
                "garbage": "invalid HTTP response",
                "html": "content type text/html",
                "cuts": "the server closed the connection after 13 bytes of the answer",
                "dies in mid-stream": "server: the server was killed by SIGKILL",
            },
        ),
    ],
)
def test_a_broken_server_has_the_verdict_of_its_fault(
    world: World, code: int, wanted: Verdict, faults: dict[str, str]
) -> None:
    trials = [
        trial(
            world,
            how.replace(" ", "-"),
            program(world, how),
            [STREAMED] if "stream" in how else None,
            request="3s" if how == "hangs" else "10m",
        )
        for how in faults
    ]
    world.suite(f"name: faults\ntrials:{''.join(trials)}")
    world.seatrial("run", "suite.yaml", check=code)
    assert world.left() == []
    cells = {cell.id.replace("-", " "): cell for cell in world.results().cells}
    assert {cell.verdict for cell in cells.values()} == {wanted}
    for how, why in faults.items():
        assert why in cells[how.replace("-", " ")].why
    if "dies in mid-stream" in faults:  # which is why its case has no answer
        cell = cells["dies in mid stream"]
        assert cell.why == faults["dies in mid-stream"]
        (finding,) = (one for one in cell.findings if one.step == "case streamed")
        assert (finding.verdict, finding.class_) == (Verdict.FAILED, "signal")
        assert re.search(r"after \d+ bytes of the answer: the server was killed by SIGKILL$", finding.message)


def test_a_server_that_takes_no_connection_at_first_is_waited_for(world: World) -> None:
    port = free_port()
    suite(world, f"url: 'http://127.0.0.1:{port}', ready: {{within: 10m}}")
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace("[cases.yaml]", f"[{CASES}]"))
    process = world.start("run", "suite.yaml")
    refused = b"waiting for the first answer: no connection"
    until(lambda: any(refused in path.read_bytes() for path in world.state.glob("jobs/*/*-driver/records.jsonl")))
    with llama(SEATRIAL_PORT=str(port)):
        said = process.communicate(timeout=WAIT_S)[0]
    assert process.returncode == 0, said
    (cell,) = world.results().cells
    (ready,) = (one for one in cell.findings if one.step == "ready")
    assert " tries)" in ready.message
    assert world.left() == []


def test_a_server_that_never_takes_a_connection_is_infrastructure(world: World) -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # without listening: nobody else gets the port, and connections are refused
        suite(world, f"url: 'http://127.0.0.1:{refusing.getsockname()[1]}', ready: {{within: 1s}}")
        world.seatrial("run", "suite.yaml", check=3)
    found, why = verdict(world)
    assert found is Verdict.INFRA
    assert why.startswith("ready: no connection to the server within ")
    assert ": no connection" in why
    (cell,) = world.results().cells
    assert {(one.verdict, one.class_) for one in cell.findings} == {(Verdict.INFRA, "unreachable")}


def test_a_server_that_stops_answering_in_the_middle_is_given_up_and_its_cases_are_accounted_for(world: World) -> None:
    request = {"params": {"stopping": {"maxNewTokens": 16}}}
    answer = {"responses": [{"inputTokenCount": 0}]}
    cases = [
        {
            "name": f"case {number}",
            "skip_check": True,
            "request": {**request, "requests": [{"text": f"Number {number} is"}]},
            "response": answer,
        }
        for number in range(2000)
    ]
    suite(world, LLAMA, cases, request="1500ms", concurrency="2", timeout="{grace: 1s}")
    process = world.start("run", "suite.yaml")
    records = lambda: list(world.state.glob("jobs/*/*-driver/records.jsonl"))  # noqa: E731
    until(lambda: records() and records()[0].read_bytes().count(b'"finished"') > 20)
    server = pid_of(world, "serve.py")
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    (cell,) = world.results().cells
    found = [finding for finding in cell.findings if finding.step.startswith("case ")]
    assert len(found) == 2000
    classes = {finding.class_ for finding in found}
    assert {"", "late", "gone"} == classes
    gone = next(finding for finding in found if finding.class_ == "gone")
    assert "the server stopped answering: 5 requests in a row timed out" in gone.message
    assert world.left() == []


def test_a_port_that_is_taken_is_told_by_the_servers_own_log(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        suite(world, LLAMA.replace("exec ", f"SEATRIAL_PORT={port} exec "))
        world.seatrial("run", "suite.yaml", check=1)
    found, why = verdict(world)
    assert found is Verdict.FAILED
    assert why.startswith("server: the server exited on its own with code 1")


def test_a_server_that_lost_a_process_for_memory_has_not_served_well(world: World) -> None:
    """As an engine whose worker is killed, behind a front that goes on."""
    (world.folder / "greedy.py").write_text(GREEDY)
    begin = f"command: '{sys.executable} {world.folder}/greedy.py; exec "
    server = program(world, "well").replace("command: 'exec ", begin)
    suite(world, server, matrix="{machine: small}")
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace("trials:", "machines: {small: {memory: 300Mi}}\ntrials:"))
    world.seatrial("run", "suite.yaml", check=1)
    assert verdict(world) == (Verdict.FAILED, "server: a process was killed (out of memory) while it served")
    (cell,) = world.results().cells
    assert [finding.verdict for finding in cell.findings if finding.step.startswith("case")] == [Verdict.PASSED]


async def test_a_certificate_that_does_not_match_fails_at_once(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    ca = authority(folder)
    cert, key = certificate(folder, "server", "other.example")
    mine, my_key = certificate(folder, "client")
    with llama() as url:
        async with behind_tls(url, cert, key, ca) as secure:
            suite(world, f"url: '{secure}', tls: {{ca: {ca}}}, ready: {{within: 1h}}")
            await asyncio.to_thread(world.seatrial, "run", "suite.yaml", check=1)
            assert "server certificate rejected" in verdict(world)[1]
            suite(world, f"url: '{secure}', tls: {{ca: {ca}, cert: {mine}, key: {my_key}, name: other.example}}")
            text = (world.folder / "suite.yaml").read_text()
            (world.folder / "suite.yaml").write_text(text.replace("[cases.yaml]", f"[{CASES}]"))
            await asyncio.to_thread(world.seatrial, "run", "suite.yaml", check=0)
    secret = my_key.read_bytes().splitlines()[1]
    assert not [path for path in world.run().path.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_a_prompt_of_megabytes_is_asked_and_refused_as_is_expected(world: World) -> None:
    prompt = "word " * 500_000
    case = {
        "name": "long",
        "request": {"requests": [{"text": prompt}]},
        "error": {"code": "400", "message_pattern": "exceeds the available context size"},
    }
    suite(world, LLAMA, [case])
    world.seatrial("run", "suite.yaml", check=0)
    assert verdict(world)[0] is Verdict.PASSED
