from typing import Any

import msgspec
import pytest

from seatrial.job import Finding
from seatrial.kinds.serving.answers import Answered, AnswerRule, Comparing, check_answers, tolerance_for
from seatrial.kinds.serving.answers.answer import check_messages, compare_answer, compare_ways
from seatrial.kinds.serving.answers.compare import Comparison
from seatrial.kinds.serving.driver.cases import with_checks
from seatrial.kinds.serving.generation import Answer, Failure, Generation, StopReason, Token, Tokenization, TopToken
from seatrial.kinds.serving.request import (
    Case,
    ErrorMatch,
    ExpectedError,
    Method,
    Mode,
    Request,
    Sampling,
    Stopping,
    Wanted,
)
from seatrial.kinds.serving.work import Question

END = StopReason.MAX_TOKENS


def token(text: str, logprob: float | None = -0.5, *others: tuple[str, float]) -> Token:
    chosen = [TopToken(text, logprob)] if others else []
    return Token(text, logprob, None, tuple(chosen + [TopToken(*one) for one in others]))


def generation(*tokens: Token, **fields: Any) -> Generation:
    values: dict[str, Any] = {"text": "".join(one.text for one in tokens), "input_count": 3, "stop_reason": END}
    values |= {"generated_count": len(tokens), "tokens": tokens}
    return Generation(**{**values, **fields})


EXPECTED = generation(token("a", -0.5, ("b", -0.9)), token("c", -0.25, ("d", -1.5)), token("e", -1.0, ("f", -1.004)))
REQUEST = Request(("hi",), stopping=Stopping(max_new_tokens=3))


def comparing(rule: AnswerRule = AnswerRule.NEAR_TIE, precision: str = "f32", **fields: Any) -> Comparing:
    return Comparing(rule, tolerance_for(precision), **fields)


def compare(got: Generation | Answer, rule: AnswerRule = AnswerRule.NEAR_TIE, **fields: Any) -> Comparison:
    case = Case("one", fields.pop("request", REQUEST), fields.pop("answer", Answer((EXPECTED,))), **fields)
    answer = got if isinstance(got, Answer) else Answer((got,))
    return compare_answer(case, answer, comparing(rule), "openai")[0]


def changed(place: int, one: Token, **fields: Any) -> Generation:
    tokens = list(EXPECTED.tokens or ())
    tokens[place] = one
    return generation(*tokens, **fields)


# ---- the ladder


def test_the_same_is_exact_by_every_rule() -> None:
    for rule in AnswerRule:
        assert compare(EXPECTED, rule) == Comparison("exact")


def test_a_near_tie_passes_with_its_place_and_gap() -> None:
    got = changed(2, token("f", -1.001, ("e", -1.002)))
    found = compare(got)
    assert (found.agreement, found.position, found.tolerance) == ("near_tie", 2, 8e-3)
    assert found.size == pytest.approx(0.004)
    assert "near tie at token 2: 'f' instead of 'e', 0.004 apart" in found.message
    assert compare(got, AnswerRule.EXACT).agreement == "diverged"
    assert compare(got, AnswerRule.TEXT).agreement == "diverged"


def test_another_way_where_it_was_clear_is_diverged() -> None:
    found = compare(changed(0, token("b", -0.5, ("a", -0.9))))
    assert found.agreement in ("diverged", "drift")
    tight = msgspec.structs.replace(tolerance_for("f32"), drift=1.0, rms=1.0)
    case = Case("one", REQUEST, Answer((EXPECTED,)))
    got = Answer((changed(0, token("b", -0.5, ("a", -0.9))),))
    found = compare_answer(case, got, Comparing(AnswerRule.NEAR_TIE, tight), "openai")[0]
    assert (found.agreement, found.position) == ("diverged", 0)
    assert found.size == pytest.approx(0.4)


def test_a_token_that_is_not_the_servers_own_likeliest_is_diverged_however_near() -> None:
    got = changed(2, token("f", -1.004, ("e", -1.0)))
    assert compare(got).agreement == "diverged"


def test_a_move_of_a_probability_is_drift_with_place_and_size() -> None:
    found = compare(changed(1, token("c", -0.26, ("d", -1.5))))
    assert (found.agreement, found.position) == ("drift", 1)
    assert found.size == pytest.approx(0.01)
    found = compare(changed(1, token("c", -0.25, ("d", -1.52))))
    assert (found.agreement, found.position) == ("drift", 1)


