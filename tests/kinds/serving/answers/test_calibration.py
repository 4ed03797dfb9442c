import pytest

from kinds.serving.answers.tiny_llama import TinyLlama
from seatrial.kinds.serving.answers.drift import Calibrated, calibrate
from seatrial.kinds.serving.answers.findings import read_completion
from seatrial.kinds.serving.answers.token_diff import diff_answers
from seatrial.kinds.serving.generation import Answer, Failure, Generation, StopReason, Token, TopToken
from seatrial.kinds.serving.request import ExpectedError

PROMPTS = ["A function is", "Each module", "The import system"]


def measured(model: TinyLlama, precision: str) -> Calibrated:
    reference = TinyLlama().answers(PROMPTS)
    got = model.answers(PROMPTS)
    pairs = [(read_completion(one), read_completion(other)) for one, other in zip(reference, got, strict=True)]
    return calibrate(pairs, precision)


def test_a_tolerance_is_what_was_seen_with_a_margin() -> None:
    seen = measured(TinyLlama("f16", "f16", "f16"), "f16")
    assert (seen.answers, seen.positions, seen.near_ties) == (3, 72, 0)
    assert seen.tolerance is not None
    assert seen.tolerance.drift == pytest.approx(2 * seen.largest, rel=0.01)
    assert seen.tolerance.rms == pytest.approx(1.8 * seen.rms, rel=0.01)
    assert seen.tolerance.near_ties == 0.0
    assert not seen.floored


def test_where_nothing_moves_a_little_is_still_tolerated() -> None:
    seen = measured(TinyLlama(), "f16")
    assert seen.largest == 0.0
    assert seen.tolerance is not None
    assert (seen.tolerance.drift, seen.tolerance.rms) == (pytest.approx(2e-3), pytest.approx(3.5e-4))
    assert seen.floored


def test_a_precision_that_is_unknown_is_measured_too() -> None:
    seen = measured(TinyLlama("q8_0"), "q4_k_m")
    assert seen.tolerance is not None
    assert seen.tolerance.precision == "q4_k_m"


def test_without_tokens_there_is_nothing_to_measure() -> None:
    assert calibrate([(Generation("a"), Generation("b"))], "f32").tolerance is None


def test_near_ties_are_counted_as_a_share_of_the_answers() -> None:
    seen = measured(TinyLlama("bf16", "bf16", "bf16"), "bf16")
    assert seen.tolerance is not None
    assert seen.tolerance.near_ties == pytest.approx(seen.near_ties / 3, abs=0.001)


# ---- the difference between two answers, for people


def _answer(*tokens: Token) -> Answer:
    text = "".join(one.text for one in tokens)
    return Answer((Generation(text, 3, len(tokens), StopReason.MAX_TOKENS, tokens=tokens),))


ONE = _answer(Token("a", -0.5, 1, (TopToken("a", -0.5), TopToken("b", -0.9))), Token("c", -0.25))


def test_the_same_has_no_difference() -> None:
    assert diff_answers(ONE, None, ONE) == []
    failed = Answer(failure=Failure("INTERNAL", "no"))
    assert diff_answers(None, ExpectedError("INTERNAL", "no"), failed) == []


def test_tokens_that_changed_moved_or_are_new_are_shown() -> None:
    other = _answer(Token("a", -0.51, 1, (TopToken("a", -0.51), TopToken("b", -0.9))), Token("d", -0.5), Token("e"))
    assert diff_answers(ONE, None, other) == [
        "- text 'ac'",
        "+ text 'ade'",
        "- generated tokens 2",
        "+ generated tokens 3",
        "  token 0 'a' -0.5 -> 'a' -0.51   moved by 0.01",
        "- token 1 'c' -0.25",
        "+ token 1 'd' -0.5",
        "+ token 2 'e'",
    ]
    assert "  token 0" not in "\n".join(diff_answers(ONE, None, other, least=0.02))


def test_an_error_in_place_of_an_answer_is_shown_and_the_other_way_round() -> None:
    failed = Answer(failure=Failure("400", "no"))
    assert diff_answers(ONE, None, failed) == ["- 'ac'", "+ error 400: no"]
    assert diff_answers(None, ExpectedError("400", "no"), ONE) == ["- error 400: no", "+ 'ac'"]
    assert diff_answers(None, None, ONE) == ["+ 'ac'"]
