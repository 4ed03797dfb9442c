"""Serving trials as a user runs them: llama.cpp as one part, the driver that asks it as another."""

import hashlib
import json
import sys
from collections import Counter
from typing import Any

import pytest
from llama import CASES, command, llama
from many_cases import AT_A_TIME, all_notes, answered_so_far, kill, notes, write_cases

from engine.asking import WAIT_S, until
from seatrial.job import Verdict
from seatrial.kinds.serving.work import Note
from world import World

LLAMA = f"command: '{command('${precision}')}'"


def suite(world: World, server: str = LLAMA, fields: str = "", precisions: str = "f32") -> None:
    """Asks each case once, unless the fields say otherwise."""
    off = "".join(f"{name}: false\n    " for name in ("stream", "batching") if f"{name}:" not in fields)
    world.suite(f"""
name: serving
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    matrix: {{precision: [{precisions}]}}
    server: {{{server}, ready: {{http: /health, within: 10m}}}}
    cases: [{CASES}]
    compare: {{precision: "${{precision}}"}}
    {off}{fields}
""")


def many_cases(world: World, count: int) -> None:
    suite(world, fields=f"concurrency: {AT_A_TIME}")
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace(str(CASES), write_cases(world, count)))


def findings(world: World) -> list[Any]:
    (cell,) = world.results().cells
    return cell.findings


def test_three_precisions_answer_the_same_cases_whole_and_as_streams(world: World) -> None:
    suite(world, fields="stream: true", precisions="f32, f16, q8_0")
    world.seatrial("run", "suite.yaml", check=0)
    for cell in world.results().cells:
        ways = Counter(finding.check for finding in cell.findings if finding.step.startswith("case "))
        assert ways["stream"] == 15  # not two at once, the error and what is only tokenized
        assert ways["unary"] == 18
        assert cell.metrics["first_answer"]["value"] > 0
        (attempt,) = cell.attempts
        assert {name: str(part.exit.outcome) for name, part in attempt.parts.items()} == {
            "server": "released",
            "driver": "exited",
        }
    assert world.left() == []


def test_each_case_alone_and_in_a_crowd_in_an_order_that_the_seed_gives(world: World) -> None:
    suite(world, fields="batching: true\n    concurrency: 6\n    seed: 4")
    world.seatrial("run", "suite.yaml", "--repeat", "2", check=0)
    first, second = all_notes(world)
    (order,) = (note for note in first if note["note"] == "order")
    beside = {note["thing"]: note["beside"] for note in first if "beside" in note}
    alone = [thing for thing in order["things"] if not thing.endswith("crowd")]
    crowd = [thing for thing in order["things"] if thing.endswith("crowd")]
    assert order["things"] == alone + crowd
    assert len(alone) == len(crowd) == 18
    assert {beside[thing] for thing in alone} == {0}
    assert max(beside[thing] for thing in crowd) == 5
    (again,) = (note for note in second if note["note"] == "order")
    assert again == {**order, "at_s": again["at_s"]} if "at_s" in order else again == order
    assert alone != sorted(alone, key=lambda thing: int(thing.split()[0]))


def test_a_server_that_is_there_already_is_asked_with_its_token_which_is_never_shown(world: World) -> None:
    token = "sesame-opens-0815"
    with llama(API_KEY=token) as url:
        suite(world, f"url: {url}, token: {{secret: LLM_TOKEN}}")
        world.seatrial("run", "suite.yaml", check=0, LLM_TOKEN=token)
        (cell,) = world.results().cells
        assert cell.attempts[0].parts == {}
        for folder in (world.folder, world.state):
            holding = [path for path in folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
            assert holding == [], holding
        wrong = world.seatrial("run", "suite.yaml", check=1, LLM_TOKEN="another-token")
    assert "the server refused the first generation: 401" in wrong.stdout
    assert [note["reached"] for note in notes(world) if note["note"] == Note.UNREADY] == [True]
    assert {finding.verdict for finding in findings(world) if finding.step.startswith("case ")} == {Verdict.FAILED}


def test_health_is_not_enough_one_generation_must_be_answered(world: World) -> None:
    server = world.folder / "healthy.py"
    server.write_text("""
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.answer(200, b"ok")
    def do_POST(self): self.answer(500, b'{"error": {"message": "the engine is dead"}}')
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
""")
    suite(world, f"command: 'exec {sys.executable} {server}'")
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace("within: 10m", "within: 5s"))
    done = world.seatrial("run", "suite.yaml", check=124)
    assert "the server answered no request within" in done.stdout
    assert "the engine is dead" in done.stdout
    assert world.left() == []


