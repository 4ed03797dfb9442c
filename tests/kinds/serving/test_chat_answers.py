"""What chat models return: tool calls, reasoning, structured output, usage and the model's name."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from chat_stub import Body, Reply, answer, chat_server, events, said
from test_openai_cases import LLAMA, findings, suite

from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.serving.answers import AnswerRule, Comparing, tolerance_for
from seatrial.kinds.serving.answers.answer import check_alone, compare_ways
from seatrial.kinds.serving.answers.expect import unchecked, unmet
from seatrial.kinds.serving.answers.judge import compare_by_rule
from seatrial.kinds.serving.cases.openai import described
from seatrial.kinds.serving.driver.load_metrics import summarize_load
from seatrial.kinds.serving.driver.load_requests import Timed
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, ToolCall
from seatrial.kinds.serving.load_work import LoadWork
from seatrial.kinds.serving.request import Case, Expect, Guide
from world import World

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("weather", "time")]
CASES = f"""\
- name: tools
  messages: [{{role: user, content: "How warm is it in Paris and Rome?"}}]
  tools: {json.dumps(TOOLS)}
"""
COMPARING = Comparing(AnswerRule.NEAR_TIE, tolerance_for("f32"), model="tiny")


def call(name: str, arguments: str, index: int = 0) -> Body:
    return {
        "index": index,
        "id": f"call-{index}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calling(streamed: list[Body] | None = None, finish: str = "tool_calls") -> Callable[[Body], Reply]:
    """Two parallel calls, in a stream in pieces, or as these deltas."""
    whole = [call("weather", '{"city": "Paris"}', 0), call("weather", '{"city": "Rome"}', 1)]
    pieces = streamed or [
        call("weather", "", 0),
        {"index": 0, "function": {"arguments": '{"city":'}},
        {"index": 0, "function": {"arguments": '"Paris"}'}},
        call("weather", '{ "city" : ', 1),
        {"index": 1, "function": {"arguments": '"Rome"}'}},
    ]

    def reply(body: Body) -> Reply:
        if body.get("stream"):
            return events(
                {"role": "assistant", "content": None}, *({"tool_calls": [one]} for one in pieces), finish=finish
            )
        return answer("tool_calls", tool_calls=whole)

    return reply


def test_parallel_tool_calls_are_recorded_and_equal_in_a_stream(world: World) -> None:
    with chat_server(calling()) as (url, asked):
        suite(world, f"{{url: '{url}'}}", CASES)
        world.seatrial("record", "suite.yaml", check=0)
        assert asked[-1]["tools"] == TOOLS
        recorded = (world.folder / "cases.answers.yaml").read_text()
        assert recorded.count("name: weather") == 2
        world.seatrial("run", "suite.yaml", check=0)
        assert findings(world)["case tools", "stream = unary"][1] == "passed"
        assert "1 same" in world.seatrial("record", "suite.yaml", check=0).stdout


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([call("time", '{"city": "Paris"}')], "calls time (expected weather, weather)"),
        ([call("weather", '{"city": "Oslo"}'), call("weather", '{"city": "Rome"}', 1)], 'with \'{"city": "Oslo"}\''),
        ([call("weather", '{"city": "Paris"}')], "calls weather (expected weather, weather)"),
    ],
)
def test_a_stream_that_calls_other_tools_has_a_finding_of_its_own(
    world: World, pieces: list[Body], message: str
) -> None:
    with chat_server(calling()) as (url, _):
        suite(world, f"{{url: '{url}'}}", CASES)
        world.seatrial("record", "suite.yaml", check=0)
    with chat_server(calling(pieces)) as (url, _):
        suite(world, f"{{url: '{url}'}}", CASES)
        world.seatrial("run", "suite.yaml", check=1)
    found = findings(world)
    assert found["case tools", "unary"][1] == "passed"
    for check in ("stream", "stream = unary"):
        assert found["case tools", check][:2] == ("tool_calls", "failed")
        assert message in found["case tools", check][2]


@pytest.mark.parametrize(
    ("fields", "calls", "stop", "message"),
    [
        ({"tools": TOOLS}, [ToolCall("time", "{}")], StopReason.TOOL_CALLS, ""),
        (
            {"tools": TOOLS},
            [ToolCall("date", "{}")],
            StopReason.TOOL_CALLS,
            "calls date; the request has weather, time",
        ),
        ({}, [ToolCall("date", "{}")], StopReason.TOOL_CALLS, "calls date; the request has no tools"),
        ({"tools": TOOLS}, [ToolCall("time", "[1]")], StopReason.TOOL_CALLS, "not a JSON object: '[1]'"),
        ({"tools": TOOLS}, [ToolCall("time", '{"a')], StopReason.MAX_TOKENS, ""),  # cut off
        ({"tools": TOOLS}, [], StopReason.TOOL_CALLS, "finish reason tool_calls without a tool call"),
        ({"tools": TOOLS, "tool_choice": "none"}, [ToolCall("time")], StopReason.STOP, "`tool_choice` is none"),
        ({"tools": TOOLS, "tool_choice": "required"}, [], StopReason.STOP, "calls no tool; `tool_choice` is required"),
        ({"tools": TOOLS, "tool_choice": TOOLS[0]}, [ToolCall("weather")], StopReason.STOP, ""),
        ({"tools": TOOLS, "tool_choice": TOOLS[0]}, [ToolCall("time")], StopReason.STOP, "`tool_choice` is weather"),
    ],
)
def test_tool_calls_fit_their_request(fields: Body, calls: list[ToolCall], stop: StopReason, message: str) -> None:
    request = described({"messages": [{"role": "user", "content": "hi"}], **fields}, "/v1/chat/completions")
    found = check_alone(request, Answer((Generation(tool_calls=tuple(calls) or None, stop_reason=stop),)), "openai")
    assert message in found.message
    assert found.passes == (not message)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_recorded_and_compared(world: World, field: str) -> None:
    def thinking(text: str) -> Callable[[Body], Reply]:
        def reply(body: Body) -> Reply:
            if body.get("stream"):
                return events({"role": "assistant"}, {field: text[:3]}, {field: text[3:]}, {"content": "Yes."})
            return answer(content="Yes.", **{field: text})

        return reply

    cases = "- {name: think, messages: [{role: user, content: hi}]}\n"
    with chat_server(thinking("Let me see.")) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("record", "suite.yaml", check=0)
        assert "reasoning: Let me see." in (world.folder / "cases.answers.yaml").read_text()
        world.seatrial("run", "suite.yaml", check=0)
    with chat_server(thinking("Let us see.")) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("run", "suite.yaml", check=1)
    message = "the reasoning differs from character 4 on: 'us see.' instead of 'me see.'"
    assert findings(world)["case think", "unary"] == ("diverged", "failed", message)


def test_reasoning_that_is_missing_in_a_stream_fails() -> None:
    case = Case("a", described({"messages": [{"role": "user", "content": "hi"}]}, "/v1/chat/completions"))
    whole = Answer((Generation("Yes.", reasoning="Let me see.", stop_reason=StopReason.STOP),))
    stream = Answer(messages=(Generation("Yes."), Generation(stop_reason=StopReason.STOP)))
    assert "the reasoning differs" in compare_ways(case, whole, stream, COMPARING).message


def test_times_count_reasoning_and_the_answer_apart() -> None:
    """20 tokens of reasoning and 5 of the answer, one every 50 ms."""
    stamps = [0.1 + 0.05 * place for place in range(25)]
    one = Timed(0.0, stamps=stamps, counts=[1] * 25, tokens=25, answer_s=stamps[20], end_s=stamps[-1])
    summary = summarize_load(LoadWork(Arrivals("rate")), [one] * 8)
    found = {name: values["p50"] for name, values in summary.latencies.items()}
    assert found["ttft"] == pytest.approx(0.1)
    assert found["ttfo"] == pytest.approx(1.1)
    assert found["tpot"] == pytest.approx(0.05)
    assert found["itl"] == pytest.approx(0.05)
    plain = Timed(0.0, stamps=stamps, counts=[1] * 25, tokens=25, answer_s=stamps[0], end_s=stamps[-1])
    assert "ttfo" not in summarize_load(LoadWork(Arrivals("rate")), [plain] * 8).latencies


SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("fields", "guide", "good", "bad"),
    [
        ({"response_format": {"type": "json_object"}}, Guide.JSON, "[1]", "{'a': 1}"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, Guide.JSON_SCHEMA, '{"a": 1}', "{}"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            Guide.JSON_SCHEMA,
            '{"a": 1}',
            '{"a": "1"}',
        ),
        ({"guided_json": json.dumps(SCHEMA)}, Guide.JSON_SCHEMA, '{"a": 1}', "1"),
        ({"json_schema": SCHEMA}, Guide.JSON_SCHEMA, '{"a": 1}', "1"),
        ({"structured_outputs": {"json": SCHEMA}}, Guide.JSON_SCHEMA, '{"a": 1}', "1"),
        ({"guided_regex": "[0-9]+"}, Guide.REGEX, "12", "12 "),
        ({"regex": "[0-9]+"}, Guide.REGEX, "12", ""),
        ({"structured_outputs": {"regex": "a|b"}}, Guide.REGEX, "b", "c"),
        ({"guided_choice": ["yes", "no"]}, Guide.CHOICE, "no", "No"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, Guide.CHOICE, "yes", "yes!"),
    ],
)
def test_a_structured_answer_is_validated(fields: Body, guide: Guide, good: str, bad: str) -> None:
    request = described({"prompt": "hi", **fields}, "/v1/completions")
    assert request.decoding.guided is not None
    assert request.decoding.guided.guide is guide

    def problems(text: str, stop: StopReason = StopReason.STOP) -> list[str]:
        return list(unmet(Expect(), request, Answer((Generation(text, stop_reason=stop),)), False))

    assert problems(good) == []
    assert len(problems(bad)) == 1
    assert problems(bad, StopReason.MAX_TOKENS) == []  # cut off
    assert unchecked(request) == ""


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"grammar": 'root ::= "yes"'}, "the structure was not checked: Seatrial cannot check a grammar"),
        ({"guided_grammar": "x"}, "the structure was not checked: Seatrial cannot check a grammar"),
        ({"guided_regex": "(?<a"}, "Python cannot read the regular expression"),
        ({"guided_json": "{"}, "the structure was not checked: "),
        ({"guided_json": {"type": "maps"}}, "invalid JSON Schema at $.type"),
    ],
)
def test_what_cannot_be_checked_is_said(fields: Body, why: str) -> None:
    request = described({"prompt": "hi", **fields}, "/v1/completions")
    assert why in unchecked(request)
    assert not list(unmet(Expect(), request, Answer((Generation("x", stop_reason=StopReason.STOP),)), False))


STRUCTURED = """\
- name: digit
  messages: [{role: user, content: hi}]
  max_tokens: 200
  response_format: {type: json_schema, json_schema: {name: x, schema: {type: integer, minimum: 0, maximum: 9}}}
  expect: {finish_reason: stop}
