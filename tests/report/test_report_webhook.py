"""One webhook: what it is sent, that it is signed, tried again within bounds, and never changes a verdict."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample
from click.testing import CliRunner

from report.test_report_causes import results
from seatrial.cli.report import command as report
from seatrial.report import ReportError
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.run import RunView
from seatrial.report.webhook import MOST_CAUSES, notify, payload
from world import World

SECRET = "what both sides know"
AT_ONCE = (0.0, 0.0, 0.0)


class Receiver:
    """Answers with these statuses in turn, the last one from then on."""

    def __init__(self, *statuses: int) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._statuses = list(statuses)
        self.url = ""

    @contextmanager
    def listening(self) -> Iterator["Receiver"]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                status = receiver._statuses.pop(0) if len(receiver._statuses) > 1 else receiver._statuses[0]
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/hooks/s3cr3t-path?token=t0ken"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def test_it_is_sent_totals_causes_and_what_is_new_with_a_signature_of_the_body() -> None:
    run = with_news(results(), past_of_run(results()), "r0")
    with Receiver(204).listening() as receiver:
        notify(receiver.url, RunView(run), SECRET)
    ((path, headers, body),) = receiver.requests
    assert path == "/hooks/s3cr3t-path?token=t0ken"
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Seatrial-Signature"] == f"sha256={expected}"
    told = json.loads(body)
    assert (told["version"], told["run"], told["verdict"], told["exit_code"]) == (1, "r", "failed", 1)
    assert (told["cells"], told["changes"]) == (60, {"same": 49, "known": 11})
    assert [(one["id"], one["cells"]) for one in told["causes"]] == [(one.id, len(one.cells)) for one in run.causes]
    assert told["causes"][0]["place"] == "only machine=x3 (10 of 10 cells)"
    assert told["new"] == ["no verdict changed", "11 cells still need attention"]
    assert SECRET not in body.decode()


def test_what_a_job_said_is_one_short_line_and_causes_are_bounded() -> None:
    run = results()
    many = [msgspec.structs.replace(run.causes[0], text="\x1b[2J\x00" + "x\n" * 1_000_000)] * 5_000
    made = payload(RunView(msgspec.structs.replace(run, causes=many)), 1.0)
    assert (len(made["causes"]), made["causes_left_out"]) == (MOST_CAUSES, 4_950)
    assert len(json.dumps(made)) < 64_000
    assert "\\u001b" not in json.dumps(made)


@pytest.mark.parametrize(
    ("statuses", "tries", "why"),
    [
        ((503, 429, 200), 3, ""),
        ((500,), 4, "HTTP status 500"),
        ((403,), 1, "HTTP status 403"),
        ((302,), 1, "HTTP status 302"),
    ],
)
def test_it_is_tried_again_within_bounds_and_no_redirect_is_followed(
    statuses: tuple[int, ...], tries: int, why: str
) -> None:
    with Receiver(*statuses).listening() as receiver:
        try:
            notify(receiver.url, RunView(results()), SECRET, AT_ONCE)
            said = ""
        except ReportError as error:
            said = str(error)
    assert len(receiver.requests) == tries
    assert len({body for _, _, body in receiver.requests}) == 1
    assert said == (f"cannot notify http://127.0.0.1: {why}" if why else "")


def test_where_nobody_listens_the_error_names_the_host_and_no_more() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen: no other process can take its port
        url = f"http://user:pa55word@127.0.0.1:{closed.getsockname()[1]}/hooks/s3cr3t-path?token=t0ken"
        with pytest.raises(ReportError) as raised:
            notify(url, RunView(results()), SECRET, ())
    assert str(raised.value).startswith("cannot notify http://127.0.0.1: ")
    for secret in ("s3cr3t", "t0ken", "pa55word", SECRET):
        assert secret not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "https://", "host", "http://[", "http://host:99999999/", "http://h/ x", "http://u:p@host/"]
)
def test_an_address_that_is_none_ends_before_anything_is_done(url: str, tmp_path: Path) -> None:
    made = CliRunner().invoke(report, [str(tmp_path), "--notify", url], env={"SEATRIAL_NOTIFY_SECRET": SECRET})
    assert made.exit_code == 2
    assert "invalid --notify URL; use https://HOST/PATH" in made.stderr


def test_the_command_needs_the_secret_and_says_whom_it_did_not_reach(tmp_path: Path) -> None:
    folder = sample.write_run(tmp_path / "r1", sample.small())
    (folder / "plan.json").touch()
    env = {"SEATRIAL_NOTIFY_SECRET": SECRET}
    with Receiver(404).listening() as receiver:
        none = CliRunner().invoke(report, [str(folder), "--notify", receiver.url])
        refused = CliRunner().invoke(report, [str(folder), "--notify", receiver.url], env=env)
    assert (none.exit_code, "SEATRIAL_NOTIFY_SECRET" in none.stderr) == (2, True)
    assert (refused.exit_code, refused.stderr) == (3, "seatrial: cannot notify http://127.0.0.1: HTTP status 404\n")
    assert len(receiver.requests) == 1


def test_a_run_tells_it_and_passes_though_nobody_heard(world: World) -> None:
    world.suite("name: s\ntrials: {works: {kind: runtime, run: [echo fine]}}\n")
    world.env["SEATRIAL_NOTIFY_SECRET"] = SECRET
    with Receiver(200, 410).listening() as receiver:
        world.seatrial("run", "suite.yaml", "--notify", receiver.url, check=0)
        told = world.seatrial("run", "suite.yaml", check=0, SEATRIAL_NOTIFY=receiver.url)
    assert "cannot notify http://127.0.0.1: HTTP status 410" in told.stderr
    assert [json.loads(body)["verdict"] for _, _, body in receiver.requests] == ["passed", "passed"]
    kept = b"".join(path.read_bytes() for path in world.run().path.rglob("*") if path.is_file())
    assert b"t0ken" not in kept
    assert SECRET.encode() not in kept
