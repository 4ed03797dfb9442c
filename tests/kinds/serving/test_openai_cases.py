"""Cases in OpenAI's own words: how they are read, sent, recorded and checked."""

from pathlib import Path
from typing import Any

import pytest
from chat_stub import Reply, answer, chat_server, events, said
from llama import command

from seatrial.kinds.serving.answers.expect import unmet
from seatrial.kinds.serving.cases import cases_of, read_cases
from seatrial.kinds.serving.cases.openai import described
from seatrial.kinds.serving.driver.cases import with_checks
from seatrial.kinds.serving.driver.openai_format import body_of
from seatrial.kinds.serving.generation import Answer, Failure, Generation, StopReason, ToolCall, Trouble
from seatrial.kinds.serving.request import CHAT, ErrorMatch, Expect, ExpectedError, Method, Mode, Request
from seatrial.kinds.serving.work import Question
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source
from world import World

EXAMPLES = Path(__file__).parent / "cases" / "openai.yaml"


def suite(world: World, server: str, cases: str, *fields: str) -> None:
    lines = "".join(f"    {field}\n" for field in fields)
    world.suite(
        "name: words\ntrials:\n  it:\n    kind: serving\n    model: tiny\n    retries: 0\n"
        f"    server: {server}\n    cases: [cases.yaml]\n{lines}"
    )
    (world.folder / "cases.yaml").write_text(cases)


LLAMA = f"{{command: '{command()}', ready: {{http: /health, within: 10m}}}}"