- name: grammar
  prompt: hi
  max_tokens: 9
  grammar: 'root ::= "yes" | "no"'
  expect: {matches: "^(yes|no)$"}
"""


def test_llama_cpp_keeps_to_a_schema_and_a_server_that_ignores_it_fails(world: World) -> None:
    suite(world, LLAMA, STRUCTURED)
    world.seatrial("run", "suite.yaml", check=0)
    message = "the structure was not checked: Seatrial cannot check a grammar"
    assert findings(world)["case grammar", "unary"] == ("", "passed", message)
    with chat_server(said('{"a": 1}')) as (url, _):
        suite(world, f"{{url: '{url}'}}", STRUCTURED.partition("- name: grammar")[0])
        world.seatrial("run", "suite.yaml", check=1)
    message = "the answer violates the schema at $: {'a': 1} is not of type 'integer'"
    assert findings(world)["case digit", "unary"] == ("expect", "failed", message)
    assert findings(world)["case digit", "stream"] == ("expect", "failed", message)


def _changed(
    reply: Callable[[Body], Reply], change: Callable[[Body], None], streams: bool = True
) -> Callable[[Body], Reply]:
    def changed(body: Body) -> Reply:
        made = reply(body)
        if body.get("max_tokens") != 1 and (streams or not isinstance(made, list)):
            for one in made if isinstance(made, list) else [made]:
                change(one)  # type: ignore[arg-type]
        return made

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.pop("usage", None), "no usage (expected 3 input tokens)"),
        (lambda made: made.update(model="other"), "the answer is from model 'other' (expected 'tiny')"),
    ],
)
def test_missing_usage_and_another_model_are_findings(world: World, change: Any, message: str) -> None:
    named = _changed(said("Yes."), lambda made: made.update(model="tiny"))
    cases = "- {name: a, messages: [{role: user, content: hi}]}\n"
    with chat_server(named) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("record", "suite.yaml", check=0)
        assert "model: tiny" in (world.folder / "cases.answers.yaml").read_text()
        world.seatrial("run", "suite.yaml", check=0)
    with chat_server(_changed(named, change)) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("run", "suite.yaml", check=1)
        assert findings(world)["case a", "unary"] == ("structure", "failed", message)
        assert findings(world)["case a", "stream"] == ("structure", "failed", message)


def test_a_name_that_the_server_chooses_is_not_recorded_but_must_be_the_same_in_a_stream(world: World) -> None:
    cases = "- {name: a, messages: [{role: user, content: hi}]}\n"
    with chat_server(said("Yes.")) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("record", "suite.yaml", check=0)
        assert "model:" not in (world.folder / "cases.answers.yaml").read_text()
    with chat_server(_changed(said("Yes."), lambda made: made.update(model="x"), streams=False)) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("run", "suite.yaml", check=1)
    message = "the answer is from model 'stub', not 'x' as before"
    assert findings(world)["case a", "stream = unary"] == ("structure", "failed", message)


def test_usage_may_be_missing_where_it_was_not_asked_for() -> None:
    expected, got = Generation("a", 3, 1), Generation("a")
    assert compare_by_rule(expected, got, COMPARING)[0].message == "no usage (expected 3 input tokens)"
    not_asked = Comparing(AnswerRule.NEAR_TIE, tolerance_for("f32"), usage=False)
    assert compare_by_rule(expected, got, not_asked)[0].passes
