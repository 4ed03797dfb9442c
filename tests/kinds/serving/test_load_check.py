"""Answers under load: lengths of all, the content of a sample, and what that does to errors and goodput."""

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broken_server import DONE, END, event, in_chunks, server

from seatrial import plugins
from seatrial.job import Verdict
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.driver import Driver, Given
from seatrial.kinds.serving.answers.answer import repeated_unit
from seatrial.kinds.serving.driver.load import run_load
from seatrial.kinds.serving.driver.load_requests import Length, draw_sample, length_of, length_problem
from seatrial.kinds.serving.driver.openai import OpenAiClient
from seatrial.kinds.serving.ended import DriverRecords, EndCause
from seatrial.kinds.serving.gather import gather_cases
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, ToolCall
from seatrial.kinds.serving.load import check_load
from seatrial.kinds.serving.load_model import parse_load_bound
from seatrial.kinds.serving.load_work import AnswerCheck, Lengths, LoadNote, LoadSummary, LoadWork
from seatrial.kinds.serving.parts import work_of
from seatrial.kinds.serving.request import Request, Stopping
from seatrial.kinds.serving.work import Question, ServingWork
from seatrial.plan import expand
from seatrial.suite import load

WORDS = [" one", " two", " three", " four"]
RECORDED = Answer((Generation("".join(WORDS), generated_count=4, stop_reason=StopReason.MAX_TOKENS),))
ASKED = Request(inputs=("count",), stopping=Stopping(max_new_tokens=4))
COUNT = Question("count", ASKED, tokens=4, answer=RECORDED)
NO_ERRORS = (parse_load_bound("errors", 0),)


def stream(words: list[str], tokens: int | None = None, finish: str = "length") -> list[bytes]:
    usage = {
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": len(words) if tokens is None else tokens},
    }
    events = [*map(event, words), event("", finish_reason=finish), b"data: " + json.dumps(usage).encode() + b"\n\n"]
    return [*events, DONE]


