"""Metrics from Prometheus: what its answers mean, and how samples, failures and bounds are judged."""

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kinds.scale.test_scale_here import cell, findings, run
from seatrial.job import ObservedStep, Outcome, Verdict
from seatrial.kinds.scale.driver.health import prometheus_value
from seatrial.kinds.scale.measured import check_queries, query_charts
from seatrial.kinds.scale.model import parse_scale_bound
from seatrial.kinds.scale.work import QueryResult
from world import World

STEP = ObservedStep("driver", "drive", outcome=Outcome.EXITED, code=0)
WITHIN_S = 120.0


def vector(*values: str) -> dict[str, Any]:
    series = [{"metric": {"n": str(number)}, "value": [1.5, value]} for number, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


def scalar(value: str) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [1.5, value]}}


@pytest.mark.parametrize(
    ("body", "value"),
    [(vector("0.25"), 0.25), (scalar("-3"), -3.0), (vector("+Inf"), float("inf")), (vector("1e-05"), 1e-05)],
)
def test_one_number_is_read(body: Any, value: float) -> None:
    assert prometheus_value(200, json.dumps(body).encode()) == value


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, vector(), "no data"),
        (200, vector("1", "2", "3"), "3 series; aggregate"),
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error: x"}, "parse error: x"),
        (503, {"status": "error"}, "HTTP status 503"),
        (200, {"status": "success", "data": {"resultType": "string", "result": [1, "a"]}}, "not a result"),
        (200, {"status": "success", "data": {"resultType": "matrix", "result": [{"values": []}]}}, "not a result"),
        (200, {"status": "success"}, "not a result"),
        (200, vector("many"), "could not convert"),
        (502, "<html>", r"not a result of an instant query \(HTTP status 502\)"),
        (200, [1], "not a result"),
    ],
)
def test_an_answer_without_one_number_says_why(status: int, body: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prometheus_value(status, json.dumps(body).encode() if body != "<html>" else b"<html>")


GOOD = [(0.0, 1.0), (5.0, 3.0)]


@pytest.mark.parametrize(
    ("result", "bound", "metric", "judged"),
    [
        (QueryResult("q", GOOD), 3, Verdict.PASSED, Verdict.PASSED),
        (QueryResult("q", GOOD), 2, Verdict.PASSED, Verdict.FAILED),
        (QueryResult("q", GOOD, {"NaN": 4}), 3, Verdict.SKIPPED, Verdict.PASSED),
        (QueryResult("q", GOOD, {"no data": 1}), 3, Verdict.SKIPPED, Verdict.INVALID),
        (QueryResult("q", GOOD, {"infinite": 1}), 3, Verdict.SKIPPED, Verdict.INVALID),
        (QueryResult("q", GOOD, {"refused": 1}), 2, Verdict.SKIPPED, Verdict.FAILED),
        (QueryResult("q", [], {"NaN": 4}), 3, Verdict.INVALID, Verdict.FAILED),
        (QueryResult("q"), 3, Verdict.INVALID, Verdict.FAILED),
    ],
)
def test_a_bound_is_green_only_if_every_sample_was_read(
    result: QueryResult, bound: float, metric: Verdict, judged: Verdict
) -> None:
    found = check_queries(STEP, [result], (parse_scale_bound("q.max", bound, queries=["q"]),))
    assert {one.check: one.verdict for one in found} == {"metric q": metric, "bound q.max": judged}
    for why, count in result.problems.items():
        asked = len(result.samples) + sum(result.problems.values())
        assert f"{count} of {asked} samples: {why}" in found[0].message
    assert [one.title for one in query_charts([result])] == (["q"] if result.samples else [])


def test_a_query_that_was_never_made_fails_its_bound() -> None:
    (found,) = check_queries(STEP, [], (parse_scale_bound("q.mean", ">=1", queries=["q"]),))
    assert (found.verdict, found.class_) == (Verdict.FAILED, "absent")


@contextmanager
def answering(answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    """The address of a server that speaks Prometheus' API, with one answer per query."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            status, body = answers[parse_qs(asked.query)["query"][0]] if asked.path == "/p/api/v1/query" else (404, "")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/p/"
    finally:
        server.shutdown()
        server.server_close()


def test_queries_are_sampled_into_metrics_charts_and_findings(world: World) -> None:
    answers = {
        "good": (200, vector("0.004")),
        "many": (200, vector("1", "2")),
        "none": (200, vector()),
        "nan": (200, scalar("NaN")),
        "wrong": (400, {"status": "error", "error": "parse error"}),
    }
    with answering(answers) as url:
        metrics = {"prometheus": url, "queries": {name: name for name in answers}, "every": "100ms"}
        good = {"metrics": {**metrics, "queries": {"good": "good"}}, "bounds": {"good.max": 0.01, "good.min": ">0.001"}}
        run(world, 1, mixed={"metrics": metrics, "bounds": {"good.max": 0.001}}, good=good)
    found = findings(world, "mixed")
    assert found["bound good.max"].verdict is Verdict.FAILED
    assert "good.max: 0.004 (expected <= 0.001)" in found["bound good.max"].message
    whys = {"many": "2 series; aggregate", "none": "no data", "nan": "NaN", "wrong": "parse error"}
    for name, why in whys.items():
        assert found[f"metric {name}"].verdict is Verdict.INVALID
        assert why in found[f"metric {name}"].message
    assert found["metric good"].verdict is Verdict.PASSED
    passed = cell(world, "good")
    kept = {one.check: one.verdict for one in passed.findings if "good" in one.check}
    assert kept == dict.fromkeys(("metric good", "bound good.max", "bound good.min"), Verdict.PASSED)
    assert passed.metrics["good"] == {"max": 0.004, "min": 0.004, "mean": 0.004}
    assert "good" in {chart.title for chart in passed.charts}


def test_a_server_that_is_not_there_is_never_green(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    metrics = {"prometheus": f"http://127.0.0.1:{port}", "queries": {"up": "up"}}
    run(world, 1, gone={"metrics": metrics})
    found = findings(world, "gone")["metric up"]
    assert found.verdict is Verdict.INVALID
    assert "Cannot connect to host" in found.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metrics": {"prometheus": "127.0.0.1:9090", "queries": {"q": "up"}}}, "must be an address such as"),
        ({"metrics": {"prometheus": "http://me:secret@h", "queries": {"q": "up"}}}, "without a login"),
        ({"metrics": {"prometheus": "http://h", "queries": {}}}, "queries"),
        ({"metrics": {"prometheus": "http://h", "queries": {"scheduled": "up"}}}, "invalid query name 'scheduled'"),
        ({"metrics": {"prometheus": "http://h", "queries": {"q": "up"}}, "bounds": {"q": 1}}, "q.max"),
        ({"bounds": {"q.max": 1}}, "unknown metric 'q.max'"),
        (
            {
                "metrics": {"prometheus": "http://h", "queries": {"q": "up"}},
                "bounds": {"q.max": 1, "scheduled.p99": "1s"},
                "find": "limit",
                "count": 1000,
            },
            "`find: limit` cannot use bounds on `metrics`",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before(world: World, fields: dict[str, Any], message: str) -> None:
    run(world, None, a=fields)
    told = world.seatrial("plan", "suite.yaml", check=2)
    assert message in told.stdout + told.stderr


def test_a_real_prometheus_is_sampled(world: World, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus program on this machine")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    scraped = {"job_name": "own", "static_configs": [{"targets": [address]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}
    (tmp_path / "config.yml").write_text(json.dumps(config))
    server = subprocess.Popen(
        [program, f"--config.file={tmp_path / 'config.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address={address}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until_s = time.monotonic() + WITHIN_S
        while b'"value"' not in _asked(f"http://{address}/api/v1/query?query=up"):
            assert time.monotonic() < until_s, "it never scraped itself"
            time.sleep(0.1)
        queries = {
            "up": "max(up)",
            "goroutines": "go_goroutines",
            "series": "{job='own'}",
            "nothing": "no_such_metric",
            "broken": "max(",
            "undefined": "vector(0) / vector(0)",
        }
        run(
            world,
            1,
            real={"metrics": {"prometheus": f"http://{address}", "queries": queries}, "bounds": {"up.min": ">=1"}},
        )
    finally:
        server.kill()
        server.wait()
    found = findings(world, "real")
    assert found["bound up.min"].verdict is Verdict.PASSED
    assert found["metric goroutines"].verdict is Verdict.PASSED
    for name, why in {"series": "series; aggregate", "nothing": "no data", "broken": "parse error"}.items():
        assert found[f"metric {name}"].verdict is Verdict.INVALID
        assert why in found[f"metric {name}"].message
    assert "NaN" in found["metric undefined"].message


def _asked(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read())
    except OSError:
        return b""
