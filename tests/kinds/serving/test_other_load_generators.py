"""Result files of other load generators, in their own formats, checked by the bounds of a serving trial."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from seatrial import SeatrialError
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.serving.load_model import parse_load_bound
from seatrial.kinds.serving.load_work import LoadSummary, LoadWork
from seatrial.kinds.serving.results import read_results
from world import World

LOAD = LoadWork(Arrivals("rate", 1.0), bounds=(parse_load_bound("ttft.p99", "500ms"), parse_load_bound("errors", 0)))


def _guidellm(rate: float, ttft_ms: float, errored: int = 0) -> dict[str, Any]:
    def found(mean: float, p99: float, count: int) -> dict[str, Any]:
        quantiles = {"p001": 1.0, "p01": 1.0, "p50": mean, "p90": mean, "p95": mean, "p99": p99, "p999": p99}
        return {"successful": {"mean": mean, "max": p99, "count": count, "percentiles": quantiles}, "errored": {}}

    metrics = {
        "request_totals": {"successful": 199, "errored": errored, "incomplete": 3, "total": 202 + errored},
        "requests_per_second": found(rate, rate, 199),
        "output_tokens_per_second": found(640.0, 700.0, 199),
        "request_latency": found(0.7, 0.9, 199),
        "time_to_first_token_ms": found(ttft_ms / 2, ttft_ms, 199),
        "inter_token_latency_ms": found(10.0, 12.0, 2985),
        "time_per_output_token_ms": found(44.0, 56.0, 199),
        "slo_attainment": None,
    }
    requests = {"successful": [{"prompt": "x" * 50}] * 199}
    return {"type_": "generative", "config": {"strategy": {"rate": rate}}, "metrics": metrics, "requests": requests}


GUIDELLM = {"metadata": {"version": 1}, "config": {}, "benchmarks": [_guidellm(40.0, 80.0, 1)]}
VLLM = {
    "date": "20261001-060000",
    "backend": "vllm",
    "num_prompts": 200,
    "request_rate": 40.0,
    "duration": 5.0,
    "completed": 199,
    "failed": 1,
    "total_output_tokens": 3184,
    "request_throughput": 40.0,
    "request_goodput": 38.0,
    "output_throughput": 640.0,
    **{
        f"{part}_{name}_ms": value
        for name, value in (("ttft", 80.0), ("tpot", 12.0), ("itl", 12.0), ("e2el", 900.0))
        for part in ("mean", "median", "std", "p90", "p99", "p99.9")
    },
    "ttfts": [0.01] * 200,
    "errors": [""] * 200,
}
AIPERF = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_throughput": {"unit": "requests/sec", "avg": 40.0},
    "request_count": {"unit": "requests", "avg": 199.0},
    "error_request_count": {"unit": "requests", "avg": 1.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 640.0},
    "time_to_first_token": {"unit": "ms", "avg": 40.0, "max": 80.0, "p50": 40.0, "p99": 80.0, "count": 199},
    "inter_token_latency": {"unit": "ms", "avg": 10.0, "max": 12.0, "p50": 10.0, "p99": 12.0, "count": 199},
    "request_latency": {"unit": "ms", "avg": 700.0, "max": 900.0, "p50": 700.0, "p99": 900.0, "count": 199},
    "input_config": {"endpoint": {"model_names": ["m"]}},
}
_SECONDS = {"mean": 0.5, "min": 0.0, "median": 0.5, "max": 0.9, "p0.1": 0.0, "p90": 0.5}
INFERENCE_PERF = {
    "load_summary": {"count": 200, "schedule_delay": {**_SECONDS, "p99": 0.001}, "requested_rate": 40.0},
    "successes": {
        "count": 199,
        "latency": {
            "request_latency": {**_SECONDS, "p99": 0.9},
            "time_to_first_token": {**_SECONDS, "p99": 0.08},
            "time_per_output_token": {**_SECONDS, "p99": 0.012},
            "inter_token_latency": {**_SECONDS, "p99": 0.012},
            "normalized_time_per_output_token": {**_SECONDS, "p99": 0.044},
        },
        "throughput": {"requests_per_sec": 40.0, "output_tokens_per_sec": 640.0, "total_tokens_per_sec": 700.0},
    },
    "failures": {"count": 1, "request_latency": None, "by_label": {"504 - Gateway Timeout": {"count": 1}}},
}
FILES = {"guidellm": GUIDELLM, "vllm bench serve": VLLM, "AIPerf": AIPERF, "inference-perf": INFERENCE_PERF}


def read(tmp_path: Path, data: object) -> tuple[str, LoadSummary]:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    tool, note = read_results(path, LOAD)
    assert note.summary is not None
    return tool, note.summary


@pytest.mark.parametrize("name", FILES)
def test_each_format_gives_the_same_metrics_in_seconds(tmp_path: Path, name: str) -> None:
    tool, summary = read(tmp_path, FILES[name])
    assert tool == name
    assert (summary.requests, summary.errors, summary.rate, summary.tokens_per_s) == (200, 1, 40.0, 640.0)
    found = {metric: summary.latencies[metric]["p99"] for metric in ("ttft", "tpot", "e2e")}
    assert found == pytest.approx({"ttft": 0.08, "tpot": 0.012, "e2e": 0.9})
    assert {"p50", "mean", "count"} <= summary.latencies["ttft"].keys()


def test_quantiles_with_many_nines_keep_their_names_and_goodput_is_known_only_if_it_was_measured(
    tmp_path: Path,
) -> None:
    _, vllm = read(tmp_path, VLLM)
    assert vllm.latencies["ttft"]["p99.9"] == 0.08
    assert vllm.goodput == pytest.approx(38 / 40 * 199 / 200)
    _, guidellm = read(tmp_path, GUIDELLM)
    assert {"p99.9", "p1", "p0.1"} <= guidellm.latencies["ttft"].keys()
    assert guidellm.goodput is None


def test_failed_requests_are_known_from_the_total_or_the_file_is_refused(tmp_path: Path) -> None:
    old = {key: value for key, value in VLLM.items() if key != "failed"}
    assert read(tmp_path, old)[1].errors == 1
    with pytest.raises(SeatrialError, match="lacks the number of answered or failed requests"):
        read(tmp_path, {key: value for key, value in old.items() if key != "num_prompts"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "unknown format; use a result file (JSON) of vllm bench serve, guidellm, AIPerf, inference-perf"),
        ('{"benchmarks": []}', "has no results"),
        ("[]", "cannot read"),
        ("nonsense", "cannot read"),
        ('{"completed": NaN}', "cannot read"),
        ('{"request_throughput": 1, "completed": 1e999, "failed": 0}', "cannot read"),
    ],
)
def test_other_files_are_refused_with_a_reason(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(SeatrialError) as caught:
        read_results(path, LOAD)
    assert why in str(caught.value)


def test_several_loads_in_one_file_are_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(
        json.dumps({"benchmarks": [_guidellm(rate, ttft) for rate, ttft in ((40, 900), (10, 50), (20, 90))]})
    )
    _, note = read_results(path, LOAD)
    assert [stage.rate for stage in note.stages] == [10, 20, 40]
    assert (note.peak, note.broke_at) == (20, 40)


SUITE = """\
trials:
  load:
    kind: serving
    model: m
    server: {url: "http://127.0.0.1:1"}
    load:
      arrivals: {rate: 40/s}
      requests: 200
      lengths: {input: 4, output: 16}
      bounds: {ttft.p99: 100ms, errors: 1}
  cases: {kind: runtime, commands: [git]}