def test_what_cannot_be_compared_is_not_exact() -> None:
    assert compare(generation(token("a"), token("c"), token("e"))).agreement == "structure"
    assert compare(msgspec.structs.replace(EXPECTED, tokens=None)).agreement == "structure"
    assert compare(changed(1, token("c", None))).agreement == "structure"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stop_reason": StopReason.EOS_TOKEN}, "stop reason EOS_TOKEN (expected MAX_TOKENS)"),
        ({"stop_reason": None}, "stop reason missing"),
        ({"input_count": 4}, "4 input tokens (expected 3)"),
        ({"generated_count": 2}, "2 generated tokens reported, 3 listed"),
        ({"generated_count": 4}, "4 generated tokens reported, 3 listed"),
        ({"text": "ace!"}, "the text differs from character 3 on: '!' instead of ''"),
    ],
)
def test_counts_stop_reason_and_text_must_be_right(fields: dict[str, Any], said: str) -> None:
    got = msgspec.structs.replace(EXPECTED, **fields)
    found = compare(got, request=Request(("hi",)))
    assert not found.passes
    assert said in found.message


def test_after_a_near_tie_another_length_is_no_fault_and_without_one_it_is() -> None:
    (first, second, third) = EXPECTED.tokens or ()
    other = token("f", -1.001, ("e", -1.002))
    longer = generation(first, second, other, token("g"), stop_reason=StopReason.EOS_TOKEN)
    assert compare(longer, request=Request(("hi",))).agreement == "near_tie"
    short = generation(first, second, stop_reason=StopReason.STOP)
    assert compare(short).agreement == "near_tie"  # the third token was nearly another, here the end
    assert compare(generation(first, stop_reason=StopReason.STOP)).agreement == "diverged"
    assert compare(generation(first, second, third, token("g"))).agreement == "structure"


def test_the_end_token_and_a_stop_sequence_are_one_word_in_openais_protocol() -> None:
    expected = msgspec.structs.replace(EXPECTED, stop_reason=StopReason.EOS_TOKEN, generated_count=4)
    got = msgspec.structs.replace(expected, stop_reason=StopReason.STOP)
    assert compare(got, answer=Answer((expected,)), request=Request(("hi",))).agreement == "exact"


def test_parts_of_characters_are_compared_by_their_probability() -> None:
    expected = generation(token("\ufffd", -0.5), token("\ufffd", -0.25), text="é")
    got = generation(token("bytes:\\xc3", -0.5), token("", -0.25), text="é")
    request = Request(("hi",))
    assert compare(got, answer=Answer((expected,)), request=request).agreement == "exact"
    moved = generation(token("bytes:\\xc3", -0.5), token("", -0.75), text="é")
    assert compare(moved, answer=Answer((expected,)), request=request).agreement == "drift"


def test_a_text_that_is_cut_inside_a_character_is_the_same_text() -> None:
    expected = generation(token("a", -0.5), token("\ufffd", -0.25), text="a\ufffd")
    got = generation(token("a", -0.5), token("", -0.25), text="a")
    assert compare(got, answer=Answer((expected,)), request=Request(("hi",))).agreement == "exact"


def test_the_token_that_ends_a_text_may_be_listed_or_not() -> None:
    ended = {"stop_reason": StopReason.STOP, "generated_count": 2, "text": "a"}
    expected = generation(token("a"), token("</s>"), **ended)
    got = generation(token("a"), **ended)
    request = Request(("hi",))
    assert compare(got, answer=Answer((expected,)), request=request).agreement == "exact"
    assert compare(expected, answer=Answer((got,)), request=request).agreement == "exact"
    other = generation(token("a"), token("b"), stop_reason=StopReason.STOP, text="ab", generated_count=3)
    assert compare(other, answer=Answer((got,)), request=request).agreement == "diverged"


# ---- the other rules


def test_approx_compares_every_metric_and_which_there_are() -> None:
    near = changed(1, token("c", -0.2501, ("d", -1.5)))
    assert compare(near, AnswerRule.APPROX).agreement == "exact"
    far = changed(1, token("c", -0.2505, ("d", -1.5)))
    assert (compare(far, AnswerRule.APPROX).agreement, compare(far, AnswerRule.APPROX).position) == ("drift", 1)
    assert compare(msgspec.structs.replace(EXPECTED, seed=5), AnswerRule.APPROX).agreement == "structure"
    assert compare(msgspec.structs.replace(EXPECTED, seed=0), AnswerRule.APPROX).agreement == "exact"
    assert compare(msgspec.structs.replace(EXPECTED, tokens=None), AnswerRule.APPROX).agreement == "structure"