def findings(world: World) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Class, verdict and message by step and check."""
    (cell,) = world.results().cells
    return {(one.step, one.check): (one.class_, str(one.verdict), one.message) for one in cell.findings}


def test_fields_of_the_api_are_kept_as_written_and_described() -> None:
    short, weather, as_json, bad, shape, models, not_json = read_cases([EXAMPLES], unanswered=True)
    assert short.request.body == {"prompt": "A function is", "max_tokens": 6, "logprobs": 3}
    assert short.request.inputs == ("A function is",)
    assert short.request.stopping.max_new_tokens == 6
    assert short.request.wanted.token_logprobs
    assert (short.request.method, short.request.path) == (Method.GREEDY, "/v1/completions")
    assert weather.request.path == "/v1/chat/completions"
    assert set(weather.request.body) == {"messages", "tools", "tool_choice"}
    assert weather.expect is not None
    calls = (ToolCall("weather", '{"city": "Paris"}'), ToolCall("time", '{"zone": 1}', 1))
    assert (weather.expect.tool_calls, weather.expect.finish_reason) == (calls, StopReason.TOOL_CALLS)
    assert as_json.request.sampling.seed == 7
    assert as_json.request.method is Method.SAMPLE
    assert as_json.request.single
    assert as_json.expect == Expect(contains=("a", "1"), matches="^{", json='{"a": 1}')
    assert bad.error == ExpectedError("400|422", "temperature", ErrorMatch.PATTERN)
    assert bad.why == "A temperature cannot be negative."
    assert shape.request.mode is Mode.STREAM
    assert (shape.request.inputs, shape.request.choices, shape.request.limit_s) == (("one", "two"), 2, 3)
    assert (shape.request.stopping.stop_sequences, shape.request.stopping.max_new_tokens) == ((".",), 4)
    assert shape.expect is not None
    assert list(shape.expect.events) == ["first", "each", "any", "last"]
    assert models.request.path == "/v1/models"
    assert models.expect == Expect(response={"type": "object", "required": ["data"]})
    assert (not_json.request.text, not_json.error) == ("{", ExpectedError("4xx", None, ErrorMatch.PATTERN))


def test_what_is_sent_is_what_is_written_with_a_model_and_no_randomness() -> None:
    request = Request(path="/v1/completions", body={"prompt": "hi", "top_k": 3, "user": None})
    assert body_of(request, "tiny", False, {"temperature": None, "top_k": 9, "seed": 1}) == {
        "model": "tiny",
        "top_k": 3,
        "seed": 1,
        "prompt": "hi",
        "user": None,
    }
    whole = body_of(request, "tiny", False, {})
    assert whole["temperature"] == 0
    assert "stream" not in whole
    streamed = body_of(request, "tiny", True, {})
    assert (streamed["stream"], streamed["stream_options"]) == (True, {"include_usage": True})
    written = Request(path="/v1/completions", body={"model": "x", "temperature": -1, "stream_options": None})
    assert body_of(written, "tiny", True, {}) == {
        "model": "x",
        "temperature": -1,
        "stream": True,
        "stream_options": None,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: a, prompt: b, expects: {text: c}}", "unknown field 'expects'; did you mean 'expect'?"),
        ("{name: a, prompt: b, messages: []}", "set only one of `prompt` and `messages`"),
        ("{name: a, prompt: b, body: c}", "`body` is the whole request"),
        ("{name: a, prompt: b, expect: {}}", "`expect` is empty; use text, contains"),
        ("{name: a, prompt: b, expect: {txt: c}}", "unknown field 'txt' of `expect`; did you mean 'text'?"),
        ("{name: a, prompt: b, expect: {matches: '('}}", "invalid regular expression in `matches`"),
        ("{name: a, prompt: b, expect: {finish_reason: end}}", "unknown finish_reason 'end'; known: length, stop"),
        ("{name: a, prompt: b, expect: {error: {matches: c}}}", "`error` needs a `status`: 400, [400, 422] or 4xx"),
        ("{name: a, prompt: b, expect: {error: {status: 4000}}}", "`error` needs a `status`"),
        ("{name: a, prompt: b, expect: {response: {type: maps}}}", "`response`: invalid JSON Schema at $.type"),
        ("{name: a, prompt: b, expect: {events: {last: {type: maps}}}}", "`events`: invalid JSON Schema"),
        ("{name: a, prompt: b, stream: true, expect: {response: {}}}", "use `events`"),
        ("{name: a, prompt: b, expect: {tool_calls: [{arguments: {}}]}}", "a tool call needs `name`"),
        ("{prompt: b, expect: {text: c}}", "case has no `name`"),
        ("{name: a, max_tokens: 3}", "case has no `request`, `prompt` or `messages`"),
    ],
)
def test_a_mistake_in_a_case_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        cases_of(Source("cases.yaml", f"- {text}"))
    assert message in str(caught.value)
    assert "cases.yaml:1" in str(caught.value)


GOT = Generation(text='{"a": 1}', stop_reason=StopReason.STOP)
CALLS = Generation(text="", tool_calls=(ToolCall("weather", '{"city": "Paris", "days": 2}'),))


@pytest.mark.parametrize(
    ("expect", "got", "problem"),
    [
        (Expect(text='{"a": 1}', contains=("a",), matches="^{", json='{"a":1}'), GOT, ""),
        (Expect(text="b"), GOT, """text '{"a": 1}' (expected 'b')"""),
        (Expect(contains=("a", "c", "d")), GOT, """'c', 'd' not in the text '{"a": 1}'"""),
        (Expect(matches="^a"), GOT, """does not match ^a"""),
        (Expect(json='{"a": 2}'), GOT, "(expected the JSON '{\"a\": 2}')"),
        (Expect(json="null"), Generation(text="not JSON"), "text 'not JSON' (expected the JSON 'null')"),
        (Expect(finish_reason=StopReason.MAX_TOKENS), GOT, "finish reason stop (expected max_tokens)"),
        (Expect(tool_calls=(ToolCall("weather"),)), CALLS, ""),
        (Expect(tool_calls=(ToolCall("weather", '{"days": 2, "city": "Paris"}'),)), CALLS, ""),
        (Expect(tool_calls=(ToolCall("time"),)), CALLS, "calls weather (expected time)"),
        (Expect(tool_calls=()), CALLS, "calls weather (expected no tool)"),
        (Expect(tool_calls=(ToolCall("weather", "{}"),)), CALLS, "calls weather with '{\"city"),
        (Expect(tool_calls=(ToolCall("weather"), ToolCall("time"))), CALLS, "(expected weather, time)"),
    ],
)
def test_each_expectation_names_what_it_found(expect: Expect, got: Generation, problem: str) -> None:
    found = "; ".join(unmet(expect, Request(), Answer((got,)), stream=False))
    assert problem in found
    assert bool(found) == bool(problem)


RAW = (b'{"id": 1}', b'{"id": 2, "usage": {}}')


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ({"each": {"required": ["id"]}, "last": {"required": ["usage"]}, "any": {"required": ["usage"]}}, ""),
        ({"first": {"required": ["usage"]}}, "event 0 violates the schema at $: 'usage' is a required property"),
        ({"each": {"properties": {"id": {"const": 1}}}}, "event 1 violates the schema at $.id: 1 was expected"),
        ({"last": {"required": ["model"]}}, "event 1 violates"),
        ({"any": {"required": ["model"]}}, "no event has the expected form; event 1 violates"),
        ({"each": {"$ref": "http://127.0.0.1:9/schema"}}, "the schema has an unknown reference http://127.0.0.1:9"),
    ],
)
def test_schemas_describe_the_events_of_a_stream(events: dict[str, Any], problem: str) -> None:
    found = "; ".join(unmet(Expect(events=events), Request(), Answer((GOT,), raw=RAW), stream=True))
    assert problem in found
    assert bool(found) == bool(problem)
    assert not list(unmet(Expect(events=events), Request(), Answer((GOT,), raw=RAW), stream=False))


def test_a_body_is_checked_also_if_it_is_an_error_but_not_if_there_is_none() -> None:
    expect = Expect(response={"required": ["error"]}, text="not looked at")
    refused = Answer(failure=Failure("400", "no"), raw=(b"{}",))
    assert list(unmet(expect, Request(), refused, False)) == [
        "the response violates the schema at $: 'error' is a required property"
    ]
    assert "not valid JSON" in next(
        unmet(expect, Request(), Answer(failure=Failure("400", "no"), raw=(b"<html>",)), False)
    )
    assert not list(unmet(expect, Request(), Answer(failure=Failure("", "late", Trouble.LATE)), False))


def test_a_search_without_end_costs_only_its_case() -> None:
    question = Question("a", Request(), expect=Expect(matches="(a+)+$"))
    found = with_checks(Answer((Generation(text="a" * 60 + "b"),)), question, False)
    assert found.problems == ("not checked: it took more than 2 s of CPU time",)


WORDS = """\
# Ours.
- {name: greedy, prompt: A function is, max_tokens: 6, logprobs: 3}   # the usual
- {name: greedy, prompt: The class, max_tokens: 4, logprobs: 2}
- {name: chat, messages: [{role: user, content: What is a module?}], max_tokens: 5, logprobs: true, top_logprobs: 2}
- name: too long
  prompt: LONG