def test_a_server_that_is_killed_fails_its_own_cases_and_nobody_elses(world: World) -> None:
    many_cases(world, 800)
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace("[f32]", "[f32, f16]"))
    planned = json.loads(world.seatrial("plan", "suite.yaml", "--json", check=0).stdout)["cells"]
    hash_ = next(cell["hash"] for cell in planned if cell["axes"]["precision"] == "f32")
    process = world.start("run", "suite.yaml", "--parallel", "2")
    until(lambda: max(answered_so_far(world, hash_), default=0) > 20)
    assert kill(world, "tiny-f32")
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    killed, other = sorted(world.results().cells, key=lambda cell: cell.verdict.good)
    assert (killed.axes["precision"], killed.verdict) == ("f32", Verdict.FAILED)
    assert killed.why.startswith("server: the server was killed by SIGKILL")
    cases = [finding for finding in killed.findings if finding.step.startswith("case ")]
    assert len(cases) == 800
    assert {finding.verdict for finding in cases} == {Verdict.PASSED, Verdict.FAILED}
    assert any("not asked: the server was killed by SIGKILL" in finding.message for finding in cases)
    assert other.verdict is Verdict.PASSED
    assert world.left() == []


def test_an_answer_that_is_too_long_for_one_record_is_whole(world: World) -> None:
    text = "🚢" * 400_000
    server = world.folder / "long.py"
    server.write_text(f"""
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.do_POST()
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps({{"choices": [{{"index": 0, "text": "{text[0]}" * {len(text)}, "finish_reason": "length"}}]}})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
""")
    case = {"name": "long", "request": {"requests": [{"text": "x"}]}}
    digest = hashlib.sha256(text.encode()).hexdigest()
    (world.folder / "many.yaml").write_text(
        json.dumps([{**case, "response": {"responses": [{"text": text, "inputTokenCount": 0}]}}], ensure_ascii=False)
    )
    suite(world, f"command: 'exec {sys.executable} {server}'")
    suite_text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(suite_text.replace(str(CASES), "many.yaml"))
    world.seatrial("run", "suite.yaml", check=0)
    pieces = [note["text"] for note in notes(world) if note["note"] == "piece"]
    assert len(pieces) > 1
    (answer,) = json.loads("".join(pieces))["generations"]
    assert hashlib.sha256(answer["text"].encode()).hexdigest() == digest


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("command: x, url: http://x", "exactly one of `command` (start it) and `url`"),
        ("url: ftp://x", "invalid server address"),
        ("url: http://me:pass@x", "`url` must not contain a user or password"),
        ("command: x, tls: {}", "`ready.http` uses plain HTTP"),
        ("command: x, protocl: openai", "protocol"),
    ],
)
def test_what_is_wrong_with_a_server_is_said_at_its_place(world: World, fields: str, said: str) -> None:
    suite(world, fields)
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert said in done.stdout + done.stderr
    assert "suite.yaml:9:" in done.stdout + done.stderr


def test_what_is_wrong_with_a_case_file_is_said_at_its_place_before_anything_runs(world: World) -> None:
    (world.folder / "many.yaml").write_text("- name: neither\n  request: {requests: [{text: x}]}\n")
    suite(world)
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace(str(CASES), "many.yaml"))
    done = world.seatrial("run", "suite.yaml", check=2)
    assert "many.yaml:1:3" in done.stdout + done.stderr
    assert not (world.folder / "runs").exists() or not list((world.folder / "runs").glob("serving-*"))