def test_tgis_testers_strategies_judge_as_they_do_there() -> None:
    wrong = changed(1, token("c", -7.0, ("d", -1.5)))
    assert compare(wrong, AnswerRule.APPROX_EQUALITY).agreement == "exact"
    assert compare(msgspec.structs.replace(EXPECTED, text="x"), AnswerRule.APPROX_EQUALITY).agreement == "diverged"
    assert compare(wrong, AnswerRule.EXACT_TEXT_MATCH).agreement == "exact"
    assert compare(msgspec.structs.replace(EXPECTED, text="x"), AnswerRule.EXACT_TEXT_MATCH).agreement == "diverged"
    two = Answer((EXPECTED, EXPECTED))
    assert compare(two, AnswerRule.EXACT_TEXT_MATCH).agreement == "structure"
    answered = Answered(Case("one", REQUEST, Answer((EXPECTED,))), "unary", Answer((EXPECTED,)))
    (_, warning) = _findings([answered], AnswerRule.APPROX_EQUALITY)
    assert "5 times the larger one" in warning.message
    assert "it never fails on them" in warning.message


def test_a_similar_text_passes_by_its_embedding() -> None:
    got = msgspec.structs.replace(EXPECTED, text="as")
    case = Case("one", REQUEST, Answer((EXPECTED,)))

    def by(similarities: dict[tuple[str, str], float]) -> Comparison:
        return compare_answer(
            case, Answer((got,)), comparing(AnswerRule.EMBEDDING, similarities=similarities), "openai"
        )[0]

    assert by({("ace", "as"): 0.95}).agreement == "near_tie"
    assert by({("ace", "as"): 0.85}).agreement == "diverged"
    assert by({}).agreement == "structure"


# ---- what is asked


def test_an_answer_must_be_what_was_asked_for() -> None:
    wanted = Wanted(generated_tokens=True, token_logprobs=True)
    bare = msgspec.structs.replace(EXPECTED, tokens=None)
    asked = msgspec.structs.replace(REQUEST, wanted=wanted)
    assert " are missing" in compare(bare, answer=Answer((bare,)), request=asked).message
    least = Request(("hi",), stopping=Stopping(min_new_tokens=5))
    assert "tokens generated (minimum 5)" in compare(EXPECTED, request=least).message
    fewer = Request(("hi",), stopping=Stopping(max_new_tokens=2))
    assert "tokens generated (limit 2)" in compare(EXPECTED, request=fewer).message
    more = Request(("hi",), stopping=Stopping(max_new_tokens=9))
    assert "stopped at the limit of 9 tokens after only 3" in compare(EXPECTED, request=more).message


def test_skip_check_still_checks_counts_and_the_stop_reason() -> None:
    other = generation(token("x"), token("y"), token("z"))
    assert compare(other, skip_check=True).agreement == "exact"
    assert (
        "4 input tokens (expected 3)" in compare(msgspec.structs.replace(other, input_count=4), skip_check=True).message
    )
    ended = generation(token("x"), token("y"), stop_reason=StopReason.EOS_TOKEN)
    assert compare(ended, skip_check=True).agreement == "structure"
    unfinished = msgspec.structs.replace(other, stop_reason=None)
    assert "no stop reason" in compare(unfinished, skip_check=True).message


def test_what_chance_decides_is_not_checked() -> None:
    sampled = msgspec.structs.replace(REQUEST, method=Method.SAMPLE, sampling=Sampling(temperature=0.7))
    ended = generation(token("x"), token("y"), stop_reason=StopReason.EOS_TOKEN)
    assert compare(ended, skip_check=True, request=sampled).agreement == "exact"
    wrong = generation(token("x"), token("y"), stop_reason=StopReason.MAX_TOKENS)
    assert "stopped at the limit of 3 tokens after only 2" in compare(wrong, skip_check=True, request=sampled).message


def test_batches_must_have_as_many_answers() -> None:
    assert "1 answers (expected 2)" in compare(EXPECTED, answer=Answer((EXPECTED, EXPECTED))).message