- {name: chance, prompt: Once, max_tokens: 3, temperature: 5.0}
- {name: checked, prompt: Once, max_tokens: 3, expect: {finish_reason: length}}
""".replace("LONG", "one two three four five " * 200)
CHANCE = "- {name: chance, prompt: Once, max_tokens: 3, temperature: 5.0}\n"


def test_answers_are_recorded_beside_the_case_file(world: World) -> None:
    suite(world, LLAMA, WORDS, "stream: true")
    done = world.seatrial("record", "suite.yaml", check=0)
    assert "4 new, 1 refused" in done.stdout
    path = world.folder / "cases.yaml"
    assert path.read_text() == WORDS
    beside = world.folder / "cases.answers.yaml"
    recorded = read_cases([path], unanswered=True)
    first, second, chat, error, chance, checked = recorded
    assert (first.name, second.name) == ("greedy", "greedy #2")
    for case, tops in ((first, 3), (second, 2), (chat, 2)):
        assert case.answer is not None
        (made,) = case.answer.generations
        assert made.tokens is not None
        assert len(made.tokens) == case.request.stopping.max_new_tokens
        assert len(made.tokens[0].top) == tops
    assert error.error is not None
    assert "context size" in str(error.error.message)
    assert chance.answer is None
    assert checked.answer is None

    missing = world.seatrial("run", "suite.yaml", check=2)
    assert "`chance` (" in missing.stderr
    path.write_text(WORDS.replace(CHANCE, ""))
    world.seatrial("run", "suite.yaml", check=0)
    assert "4 same" in world.seatrial("record", "suite.yaml", check=0).stdout
    beside.write_text(beside.read_text().replace("generatedTokenCount: 6", "generatedTokenCount: 5"))
    assert "6 generated tokens (expected 5)" in world.seatrial("run", "suite.yaml", check=1).stdout
    beside.unlink()
    assert "has no answer" in world.seatrial("run", "suite.yaml", check=2).stderr


EXPECTING = """\
- {name: length, prompt: A function is, max_tokens: 4, expect: {finish_reason: length, matches: "[a-z]"}}
- name: shape
  messages: [{role: user, content: hi}]
  max_tokens: 3
  expect:
    response: {required: [id, object, choices], properties: {object: {const: chat.completion}}}
    events: {each: {properties: {object: {const: chat.completion.chunk}}}, last: {required: [usage]}}