def loaded(
    tmp_path: Path, pieces: Callable[[int], list[bytes]], question: Question = COUNT, **fields: Any
) -> tuple[LoadSummary, LoadWork, list[str]]:
    """A load against a server whose n-th answer is chosen by the test, with the errors of its requests."""
    load = LoadWork(
        **{"arrivals": Arrivals("burst", burst=1000), "requests": 20, "check": AnswerCheck(), "bounds": NO_ERRORS}
        | fields
    )
    answered = 0

    async def answer(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        nonlocal answered
        answered += 1
        await in_chunks(writer, pieces(answered - 1))
        writer.write(END)

    async def run() -> tuple[LoadSummary, list[str]]:
        async with server(answer) as (url, _):
            work = ServingWork(questions=(question,), model="stub")
            driver = Driver(Given({}, str(tmp_path)), os.open(os.devnull, os.O_WRONLY))
            client = OpenAiClient(work, url, "")
            summary, timed = await run_load(driver, work, load, client, False)
            await client.close()
            return summary, [one.error for one in timed]

    summary, errors = asyncio.run(run())
    return summary, load, errors


def verdicts(load: LoadWork, summary: LoadSummary) -> dict[str, tuple[str, str]]:
    findings, _ = check_load(load, DriverRecords(load=LoadNote(summary)), EndCause(Verdict.INFRA, "lost", ""))
    return {one.check: (str(one.verdict), one.message) for one in findings}


def test_right_answers_pass_and_the_result_says_how_many_were_checked(tmp_path: Path) -> None:
    summary, load, errors = loaded(tmp_path, lambda number: stream(WORDS), lag_s=60.0)
    assert errors == [""] * 20
    found = verdicts(load, summary)
    assert found["answers"] == ("passed", "20 of 20 answers checked, 20 against recorded ones: all correct")
    assert {verdict for verdict, _ in found.values()} == {"passed"}


@pytest.mark.parametrize(
    ("faulty", "kind"),
    [
        (stream([], 0, "stop"), "empty"),
        (stream([], 4), "empty"),
        (stream([" one"], finish="stop"), "short"),
        (stream([" one", " two"]), "short"),
        (stream(WORDS, 3, "stop"), "usage"),
        (stream(WORDS, 4000), "usage"),
        (stream([" one", " one", " one", " one"]), "wrong"),
        (stream(WORDS[::-1]), "wrong"),
        ([*map(event, WORDS), b'data: {"error": {"message": "out of memory"}}\n\n', DONE], "error"),
        (stream(WORDS, finish="stop"), "wrong"),
    ],
)
def test_one_good_answer_of_many_faulty_ones_is_no_success(tmp_path: Path, faulty: list[bytes], kind: str) -> None:
    summary, load, errors = loaded(tmp_path, lambda number: faulty if number else stream(WORDS), lag_s=60.0)
    assert sorted(errors) == ["", *[kind] * 19]
    assert (summary.errors, summary.error_kinds) == (19, {kind: 19})
    assert summary.goodput == pytest.approx(1 / 20)
    assert summary.latencies["ttft"]["count"] == 1
    found = verdicts(load, summary)
    assert found["bound errors"][0] == "failed"
    assert f"19 {kind}" in found["bound errors"][1]
    assert "latencies of 1 request (left out: 19 with errors)" in found["measured"][1]


def test_a_sample_stands_for_the_answers_that_were_not_checked(tmp_path: Path) -> None:
    def wrong_every_other(number: int) -> list[bytes]:
        return stream(WORDS[::-1] if number % 2 else WORDS)

    check = AnswerCheck(sample=10)
    summary, load, errors = loaded(tmp_path, wrong_every_other, requests=40, check=check, lag_s=60.0)
    assert summary.answers is not None
    wrong = summary.answers.wrong
    assert (summary.answers.checked, errors.count("wrong")) == (10, wrong)
    assert 0 < wrong < 10
    assert summary.errors == round(40 * wrong / 10)
    assert summary.goodput == pytest.approx(1 - wrong / 10)
    assert summary.error_share == pytest.approx(wrong / 10)
    verdict, message = verdicts(load, summary)["answers"]
    assert verdict == "failed"
    assert f"10 of 40 answers checked, 10 against recorded ones: {wrong} wrong; case count" in message
    lenient = LoadWork(load.arrivals, bounds=(parse_load_bound("error_share", "99%"),), lag_s=60.0)
    assert verdicts(lenient, summary)["answers"][0] == "passed"


def test_without_checks_only_an_empty_answer_is_an_error(tmp_path: Path) -> None:
    faults = [stream([]), stream([" one"]), stream(WORDS[::-1]), stream(WORDS, 4000)]
    summary, _, errors = loaded(tmp_path, lambda number: faults[number], requests=4, check=None)
    assert sorted(errors) == ["", "", "", "empty"]
    assert summary.answers is None


def test_generated_prompts_are_checked_without_a_recorded_answer(tmp_path: Path) -> None:
    made = {"lengths": Lengths((3, 3), (16, 16)), "requests": 3, "lag_s": 60.0}
    texts = [[f" {number}" for number in range(16)], [" la"] * 16, [" one"]]
    summary, load, errors = loaded(tmp_path, lambda number: stream(texts[number]), **made)
    assert sorted(errors) == ["", "short", "wrong"]
    assert "the text only repeats ' la'" in verdicts(load, summary)["answers"][1]


def test_the_first_token_may_be_one_of_reasoning_or_of_a_tool_call(tmp_path: Path) -> None:
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "Hm"}, {"reasoning": "so"}, {"content": "4"}]
    deltas.append({"tool_calls": [{"index": 0, "function": {"name": "add", "arguments": "{}"}}]})
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    data = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in events]
    question = Question("tool", Request(messages=({"role": "user", "content": "2 + 2"},)))
    summary, _, errors = loaded(tmp_path, lambda number: [*data, DONE], question, requests=1, check=None)
    assert errors == [""]
    assert summary.tokens == 4


