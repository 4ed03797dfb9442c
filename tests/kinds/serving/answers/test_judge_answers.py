"""Benign ways of computing a model pass, faulty ones fail; with a real model, computed in NumPy."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from kinds.serving.answers.tiny_llama import PROMPTS, Array, TinyLlama
from seatrial.kinds.serving.answers import judge_answers
from seatrial.kinds.serving.answers.findings import Judged

Answers = list[dict[str, Any]]


@cache
def _reference(count: int = 24) -> Answers:
    return TinyLlama().answers(count=count)


def judge(got: Answers, precision: str, count: int = 24) -> Judged:
    return judge_answers(_reference(count), got, precision)


def test_the_model_itself_is_exact() -> None:
    judged = judge(_reference(), "f32")
    assert judged.passed
    assert judged.cases == ("exact",) * len(PROMPTS)
    assert judged.whole.positions == 24 * len(PROMPTS)


# ---- what is not a fault


@pytest.mark.parametrize(
    ("precision", "weights", "activations", "cache"),
    [
        ("f32", "f32", "f32", "f16"),
        ("f16", "f16", "f16", "f16"),
        ("f16", "f16", "f32", "f16"),
        ("bf16", "bf16", "bf16", "bf16"),
        ("bf16", "bf16", "f32", "f32"),
        ("q8_0", "q8_0", "f32", "f16"),
        ("q8_0", "q8_0", "f16", "f16"),
    ],
)
def test_rounding_passes_at_its_own_precision(precision: str, weights: str, activations: str, cache: str) -> None:
    judged = judge(TinyLlama(weights, activations, cache).answers(), precision)
    assert judged.passed, (judged.cases, judged.whole)


def test_rounding_passes_over_longer_texts() -> None:
    judged = judge(TinyLlama("bf16", "bf16", "bf16").answers(count=60), "bf16", 60)
    assert judged.passed, (judged.cases, judged.whole)
    assert "near_tie" in judged.cases


def test_a_lower_precision_is_a_fault_where_a_higher_one_is_asked_for() -> None:
    assert not judge(TinyLlama("f16", "f16", "f16").answers(), "f32").passed
    assert not judge(TinyLlama("bf16", "bf16", "bf16").answers(), "f16").passed


# ---- faults, each of which must be caught at f32 and at f16


def _scaled(name: str, by: float) -> Answers:
    model = TinyLlama()
    model.weights[name] = model.weights[name] * np.float32(by)
    return model.answers()


def _noisy(size: float) -> Answers:
    model, chance = TinyLlama(), np.random.default_rng(1)
    for name, values in model.weights.items():
        if values.ndim == 2:
            model.weights[name] = (values * (1 + size * chance.standard_normal(values.shape))).astype(np.float32)
    return model.answers()


def _with(**fields: Any) -> Answers:
    model = TinyLlama()
    for name, value in fields.items():
        setattr(model, name, value)
    return model.answers()


def _penalty(by: float) -> Answers:
    """The server reports what it would have done without it, as llama.cpp does."""

    def choose(logits: Array, sequence: Any) -> int:
        logits = logits.copy()
        for token in set(sequence):
            logits[token] = logits[token] / by if logits[token] > 0 else logits[token] * by
        return int(logits.argmax())

    return _with(choose=choose)


def _sampled(temperature: float) -> Answers:
    chance = np.random.default_rng(0)
    return _with(choose=lambda logits, _: int((logits / temperature + chance.gumbel(size=logits.shape)).argmax()))


def _late(logits: Array, sequence: Any) -> Array:
    moved = np.random.default_rng(3).standard_normal(logits.shape) * 0.05
    return logits + moved.astype(np.float32) if len(sequence) > 24 else logits


def _one_in(every: int, made: Answers) -> Answers:
    return [
        bad if index % every == 0 else good for index, (good, bad) in enumerate(zip(_reference(), made, strict=True))
    ]


def _edited(edit: Callable[[Answers], None]) -> Answers:
    answers = copy.deepcopy(_reference())
    edit(answers)
    return answers


def _swap(answers: Answers) -> None:
    for key in ("text", "lp"):
        answers[1][key], answers[2][key] = answers[2][key], answers[1][key]


def _shift(answers: Answers) -> None:
    for answer in answers:
        logprobs = answer["lp"]["token_logprobs"]
        logprobs[:] = [*logprobs[1:], logprobs[0]]


def _set_logprob(value: float | None) -> Callable[[Answers], None]:
    return lambda answers: answers[4]["lp"]["token_logprobs"].__setitem__(3, value)


FAULTS: dict[str, Callable[[], Answers]] = {
    "a scale of 5 %": lambda: _scaled("blk.1.attn_q.weight", 1.05),
    "a scale of 2 %": lambda: _scaled("blk.1.attn_q.weight", 1.02),
    "a scale of the values": lambda: _scaled("blk.0.attn_v.weight", 1.02),
    "weights off by 1 %": lambda: _noisy(0.01),
    "weights off by 0.2 %": lambda: _noisy(0.002),
    "another rotation": lambda: _with(theta=8000.0),
    "nearly the same rotation": lambda: _with(theta=9900.0),
    "a head that is gone": lambda: _with(zeroed_head=0),
    "another epsilon": lambda: _with(epsilon=1e-3),
    "an extra token before": lambda: [TinyLlama().answer(prompt, first=[1]) for prompt in PROMPTS],
    "a penalty of 1.1": lambda: _penalty(1.1),
    "a penalty of 1.01": lambda: _penalty(1.01),
    "a temperature of 1.005": lambda: _with(change=lambda logits, _: logits / np.float32(1.005)),
    "a temperature of 1.001": lambda: _with(change=lambda logits, _: logits / np.float32(1.001)),
    "sampling that is nearly greedy": lambda: _sampled(0.01),
    "only late tokens": lambda: _with(change=_late),
    "one case in six": lambda: _one_in(6, _noisy(0.01)),
    "answers that are swapped": lambda: _edited(_swap),
    "log-probabilities of the next token": lambda: _edited(_shift),
    "a case that is missing": lambda: _reference()[:-1],
    "texts that are too short": lambda: TinyLlama().answers(count=23),
    "another finish": lambda: _edited(lambda answers: answers[4].update(finish="stop")),
    "a text that is not its tokens": lambda: _edited(lambda answers: answers[4].update(text=answers[4]["text"] + " ")),
    "no log-probabilities": lambda: _edited(lambda answers: answers[4].update(lp=None)),
    "no alternatives": lambda: _edited(lambda answers: answers[4]["lp"].update(top_logprobs=None)),
    "a log-probability of NaN": lambda: _edited(_set_logprob(None)),
    "a positive log-probability": lambda: _edited(_set_logprob(0.7)),
    "another prompt": lambda: _edited(lambda answers: answers[4].update(prompt="something else")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(name: str) -> None:
    got = FAULTS[name]()
    for precision in ("f32", "f16"):
        judged = judge(got, precision)
        assert not judged.passed, (precision, judged.cases, judged.whole)


def test_a_fault_too_small_for_one_case_shows_in_the_whole() -> None:
    judged = judge(_with(change=lambda logits, _: logits / np.float32(1.001)), "f16")
    assert set(judged.cases) == {"exact"}
    assert not judged.passed
    assert any(
        "tokens less than expected: each log-probability is off by 0.10%" in problem
        for problem in judged.whole.problems
    )


def test_too_many_near_ties_show_in_the_whole() -> None:
    """Which way a tie goes is decided by a rule of its own, which rounding does not have: each is a near tie."""

    def second(logits: Array, _: Any) -> Array:
        first, other = np.argsort(-logits)[:2]
        if logits[first] - logits[other] < 0.15:
            logits = logits.copy()
            logits[first], logits[other] = logits[other], logits[first]
        return logits

    prompts = [f"{first} {prompt}" for prompt in PROMPTS for first in ("If", "The", "So")]
    model = TinyLlama()
    expected = model.answers(prompts)
    model.change = second
    judged = judge_answers(expected, model.answers(prompts), "bf16")
    assert judged.cases.count("near_tie") > 12
    assert set(judged.cases) <= {"exact", "near_tie"}
    assert not judged.passed


def test_the_evidence_has_the_place_the_size_and_both_sides() -> None:
    judged = judge(FAULTS["a penalty of 1.1"](), "f32")
    found = next(one for one in judged.comparisons if one.agreement == "diverged")
    assert found.position is not None
    assert found.size is not None
    assert found.got is not None
    assert len(found.got.top) == 5
    assert "not the server's own most likely token" in found.message
    judged = judge(FAULTS["a scale of 5 %"](), "f32")
    found = judged.comparisons[0]
    assert (found.agreement, found.tolerance) == ("drift", 8e-3)
    assert found.expected is not None
    assert found.got is not None
    assert found.expected.text == found.got.text
    assert f"of token {found.position} moved by {found.size:.3g}" in found.message


def test_nothing_at_all_does_not_pass() -> None:
    assert not judge_answers([], [], "f32").passed


def test_an_unknown_precision_is_an_error() -> None:
    with pytest.raises(KeyError):
        judge_answers([], [], "f8")