def test_tokens_counts_and_offsets_of_what_is_tokenized() -> None:
    request = Request(("a b",), mode=Mode.TOKENIZE)
    expected = Answer(tokenizations=(Tokenization(2, ("a", " b"), ((0, 1), (1, 3))),))
    assert compare(expected, answer=expected, request=request).agreement == "exact"
    for other in (Tokenization(3), Tokenization(2, ("a", "b")), Tokenization(2, ("a", " b"), ((0, 1), (2, 3)))):
        assert compare(Answer(tokenizations=(other,)), answer=expected, request=request).agreement == "structure"


def test_a_sampled_answer_that_differs_shows_the_recorded_gap() -> None:
    """The recorded token was not the most likely one, so there is no near tie."""
    sampled = generation(token("a", -2.0, ("b", -0.5), ("c", -2.5)))
    request = Request(("hi",))
    likelier = compare(
        generation(token("b", -0.5, ("a", -2.0), ("c", -2.5))), answer=Answer((sampled,)), request=request
    )
    text = "the text differs from token 0 on: 'b' instead of 'a', which was 1.5 less likely when recorded; "
    why = "the recorded token was sampled, 1.5 behind the most likely one, so there are no near ties"
    assert likelier.message == text.replace("less", "more") + why
    rarer = compare(generation(token("c", -2.5, ("a", -2.0), ("b", -0.5))), answer=Answer((sampled,)), request=request)
    assert "'c' instead of 'a', which was 0.5 less likely when recorded" in rarer.message


# ---- errors


@pytest.mark.parametrize(
    ("expected", "passes"),
    [
        (ExpectedError("INVALID_ARGUMENT", "max must be >= 1"), True),
        (ExpectedError("INVALID_ARGUMENT", "max must be"), False),
        (ExpectedError("INVALID_ARGUMENT", "max must be", ErrorMatch.PREFIX), True),
        (ExpectedError("INVALID_ARGUMENT", "must be", ErrorMatch.PREFIX), False),
        (ExpectedError("INVALID_ARGUMENT", r"be >= \d$", ErrorMatch.PATTERN), True),
        (ExpectedError("INVALID_ARGUMENT", r"be > \d$", ErrorMatch.PATTERN), False),
        (ExpectedError("INTERNAL", "max must be >= 1"), False),
        (ExpectedError(None, "max must be >= 1"), True),
        (ExpectedError("INVALID_ARGUMENT"), True),
    ],
)
def test_an_expected_error_has_its_code_and_message(expected: ExpectedError, passes: bool) -> None:
    pattern = (expected.message or "") if expected.match is ErrorMatch.PATTERN else ""
    question = Question("a", Request(), error_pattern=pattern)
    came = with_checks(Answer(failure=Failure("INVALID_ARGUMENT", "max must be >= 1")), question, False)
    assert compare(came, answer=None, error=expected).passes is passes


def test_an_answer_for_an_error_and_an_error_for_an_answer_fail() -> None:
    found = compare(EXPECTED, answer=None, error=ExpectedError("INTERNAL", "no"))
    assert found.agreement == "error"
    assert "expected an error (INTERNAL: no), got an answer: ['ace']" in found.message
    found = compare(Answer(failure=Failure("INTERNAL", "no")), skip_check=True)
    assert found.agreement == "error"
    assert "expected an answer, got an error: INTERNAL: no" in found.message


# ---- streams

STREAM = (
    Generation(input_count=3),
    Generation(text="a", generated_count=1),
    Generation(text="c", generated_count=2),
    Generation(text="e", generated_count=3, stop_reason=END),
)


def _stream(*messages: Generation) -> Answer:
    return Answer(messages=messages)


def test_a_stream_in_order_is_compared_as_what_it_comes_to() -> None:
    bare = Answer((msgspec.structs.replace(EXPECTED, tokens=None),))
    case = Case("one", REQUEST, bare)
    for protocol in ("tgis", "openai"):
        assert compare_answer(case, _stream(*STREAM), comparing(), protocol)[0].agreement == "exact"
    wrong = (*STREAM[:2], msgspec.structs.replace(STREAM[2], text="x"), STREAM[3])
    assert compare_answer(case, _stream(*wrong), comparing(), "tgis")[0].agreement == "diverged"


def _replaced(place: int, **fields: Any) -> tuple[Generation, ...]:
    messages = list(STREAM)
    messages[place] = msgspec.structs.replace(messages[place], **fields)
    return tuple(messages)


