"""`seatrial plan` of serving trials: cells, cases and what is skipped, each with its reason, before anything starts."""

import json

from seatrial import plugins
from seatrial.job import Settings
from seatrial.job.conditions import other_conditions
from seatrial.plan import expand
from seatrial.suite import load, settings_of
from world import World

CASES = """\
- {name: one, request: {requests: [{text: a}]}, response: {responses: [{text: b, inputTokenCount: 1}]}}
- {name: two at once, request: {requests: [{text: a}, {text: b}]}, response: {responses: [{}, {}]}}
- {name: alone, single_shard_only: true, request: {requests: [{text: a}]}, response: {responses: [{text: b}]}}
- {name: tuned, request: {prefixId: p, requests: [{text: a}]}, error: {code: NOT_FOUND}}
"""


def suite(world: World, cases: str = CASES, fields: str = "") -> None:
    (world.folder / "cases.yaml").write_text(cases)
    world.suite(f"""
name: planned
trials:
  served:
    kind: serving
    matrix: {{shards: [1, 2]}}
    server: {{url: "http://127.0.0.1:1"}}
    cases: [cases.yaml]
    shards: ${{shards}}
    skip: [{{has: prefix, why: tuned prompts are not installed}}]
    batching: false
    {fields}
""")


def test_a_plan_counts_cases_and_requests_and_says_why_cases_are_skipped(world: World) -> None:
    suite(world)
    text = world.seatrial("plan", "suite.yaml", check=0).stdout
    assert "served: 2 to 3 cases in each cell, 8 requests in all (each case whole and as a stream)\n" in text
    assert "     2  skipped: tuned prompts are not installed   (tuned; shards 1, 2)\n" in text
    assert "     1  skipped: needs a single shard; this server has 2   (alone; shards 2)\n" in text
    assert not (world.folder / "runs").exists()


def test_each_skipped_case_is_in_the_plan_for_programs(world: World) -> None:
    suite(world)
    plan = json.loads(world.seatrial("plan", "suite.yaml", "--json", check=0).stdout)
    tuned = {"name": "tuned", "why": "tuned prompts are not installed"}
    alone = {"name": "alone", "why": "needs a single shard; this server has 2"}
    how = {"how": " (each case whole and as a stream)"}
    assert [cell["contents"] for cell in plan["cells"]] == [
        {"item": "case", "count": 3, "ways": 5, "skipped": [tuned], "unmatched": [], **how},
        {"item": "case", "count": 2, "ways": 3, "skipped": [alone, tuned], "unmatched": [], **how},
    ]


def test_a_rule_that_skips_no_case_of_any_cell_is_said_by_plan_and_run(world: World) -> None:
    suite(world)
    rules = '[{has: prefix, why: x}, {case: "tund*", why: x}, {case: "alone-${shards}", why: x}, {tag: t, why: x}]'
    changed = ("--set", f"trials.served.skip={rules}")
    (world.folder / "cases.yaml").write_text(CASES.replace("name: alone", "name: alone-2"))
    said = "".join(f"seatrial: trials.served.skip[{at}] matches no case; correct or remove it\n" for at in (1, 3))
    assert world.seatrial("plan", "suite.yaml", *changed, check=0).stderr == said, "skip[2] matches for two shards"
    soon = ("--set", "trials.served.server.ready.within=1s", "--retries", "0")
    assert said in world.seatrial("run", "suite.yaml", *changed, *soon).stderr
    assert world.seatrial("plan", "suite.yaml", *changed, "--select", "shards=1", check=0).stderr == "", "unknown"


def test_what_is_wrong_with_cases_and_configurations_is_said_by_the_plan_all_at_once(world: World) -> None:
    suite(world, "- {name: one, request: {requests: [{text: a}]}}\n- {name: two, reqest: 1}\n")
    said = world.seatrial("plan", "suite.yaml", check=2).stderr
    assert "cases.yaml:1:3: case has no `response` or `error`" in said
    assert "cases.yaml:2:15: unknown field 'reqest' of a case; did you mean 'request'?" in said
    world.suite("""
name: planned
trials:
  served:
    kind: serving
    matrix: {config: [{dtype_str: float32, flash_attention: true}, {dtype_str: float16, num_shard: 2}]}
    server: {url: "grpc://127.0.0.1:1", protocol: tgis}
    cases: [cases.yaml]
""")
    (world.folder / "cases.yaml").write_text(CASES)
    said = world.seatrial("plan", "suite.yaml", check=2).stderr
    assert "flash attention" in said
    assert "shard" in said


def test_by_default_each_case_is_asked_in_four_ways_which_metrics_do_not_depend_on(world: World) -> None:
    suite(world)
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace("    batching: false\n", ""))
    shown = world.seatrial("plan", "suite.yaml", check=0).stdout
    ways = "16 requests in all (each case whole and as a stream, alone and in a crowd)\n"
    assert f"served: 2 to 3 cases in each cell, {ways}" in shown

    stream_before = Settings({"kind": "serving", "stream": "true", "batching": "true"})
    settings = settings_of(next(iter(expand(load(world.folder / "suite.yaml", *plugins.models())).cells)), {})
    assert not {"stream", "batching"} & settings.conditions.keys()
    changed = {one.field for one in other_conditions(stream_before, settings)}
    assert not {"stream", "batching"} & changed, "bounds of suites that set them still apply"