"""


@pytest.mark.parametrize("name", FILES)
def test_check_gives_a_verdict_and_a_place_in_the_history(world: World, name: str) -> None:
    world.suite(SUITE)
    (world.folder / "good.json").write_text(json.dumps(FILES[name]))
    good = world.seatrial("check", "good.json", "--suite", "suite.yaml", "--trial", "load", "--record", check=0)
    assert f"measured by {name}" in good.stdout
    assert "load.ttft.p99 0.08 s" in good.stdout
    assert "recorded as check-good.json-" in good.stderr
    slow = json.dumps(FILES[name]).replace("0.08", "0.8").replace("80.0", "800.0")
    (world.folder / "slow.json").write_text(slow)
    bad = world.seatrial("check", "slow.json", "--suite", "suite.yaml", "--trial", "load", check=1)
    assert "ttft.p99 is 0.8 s (n = 199) (bound 100ms)" in bad.stdout
    shown = world.seatrial("history", "load", "--metric", "load.ttft.p99", check=0).stdout
    assert "80 ms last, 1 run" in shown


def test_check_refuses_what_it_cannot_judge(world: World) -> None:
    world.suite(SUITE)
    lagging = deepcopy(INFERENCE_PERF)
    lagging["load_summary"]["schedule_delay"]["p99"] = 0.5  # type: ignore[index]
    (world.folder / "late.json").write_text(json.dumps(lagging))
    late = world.seatrial("check", "late.json", "--suite", "suite.yaml", "--trial", "load", check=1).stdout
    assert "this measures the client, not the server" in late
    for arguments, why in (
        ((".", "--trial", "load"), "use the result file of a load generator"),
        (("missing.json", "--trial", "load"), "file not found: "),
        (("late.json", "--trial", "load", "--exit-code", "0"), "without --log and --exit-code"),
        (("late.json", "--trial", "cases"), "which has no files to check"),
    ):
        assert why in world.seatrial("check", *arguments, "--suite", "suite.yaml", check=2).stderr