- name: two
  prompt: Once
  max_tokens: 3
  n: 2
  temperature: 1
  seed: 1
  expect: {response: {properties: {choices: {minItems: 2}}}}
- {name: models, path: /v1/models, expect: {response: {required: [data]}}}
- {name: invalid, body: "{", expect: {error: {status: [400, 500], matches: (?i)json}}}
- name: wrong
  why: The answer ends at the limit.
  prompt: A function is
  max_tokens: 4
  expect: {finish_reason: stop}
"""


def test_expectations_need_no_recorded_answer(world: World) -> None:
    suite(world, LLAMA, EXPECTING, "stream: false", "batching: false")
    world.seatrial("run", "suite.yaml", check=1)
    found = findings(world)
    failed = {key: one for key, one in found.items() if one[1] == "failed"}
    assert failed == {
        ("case wrong", "unary"): (
            "expect",
            "failed",
            "finish reason max_tokens (expected stop); why: The answer ends at the limit.",
        )
    }
    assert ("case shape", "stream") in found  # because it expects events
    assert ("case shape", "stream = unary") in found
    assert ("case length", "stream") not in found


def test_choices_of_a_stream_are_told_apart(world: World) -> None:
    def two(body: dict[str, Any]) -> Reply:
        if body.get("max_tokens") == 1:  # the first request, which shows that it is ready
            return answer(content="a")
        made = events({"content": "a"}, {"content": "b"})
        return [
            {"choices": [{**one, "index": index}], "model": "stub"}
            for event in made
            for one in event["choices"]
            for index in (0, 1)
        ]

    cases = "- {name: two, messages: [{role: user, content: hi}], n: 2, stream: true, expect: {text: ab}}\n"
    with chat_server(two) as (url, asked):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("run", "suite.yaml", check=0)
    assert asked[-1]["n"] == 2
    assert findings(world)["case two", "stream"] == ("", "passed", "")


def test_the_reason_of_a_case_is_shown_with_an_error_that_nobody_expected(world: World) -> None:
    def refuse(body: dict[str, Any]) -> Reply:
        return said("yes")(body) if body.get("max_tokens") == 1 else (500, {"error": {"message": "no"}})

    cases = "- {name: a, prompt: hi, why: It must answer., expect: {text: yes}}\n"
    with chat_server(refuse) as (url, _):
        suite(world, f"{{url: '{url}'}}", cases)
        world.seatrial("run", "suite.yaml", check=1)
    assert "no; why: It must answer." in findings(world)["case a", "unary"][2]


def test_tools_that_are_no_list_are_sent_and_count_as_none() -> None:
    assert described({"messages": [], "tools": 5}, CHAT).tools == ()
