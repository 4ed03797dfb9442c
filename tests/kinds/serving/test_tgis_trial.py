"""A trial over TGIS's gRPC protocol, with a case file as TGIS's own tests have it."""

import json
import sys
from pathlib import Path

from llama import model

from world import World

SERVER = Path(__file__).with_name("tgis_server.py")
CASES = Path(__file__).with_name("tgis-cases.yaml").read_text()


def suite(world: World, fields: str = "") -> None:
    (world.folder / "cases.yaml").write_text(CASES)
    world.suite(f"""
name: tgis
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    server:
      command: 'exec {sys.executable} {SERVER} {model("f32")}'
      protocol: tgis
      port: 8033
      ready: {{http: ":3000/health", within: 10m}}
    cases: [cases.yaml]
    {fields}
""")


def test_cases_of_tgis_pass_whole_as_streams_alone_and_in_a_crowd_and_under_load(world: World) -> None:
    suite(world, "load: {arrivals: {rate: 20/s}, requests: 20, lag: 1h, bounds: {ttft.p99: 1h}}")
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    ways = [finding.check for finding in cell.findings if finding.step == "case Greedy"]
    assert sorted(ways) == sorted(
        [
            "unary",
            "stream",
            "stream = unary",
            "unary in a crowd",
            "unary in a crowd = unary",
            "stream in a crowd",
            "stream in a crowd = unary",
        ]
    )
    assert cell.metrics["load"]["ttft"]["p50"]["value"] > 0
    (samples,) = world.run().path.glob("cells/*/1/driver/files/load-metrics.jsonl")
    metrics = [json.loads(line)["values"] for line in samples.read_text().splitlines()]
    answered = [one['tgi_request_success{kind="single"}'] for one in metrics]
    assert answered[-1] - answered[0] == 20
    assert metrics[-1]["tgi_request_generated_tokens_sum"] > metrics[0]["tgi_request_generated_tokens_sum"]
    (records,) = world.run().path.glob("cells/*/1/driver/records.jsonl")
    notes = [json.loads(line).get("data", {}) for line in records.read_text().splitlines()]
    (about,) = (note["about"] for note in notes if "about" in note)
    assert about == {"model_kind": "DECODER_ONLY", "max_sequence_length": 512, "max_new_tokens": 100}
    assert world.left() == []


def test_a_wrong_logprob_and_a_wrong_error_are_found(world: World) -> None:
    suite(world)
    text = CASES.replace("logprob: -1.7301693", "logprob: -1.6301693").replace("min_new_tokens must", "min must")
    (world.folder / "cases.yaml").write_text(text)
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    failed = {(finding.step, finding.class_) for finding in cell.findings if str(finding.verdict) == "failed"}
    assert {("case Greedy", "drift"), ("case Too few", "error")} <= failed