def test_lengths_follow_from_the_record_or_the_request() -> None:
    load = LoadWork(Arrivals("rate", 1.0), check=AnswerCheck())
    assert length_of(COUNT, load, {}) == Length(2, 4)
    assert length_of(Question("", ASKED, tokens=1), load, {}) == Length(1, 4)
    assert length_of(Question("", ASKED, tokens=0), load, {}) == Length(0, 4)
    assert length_of(COUNT, load, {"max_tokens": None}) == Length(1, 0)
    assert length_problem(Length(0, 4), Generation("", generated_count=0, stop_reason=StopReason.STOP), 0) == ""
    assert length_problem(Length(1), Generation("ab"), 2) == ""
    hidden = Generation("x" * 12, generated_count=500, hidden_count=490, stop_reason=StopReason.MAX_TOKENS)
    assert length_problem(Length(1, 500), hidden, 3) == ""  # tokens of reasoning that is not sent
    called = Generation(generated_count=40, stop_reason=StopReason.TOOL_CALLS, tool_calls=(ToolCall("t"),))
    assert length_problem(Length(1, 500), called, 3) == ""


def test_a_sample_is_spread_over_the_load_and_drawn_by_the_seed() -> None:
    load = LoadWork(Arrivals("rate", 1.0), check=AnswerCheck(sample=10), seed=3)
    drawn = draw_sample(load, [COUNT] * 1000)
    assert [number // 100 for number in drawn] == list(range(10))
    assert drawn == draw_sample(load, [COUNT] * 1000)
    assert drawn != draw_sample(LoadWork(load.arrivals, check=load.check, seed=4), [COUNT] * 1000)
    assert draw_sample(load, [COUNT] * 4) == [0, 1, 2, 3]
    assert draw_sample(LoadWork(load.arrivals, check=AnswerCheck()), [COUNT] * 4) == [0, 1, 2, 3]
    unknown = Question("unknown", ASKED)
    mixed = [unknown] * 1000
    mixed[170] = mixed[555] = COUNT
    drawn = draw_sample(load, mixed)
    assert [number // 100 for number in drawn] == list(range(10))
    assert {170, 555} <= {*drawn}


def test_a_text_repeats_only_if_it_does_from_its_beginning_to_its_end() -> None:
    assert repeated_unit(" la" * 8) == " la"
    assert repeated_unit(" la" * 8 + " l") == " la"
    assert repeated_unit(" la" * 7) == ""
    assert repeated_unit("so " + " la" * 20) == ""
    assert repeated_unit("") == ""
    assert repeated_unit("one two three four five six seven eight nine ten") == ""


def work(folder: Path, check: str, rule: str = "near-tie", size: int = 10) -> ServingWork:
    """The work of a trial of 300 cases."""
    cases = [
        {
            "name": f"case {number}",
            "request": {"requests": [{"text": "x"}]},
            "response": {"responses": [{"text": "y" * size, "inputTokenCount": 1, "generatedTokenCount": 7}]},
        }
        for number in range(300)
    ]
    (folder / "cases.yaml").write_text(json.dumps(cases))
    trial = {"kind": "serving", "server": {"url": "http://127.0.0.1:9"}, "cases": ["cases.yaml"]}
    trial["compare"] = {"rule": rule, **({"embeddings": {"url": "http://127.0.0.1:9"}} if rule == "embedding" else {})}
    trial["load"] = {"arrivals": {"rate": 1}, "requests": 9, "check": int(check) if check.isdigit() else check}
    (folder / "suite.yaml").write_text(json.dumps({"name": "s", "trials": {"t": trial}}))
    (cell,) = expand(load(folder / "suite.yaml", *plugins.models())).cells
    return work_of(dataclasses.replace(cell, gathered=gather_cases(cell)))


@pytest.mark.parametrize(
    ("check", "rule", "size", "carried"),
    [
        ("20", "near-tie", 10, 20),
        ("200", "near-tie", 10_000, 26),  # as many as fit into 256 KiB
        ("all", "near-tie", 10_000, 300),
        ("none", "near-tie", 10, 0),
        ("20", "embedding", 10, 0),
    ],
)
def test_the_client_gets_the_recorded_answers_that_a_sample_needs(
    tmp_path: Path, check: str, rule: str, size: int, carried: int
) -> None:
    made = work(tmp_path, check, rule, size)
    assert sum(question.answer is not None for question in made.questions) == carried
    assert {question.tokens for question in made.questions} == {7}
    assert msgspec.json.decode(msgspec.json.encode(made), type=ServingWork) == made