@pytest.mark.parametrize(
    ("protocol", "messages", "said"),
    [
        ("openai", (), "no messages"),
        ("openai", STREAM[:3], "it did not end"),
        ("openai", _replaced(1, stop_reason=END), "both have a stop reason"),
        ("openai", (*STREAM, Generation(text="!")), "message 4 of the stream has text after the stop reason"),
        ("openai", _replaced(2, generated_count=0), "reports 0 tokens after 1"),
        ("openai", _replaced(1, tokens=(token("a"), token("b"))), "reports 1 tokens after listing 2"),
        ("tgis", STREAM[3:], "the stream has only 1 message"),
        ("tgis", _replaced(0, input_count=None), "no count of input tokens"),
        ("tgis", _replaced(0, generated_count=1), "more than the input"),
        ("tgis", _replaced(0, text="hi"), "the input text was not requested"),
        ("tgis", _replaced(2, input_count=3), "message 2 counts the input again"),
        ("tgis", _replaced(1, seed=4), "message 1 has a seed"),
        ("tgis", (*STREAM, Generation()), "the last message has no stop reason"),
    ],
)
def test_a_stream_out_of_order_is_found(protocol: str, messages: tuple[Generation, ...], said: str) -> None:
    found = check_messages(messages, REQUEST, protocol)
    assert found is not None
    assert found.agreement == "structure"
    assert said in found.message


def test_what_was_asked_for_is_in_the_stream() -> None:
    asked = Request(("hi",), wanted=Wanted(input_text=True, input_tokens=True), sampling=Sampling(seed=7))
    found = check_messages(STREAM, asked, "tgis")
    assert found is not None
    assert "was requested, but the first message has none" in found.message
    messages = (
        Generation(text="hi\n\n", input_count=3),
        Generation(input_tokens=(token("hi"),)),
        *STREAM[1:3],
        Generation(text="e", generated_count=3, stop_reason=END, seed=7),
    )
    assert check_messages(messages, asked, "tgis") is None
    assert check_messages((messages[0], *messages[2:]), asked, "tgis") is not None
    assert check_messages((*messages[:-1], STREAM[3]), asked, "tgis") is not None


def test_an_encoder_decoders_line_breaks_are_no_difference() -> None:
    request = Request(("hi",), wanted=Wanted(input_text=True))
    whole = Answer((Generation("hi\n\nace", 3, 3, END),))
    stream = _stream(Generation(text="hi", input_count=3), *STREAM[1:])
    assert compare_answer(Case("one", request, whole), stream, comparing(), "tgis")[0].agreement == "exact"


def test_the_ways_of_asking_agree() -> None:
    case = Case("one", REQUEST, Answer((EXPECTED,)))
    whole = Answer((EXPECTED,))
    assert compare_ways(case, whole, _stream(*STREAM), comparing()).agreement == "exact"
    other = (*STREAM[:3], Generation(text="f", generated_count=3, stop_reason=END))
    assert compare_ways(case, whole, _stream(*other), comparing()).agreement == "diverged"
    near = Answer((changed(2, token("f", -1.001, ("e", -1.002))),))
    assert compare_ways(case, whole, near, comparing()).agreement == "near_tie"
    sampled = Case("one", msgspec.structs.replace(REQUEST, method=Method.SAMPLE), whole)
    assert compare_ways(sampled, whole, _stream(*other), comparing()).agreement == "exact"


# ---- findings


def _findings(answered: list[Answered], rule: AnswerRule = AnswerRule.NEAR_TIE) -> list[Finding]:
    return list(check_answers(answered, comparing(rule), "openai"))


def test_findings_have_the_class_the_evidence_and_the_whole() -> None:
    case = Case("one", REQUEST, Answer((EXPECTED,)))
    wrong = changed(1, token("c", -0.5, ("d", -1.5)))
    found = _findings([Answered(case, "unary", Answer((EXPECTED,))), Answered(case, "stream", Answer((wrong,)))])
    assert [(one.step, one.check, one.verdict.value, one.class_) for one in found] == [
        ("case one", "unary", "passed", ""),
        ("case one", "stream", "failed", "drift"),
        ("case one", "stream = unary", "failed", "drift"),
        ("answers", "as a whole, unary", "passed", ""),
        ("answers", "as a whole, stream", "failed", "drift"),
    ]
    assert found[1].data["position"] == 1
    assert found[1].evidence.splitlines()[1:] == [
        "expected 'c' -0.2500   of 'c' -0.2500  'd' -1.5000",
        "got      'c' -0.5000   of 'c' -0.5000  'd' -1.5000",
    ]
