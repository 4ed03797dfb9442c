"""Conversations as cases: each turn waits for the previous one and contains its answer."""

import json
from typing import Any

import msgspec
import pytest
from chat_stub import Body, Reply, answer, chat_server, events
from test_openai_cases import LLAMA, findings, suite

from seatrial.kinds.serving.answers import Answered, AnswerRule, Comparing, check_answers, tolerance_for
from seatrial.kinds.serving.cases import cases_of
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, ToolCall
from seatrial.kinds.serving.request import Request, continued
from seatrial.kinds.serving.work import Question, ServingWork, phases_of
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source
from world import World

TALK = """\
- name: talk
  messages: [{role: system, content: Be brief.}]
  max_tokens: 9
  turns:
    - What is a module?
    - {content: And a class?, max_tokens: 5, expect: {contains: "2"}, why: It counts.}
    - {role: tool, tool_call_id: call_0, content: "7"}
"""


def test_each_turn_is_a_case_with_the_fields_of_both() -> None:
    first, second, third = cases_of(Source("cases.yaml", TALK), unanswered=True).cases
    assert [one.name for one in (first, second, third)] == ["talk, turn 1", "talk, turn 2", "talk, turn 3"]
    assert [one.request.turn for one in (first, second, third)] == [0, 1, 2]
    assert [one.request.stopping.max_new_tokens for one in (first, second, third)] == [9, 5, 9]
    assert (first.expect, third.expect, second.why) == (None, None, "It counts.")
    assert second.expect is not None
    assert "turns" not in first.request.body
    said = [(one["role"], one.get("content")) for one in third.request.messages]
    turns = [("user", "What is a module?"), ("assistant", None), ("user", "And a class?"), ("assistant", None)]
    assert said == [("system", "Be brief."), *turns, ("tool", "7")]
    assert second.at == "cases.yaml:6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: a, turns: []}", "`turns` must be a list of messages"),
        ("{name: a, turns: hi}", "`turns` must be a list of messages"),
        ("{name: a, prompt: b, turns: [hi]}", "without a `prompt`"),
        ("{name: a, turns: [7]}", "a turn must be a text, or a map with `content`"),
        ("{name: a, turns: [{expect: {text: b}}]}", "a turn must be a text, or a map with `content`"),
        ("{name: a, turns: [{content: b, expect: {txt: b}}]}", "unknown field 'txt'"),
    ],
)
def test_a_mistake_in_a_turn_is_reported(text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        cases_of(Source("cases.yaml", f"- {text}"))
    assert message in str(caught.value)


def test_a_turn_contains_the_earlier_answers_and_their_tool_calls() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant"}, {"role": "user", "content": "b"}]
    made = continued(
        Request(path="/x", body={"messages": messages, "n": 1}, turn=1),
        [Answer((Generation("A", tool_calls=(ToolCall("t", "{}"),)),))],
    )
    call = {"id": "call_0", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    assert made.body["messages"][1] == {"role": "assistant", "content": "A", "tool_calls": [call]}
    assert (made.body["n"], made.body["messages"][2]) == (1, messages[2])
    assert messages[1] == {"role": "assistant"}


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_asked_in_order_whatever_the_seed(seed: int) -> None:
    requests = [Request(("x",)), Request(turn=0, inputs=("a",)), Request(turn=1, inputs=("b",)), Request(("y",))]
    questions = tuple(Question(str(at), request) for at, request in enumerate(requests))
    for asks, _ in phases_of(ServingWork(questions=questions, stream=True, batching=True, seed=seed)):
        assert len(asks) == 8
        for stream in (False, True):
            places = [at for at, ask in enumerate(asks) if ask.stream is stream and ask.case in (1, 2)]
            assert places[1] == places[0] + 1
            assert asks[places[0]].case == 1


def counting(body: Body) -> Reply:
    """Says how many messages it got, and the last one."""
    text = f"{len(body['messages'])}: {body['messages'][-1]['content']}"
    return events({"role": "assistant", "content": text}) if body.get("stream") else answer(content=text)


COUNTED = """\
- {name: talk, turns: [a, b, {content: c, expect: {text: "5: c"}}]}
- {name: other, messages: [{role: user, content: x}]}
"""


def test_turns_follow_one_another_in_every_way_and_are_recorded(world: World) -> None:
    with chat_server(counting) as (url, asked):
        suite(world, f"{{url: '{url}'}}", COUNTED)
        assert "3 new" in world.seatrial("record", "suite.yaml", check=0).stdout
        asked.clear()
        world.seatrial("run", "suite.yaml", check=0)
    thirds = [body["messages"] for body in asked if len(body["messages"]) == 5]
    assert len(thirds) == 4  # whole and as a stream, alone and in a crowd
    for messages in thirds:
        assert [one["content"] for one in messages] == ["a", "1: a", "b", "3: b", "c"]
    assert findings(world)["case talk, turn 3", "stream in a crowd = unary"][1] == "passed"


def test_turns_after_one_that_failed_are_not_sent(world: World) -> None:
    def failing(body: Body) -> Reply:
        return (400, {"error": {"message": "no"}}) if len(body["messages"]) == 3 else counting(body)

    with chat_server(failing) as (url, asked):
        suite(
            world,
            f"{{url: '{url}'}}",
            COUNTED.replace("a, b", "a, {content: b, expect: {text: b}}")
            .replace("[a,", "[{content: a, expect: {text: '1: a'}},")
            .replace("content: x}]", "content: x}], expect: {contains: x}"),
        )
        world.seatrial("run", "suite.yaml", check=1)
    assert not [body for body in asked if len(body["messages"]) == 5]
    assert "an earlier turn has no answer: no" in findings(world)["case talk, turn 3", "unary"][2]


def test_a_turn_after_another_answer_is_not_compared() -> None:
    """A near tie earlier makes another conversation, in which the recorded answer says nothing."""
    first, second = cases_of(Source("c", "- {name: t, turns: [a, b]}"), unanswered=True).cases

    def made(text: str) -> Answer:
        return Answer((Generation(text, 3, 1, StopReason.STOP),))

    def found(one: str, two: str, recorded: str = "x") -> dict[tuple[str, str], Any]:
        cases = [msgspec.structs.replace(case, answer=made(recorded)) for case in (first, second)]
        answered = [Answered(cases[0], "unary", made(one)), Answered(cases[0], "stream", made("x"))]
        answered += [Answered(cases[1], "unary", made(two)), Answered(cases[1], "stream", made("x"))]
        comparing = Comparing(AnswerRule.TEXT, tolerance_for("f32"))
        return {(one.step, one.check): one for one in check_answers(answered, comparing, "openai")}

    same = found("x", "y")
    assert same["case t, turn 2", "unary"].class_ == "diverged"
    assert ("case t, turn 2", "stream = unary") in same
    other = found("z", "y")
    assert other["case t, turn 1", "unary"].class_ == "diverged"
    assert other["case t, turn 2", "unary"].verdict == "passed"
    assert "not compared: an earlier answer differs" in other["case t, turn 2", "unary"].message
    assert ("case t, turn 2", "stream = unary") not in other


def test_llama_cpp_holds_a_conversation(world: World) -> None:
    cases = json.dumps([{"name": "talk", "max_tokens": 6, "turns": ["What is a module?", "And a class?"]}])
    suite(world, LLAMA, cases)
    assert "2 new" in world.seatrial("record", "suite.yaml", check=0).stdout
    world.seatrial("run", "suite.yaml", check=0)
    first, second = (findings(world)[f"case talk, turn {turn}", "stream"] for turn in (1, 2))
    assert (first[1], second[1:]) == ("passed", ("passed", ""))
