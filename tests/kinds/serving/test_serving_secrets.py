"""Secrets of one part that another part sees: they are masked wherever anything is recorded."""

import sys
from pathlib import Path

import pytest
from llama import CASES

from world import World

SERVER_SECRET, CLIENT_SECRET = "hf-s3cret-of-the-server", "llm-s3cret-of-the-client"
# Answers with its own secret in the error, and logs the client's.
SERVER = """
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self): self.answer(200, b"ok")
    def do_POST(self):
        Handler.asked += 1
        print("headers:", self.headers["Authorization"], flush=True)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Handler.asked == 1:
            choice = {"index": 0, "text": "yes", "finish_reason": "stop"}
            return self.answer(200, json.dumps({"choices": [choice], "usage": {"completion_tokens": 1}}).encode())
        text = "cannot load with " + os.environ["HF_TOKEN"]
        self.answer(500, json.dumps({"error": {"message": text}}).encode())
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""
SUITE = f"""
name: serving
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    env: {{HF_TOKEN: {{secret: HF_TOKEN}}}}
    server:
      command: 'exec {sys.executable} {{server}}'
      token: {{secret: LLM_TOKEN}}
      ready: {{http: /health, within: 10m}}
    cases: [{CASES}]
"""


def holding(folder: Path, secret: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.mark.parametrize("secret", [SERVER_SECRET, CLIENT_SECRET])
def test_the_check_for_leaks_finds_one(tmp_path: Path, secret: str) -> None:
    (tmp_path / "log.txt").write_text(f"before {secret} after")
    assert holding(tmp_path, secret)


def test_neither_part_reveals_the_secrets_of_the_other(world: World) -> None:
    (world.folder / "server.py").write_text(SERVER)
    world.suite(SUITE.replace("{server}", str(world.folder / "server.py")))
    done = world.seatrial("run", "suite.yaml", check=1, HF_TOKEN=SERVER_SECRET, LLM_TOKEN=CLIENT_SECRET)
    outputs = [
        "--junit",
        "a.xml",
        "--csv",
        "a.csv",
        "--openmetrics",
        "a.prom",
        "--markdown",
        "a.md",
        "--ctrf",
        "a.json",
    ]
    world.seatrial("report", "last", *outputs)
    world.seatrial("serve", "--public", str(world.folder / "site"), check=0)
    assert "cannot load with •••" in done.stdout
    (cell,) = world.results().cells
    log = world.run().attempt(cell.hash, 1, "server") / "log.txt"
    assert "headers: Bearer •••" in log.read_text()
    for secret in (SERVER_SECRET, CLIENT_SECRET):
        assert secret not in done.stdout + done.stderr
        assert holding(world.folder, secret) == []
