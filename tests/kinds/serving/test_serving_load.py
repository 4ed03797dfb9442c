"""A load for llama.cpp, as a user writes it: metrics, bounds, errors, and a driver that was late."""

import json
import sys

import pytest
from llama import CASES, command
from many_cases import notes

from seatrial.job import CellResult, Verdict
from world import World

GOOD = f"command: '{command()}'"
# Answers the first request, which shows that it is ready, and the cases; then it is overloaded.
OVERLOADED = """
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        whole = {"choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}]}
        status, body = (429, {"error": {"message": "overloaded"}}) if asked["stream"] else (200, whole)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""
YES = [
    {
        "name": "yes",
        "request": {"requests": [{"text": "x"}]},
        "response": {"responses": [{"text": "yes", "inputTokenCount": 0}]},
    }
]


def trial(name: str, load: str, server: str = GOOD, cases: str = str(CASES)) -> str:
    return f"""
  {name}:
    kind: serving
    model: tiny
    retries: 0
    server: {{{server}}}
    cases: [{cases}]
    load: {load}
    stream: false
    batching: false
"""


def suite(world: World, *trials: str) -> None:
    world.suite(f"\nname: load\ntrials:{''.join(trials)}")


def loaded(cell: CellResult) -> dict[str, tuple[str, str]]:
    return {one.check: (str(one.verdict), one.message) for one in cell.findings if one.step == "load"}


def test_a_load_has_its_metrics_its_bounds_and_every_stamp_in_a_file(world: World) -> None:
    (world.folder / "trace.csv").write_text("at,input\n" + "".join(f"{10 + number / 50},3\n" for number in range(40)))
    load = "{arrivals: {trace: trace.csv}, lag: 1h, bounds: {ttft.p99: 1h, itl.max: 1h, goodput: 100%}}"
    suite(world, trial("tiny", load))
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert {name: verdict for name, (verdict, _) in loaded(cell).items()} == dict.fromkeys(
        ["measured", "driver in time", "answers", "bound errors", "bound ttft.p99", "bound itl.max", "bound goodput"],
        "passed",
    )
    assert loaded(cell)["answers"][1] == "40 of 40 answers checked, 40 against recorded ones: all correct"
    metrics = cell.metrics["load"]
    assert metrics["ttft"]["p50"]["better"] == "lower"
    assert metrics["tokens_per_s"]["value"] > 0
    (files,) = world.run().path.glob("cells/*/1/driver/files")
    rows = [json.loads(line) for line in (files / "load-requests.jsonl").read_text().splitlines()]
    assert [row["intended_s"] for row in rows] == pytest.approx([number / 50 for number in range(40)])
    for row in rows:
        assert row["intended_s"] <= row["begun_s"] <= row["sent_s"] <= row["first_byte_s"] <= row["tokens_s"][0]
        assert row["tokens_s"] == sorted(row["tokens_s"])
        assert row["tokens_s"][-1] <= row["end_s"]
        assert len(row["tokens_s"]) <= row["tokens"]
    samples = [json.loads(line) for line in (files / "load-metrics.jsonl").read_text().splitlines()]
    made = [sample["values"]["llamacpp:tokens_predicted_total"] for sample in samples]
    assert made[-1] - made[0] == sum(row["tokens"] for row in rows)
    (load,) = (note for note in notes(world) if note["note"] == "finished" and note["thing"] == "load")
    assert load["scrape"] == {"samples": len(samples), "why": ""}


def test_loads_fail_by_a_bound_without_a_peak_and_when_all_requests_fail(world: World) -> None:
    (world.folder / "overloaded.py").write_text(OVERLOADED)
    (world.folder / "yes.yaml").write_text(json.dumps(YES))
    wrong_streams = PACED.replace("time.sleep(float(sys.argv[1]))", 'text = text.replace("yes", "no")')
    (world.folder / "wrong.py").write_text(wrong_streams)
    overloaded = f"command: 'exec {sys.executable} {world.folder}/overloaded.py'"
    wrong = f"command: 'exec {sys.executable} {world.folder}/wrong.py'"
    failing = "{arrivals: {burst: 20}, requests: 20, lag: 1h, bounds: {error_share: 100%}}"
    suite(
        world,
        trial("bound", "{arrivals: {rate: 50/s}, requests: 20, lag: 1h, bounds: {ttft.p50: 0.001ms}}"),
        trial("peak", "{arrivals: {rate: 50/s}, requests: 5, lag: 1h, find: peak, bounds: {ttft.p50: 0.001ms}}"),
        trial("failing", failing, overloaded, "yes.yaml"),
        trial("wrong", "{arrivals: {burst: 20}, requests: 20, check: 5, lag: 1h}", wrong, "yes.yaml"),
    )
    done = world.seatrial("run", "suite.yaml", check=1)
    cells = {cell.id: cell for cell in world.results().cells}
    verdicts = {name: cell.verdict for name, cell in cells.items()}
    assert verdicts == dict.fromkeys(("bound", "peak", "failing", "wrong"), Verdict.FAILED)
    assert "(bound 0.001ms)" in done.stdout
    assert "(bound 0.001ms)" in cells["bound"].why
    assert "no rate from 3.125/s to 50/s keeps the bounds" in loaded(cells["peak"])["peak"][1]
    assert loaded(cells["failing"])["measured"] == ("failed", "all 20 requests failed: 20 429")
    assert loaded(cells["wrong"])["measured"] == ("failed", "all 20 requests failed: 5 wrong of 5 checked")
    assert (
        "5 of 20 answers checked, 5 against recorded ones: 5 wrong; case yes (5 wrong): the text differs"
        in (loaded(cells["wrong"])["answers"][1])
    )


def test_a_load_in_which_the_driver_was_late_is_invalid_and_no_metric_of_it_is_kept(world: World) -> None:
    suite(world, trial("late", "{arrivals: {rate: 50/s}, requests: 20, lag: 0.000001, bounds: {ttft.p50: 1h}}"))
    world.seatrial("run", "suite.yaml", check=1)  # of a run in which nothing failed
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.INVALID
    assert "this measures the client, not the server" in cell.why
    assert "load" not in cell.metrics  # they would measure the client
    assert loaded(cell)["bound ttft.p50"] == ("skipped", "not checked: the client was late")


def test_a_trial_may_have_only_a_load(world: World) -> None:
    load = "{arrivals: {in_flight: 3}, requests: 20, lengths: {input: 5, output: [1, 8]}, lag: 1h}"
    only = trial("tiny", load).replace(f"    cases: [{CASES}]\n", "")
    suite(world, only)
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.PASSED
    assert loaded(cell)["answers"][1] == "20 of 20 answers checked, 0 against recorded ones: all correct"
    done = world.seatrial("record", "suite.yaml", check=2)
    assert "`cases` is missing; only a `load` with `lengths` or `prompts` needs none" in done.stdout + done.stderr
    suite(world, only.replace("lengths: {input: 5, output: [1, 8]}, ", ""))
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert "`cases` is missing; only a `load` with `lengths` or `prompts` needs none" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("{arrivals: {rate: 4/s}}", "`load` has no end"),
        ("{arrivals: {rate: 4/s, burst: 3}, requests: 3}", "exactly one of"),
        ("{arrivals: {rate: fast}, requests: 3}", "invalid rate"),
        ("{requests: 3}", "exactly one of `arrivals` and `sweep`"),
        ("{sweep: {rates: [1/s], in_flight: [1]}, requests: 3}", "exactly one of `rates`"),
        ("{sweep: {in_flight: [1]}, for: 3s}", "`in_flight` needs `requests`"),
        ("{arrivals: {in_flight: 1}, for: 3s}", "`in_flight` needs `requests`"),
        ("{sweep: {auto: 0}, for: 3s}", "auto"),
        ("{arrivals: {rate: 4/s}, requests: 3, check: some}", "check"),
        ("{arrivals: {rate: 4/s}, requests: 3, bounds: {ttft: 1s}}", "invalid metric 'ttft'; use"),
        ("{arrivals: {burst: 4}, requests: 3, find: peak}", "`find: peak` needs"),
        ("{arrivals: {rate: 4/s}, requests: 3, stream: false, bounds: {ttft.p99: 1s}}", "needs `stream: true`"),
    ],
)
def test_what_is_wrong_with_a_load_is_said_at_its_place(world: World, load: str, said: str) -> None:
    suite(world, trial("tiny", load))
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert said in done.stdout + done.stderr
    assert "suite.yaml:10:" in done.stdout + done.stderr


def test_what_is_wrong_with_a_trace_is_said_at_its_line(world: World) -> None:
    (world.folder / "trace.csv").write_text("1.0\n2.0\nsoon\n")
    suite(world, trial("tiny", "{arrivals: {trace: trace.csv}}"))
    done = world.seatrial("run", "suite.yaml", check=2)
    assert "trace.csv:3:1: invalid time 'soon'" in done.stdout + done.stderr


# Answers a stream of one token after so many seconds.
PACED = """
import http.server, json, os, sys, time
TOKEN = {"choices": [{"index": 0, "text": "yes", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = json.dumps(TOKEN)
        if asked["stream"]:
            time.sleep(float(sys.argv[1]))
            text = f"data: {text}\\n\\ndata: [DONE]\\n\\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if asked["stream"] else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""


def test_a_server_that_got_slower_is_slower_by_the_bounds_of_its_own_past(world: World) -> None:
    (world.folder / "paced.py").write_text(PACED)
    (world.folder / "yes.yaml").write_text(json.dumps(YES))
    (world.folder / "delay").write_text("1")
    server = f"command: 'exec {sys.executable} {world.folder}/paced.py $(cat {world.folder}/delay)'"
    load = "{arrivals: {burst: 10}, requests: 10, lag: 1h, metrics: ''}\n    baseline: bounds.yaml"
    suite(world, trial("tiny", load, server, "yes.yaml"))
    (world.folder / "bounds.yaml").write_text("baselines: {}\n")
    past = [world.start("run", "suite.yaml") for _ in range(5)]
    assert [(run.communicate()[0], run.returncode)[1] for run in past] == [0] * 5
    done = world.seatrial(
        "baseline", "update", "suite.yaml", "--metric", "load.ttft.p50", "--reason", "first", "--force", check=0
    )
    assert "load.ttft.p50" in done.stdout
    wide = ("--metric", "load.ttft.p50", "--to", "150%", "--reason", "a busy machine", "--force")
    world.seatrial("baseline", "widen", "suite.yaml", *wide, check=0)
    bounds = (world.folder / "bounds.yaml").read_text()
    world.seatrial("run", "suite.yaml", check=0)
    (world.folder / "delay").write_text("5")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.SLOWER, bounds
    assert "load.ttft.p50" in cell.why
