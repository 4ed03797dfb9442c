import random
import re
from pathlib import Path

import pytest

from seatrial.kinds.serving.cases import Dialect, cases_of, read_case_file, read_cases, recorded
from seatrial.kinds.serving.cases.read import CASE_LIMITS
from seatrial.kinds.serving.generation import Answer, Failure, Generation, StopReason, Token, Tokenization, TopToken
from seatrial.kinds.serving.request import (
    Case,
    Decoding,
    ErrorMatch,
    ExpectedError,
    Guide,
    Guided,
    LengthPenalty,
    Method,
    Mode,
    Request,
    Sampling,
    Stopping,
    Wanted,
)
from seatrial.suite import SuiteError
from seatrial.suite.yaml.document import CannotEdit
from seatrial.suite.yaml.source import Source

FILES = Path(__file__).parent / "cases"


def read(text: str, unanswered: bool = False) -> tuple[Case, ...]:
    return cases_of(Source("cases.yaml", text, limits=CASE_LIMITS), unanswered).cases


def problems(text: str) -> str:
    with pytest.raises(SuiteError) as caught:
        read(text)
    return str(caught.value)


def test_tgis_testers_files_are_read() -> None:
    file = read_case_file(FILES / "tester.yaml")
    assert file.dialect is Dialect.TESTER
    greedy, sample, stream, error = file.cases
    assert greedy.request == Request(
        ("Once upon",),
        stopping=Stopping(max_new_tokens=3),
        wanted=Wanted(False, True, True, True, True, 2),
    )
    assert greedy.answer is not None
    (answer,) = greedy.answer.generations
    assert (answer.text, answer.input_count, answer.generated_count) == (" a time,", 2, 3)
    assert answer.stop_reason is StopReason.MAX_TOKENS
    assert answer.input_tokens == (Token("Once"), Token(" upon", -3.25, 2))
    top = (TopToken(" a", -0.125), TopToken(" the", -2.5))
    assert answer.tokens == (Token(" a", -0.125, 1, top), Token(" time", -1e-4, 1), Token(",", -1e-4, 1))
    assert greedy.at.endswith("tester.yaml:2")

    assert sample.skip_check
    assert sample.single_shard_only
    assert sample.request.method is Method.SAMPLE
    assert sample.request.sampling == Sampling(top_k=10, top_p=1e-9)
    assert sample.request.decoding == Decoding(2.5, LengthPenalty(2, 1.5))
    assert sample.request.inputs == ("Once upon a time,", "no")
    assert sample.answer is not None
    assert [one.seed for one in sample.answer.generations] == [2818526381, None]
    assert sample.answer.generations[1].text == ""
    assert sample.answer.generations[1].generated_count == 0

    assert (stream.request.mode, stream.request.inputs) == (Mode.STREAM, ("hi",))
    assert (stream.request.prefix_id, stream.request.adapter_id) == ("soft", "lora")
    assert error.error == ExpectedError("INVALID_ARGUMENT", "min_new_tokens must be <= max_new_tokens")
    assert error.answer is None


def test_tgiss_own_files_are_read() -> None:
    file = read_case_file(FILES / "tgis.yaml")
    assert file.dialect is Dialect.TGIS
    prefix, tokenize, nothing, error = file.cases
    assert prefix.single_shard_only
    assert prefix.skip_check
    assert prefix.request.sampling == Sampling(top_k=3, seed=99)
    assert prefix.request.truncate_input_tokens == 4
    assert prefix.answer is not None
    assert prefix.answer.generations[0].seed == 99
    assert tokenize.request == Request(("a b",), mode=Mode.TOKENIZE, wanted=Wanted(generated_tokens=True, offsets=True))
    offsets = ((0, 1), (1, 3), (0, 0))
    assert tokenize.answer == Answer(tokenizations=(Tokenization(3, ("a", " b", "</s>"), offsets),))
    assert nothing.request == Request()
    assert nothing.answer == Answer()
    assert error.error == ExpectedError(None, "hello")


def test_what_tgis_has_no_words_for_is_read_too() -> None:
    text = """\
- name: chat
  tags: [smoke, chat]
  request:
    messages: [{role: system, content: be brief}, {role: user, content: "hi"}]
    limit_s: 2.5
    params:
      sampling: {min_p: 0.1, presence_penalty: -1, frequency_penalty: 0.5}
      decoding: {choice: {choices: [a, b]}}
  error: {code: 429, message_pattern: 'try again in \\d+'}
- name: guided
  request: {prompt: hi, params: {decoding: {jsonSchema: '{"type": "object"}'}}}
  error: {code: UNAVAILABLE, message_prefix: model is}
"""
    chat, guided = read(text)
    assert chat.request.messages == ({"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"})
    assert chat.request.limit_s == 2.5
    assert chat.request.decoding.guided == Guided(Guide.CHOICE, choices=("a", "b"))
    assert chat.request.sampling == Sampling(min_p=0.1, presence_penalty=-1.0, frequency_penalty=0.5)
    assert chat.error == ExpectedError("429", r"try again in \d+", ErrorMatch.PATTERN)
    assert chat.tags == ("smoke", "chat")
    assert guided.request.decoding.guided == Guided(Guide.JSON_SCHEMA, '{"type": "object"}')
    assert guided.error == ExpectedError("UNAVAILABLE", "model is", ErrorMatch.PREFIX)


def test_all_that_is_wrong_is_said_at_once_each_at_its_place() -> None:
    text = """\
- name: both
  request: {requests: [{text: hi}]}
  response: {responses: []}
  error: {code: INTERNAL, message: no}
- name: neither
  request: {requests: [{text: hi}]}
- name: seeds
  request:
    params: {method: GREDY, sampling: {seed: -1, temperature: warm}, stopping: {maxNewToken: 3, max_new_tokens: 5}}
    requests: [{text: hi}]
  error: {code: INVALID_ARGUMNT, message: x, message_prefix: y}
- request: {requests: hi, prompt: there}
  response: {responses: [{logprob: 3, tokens: [{text: a, logprob: much}]}]}
  requestType: chat
"""
    said = problems(text)
    for line in (
        "cases.yaml:1:3: case has both `response` and `error`; remove one",
        "cases.yaml:5:3: case has no `response` or `error`",
        "cases.yaml:9:22: `method` must be one of GREEDY, SAMPLE; got 'GREDY'",
        "cases.yaml:9:46: `seed` must be a whole number from 0 to 18446744073709551615; got -1",
        "cases.yaml:9:63: `temperature` must be a number; got 'warm'",
        "cases.yaml:9:81: unknown field 'maxNewToken' of `stopping`; did you mean 'maxNewTokens'?",
        "cases.yaml:11:17: unknown gRPC or HTTP code 'INVALID_ARGUMNT'; did you mean 'INVALID_ARGUMENT'?",
        "cases.yaml:11:62: set only one of `message` and `message_prefix`",
        "cases.yaml:12:3: case has no `name`",
        "cases.yaml:12:23: `requests` must be a list; got 'hi'",
        "cases.yaml:12:35: set only one of `requests` and `prompt`",
        "cases.yaml:13:27: unknown field 'logprob' of a response",
        "cases.yaml:13:67: `logprob` must be a number or NaN; got 'much'",
        "cases.yaml:14:16: `request_type` must be generate or tokenize; got 'chat'",
    ):
        assert line in said
    assert "`seatrial record` fills it in from a trusted server" in said


def test_a_number_beyond_every_float_is_refused(tmp_path: Path) -> None:
    sampling = f'{{"temperature": 1{"0" * 400}}}'
    path = tmp_path / "cases.json"
    path.write_text(f'[{{"name": "x", "request": {{"params": {{"sampling": {sampling}}}, "prompt": "hi"}}}}]')
    with pytest.raises(SuiteError, match=r"cases.json:1:67: `temperature` must be a number"):
        read_case_file(path)


@pytest.mark.parametrize("text", ["", "{}", "[]", "- 3", "name: x", "[[]]", "- null"])
def test_what_is_no_list_of_cases_is_refused(text: str) -> None:
    assert "cases.yaml:1:" in problems(text)


def test_a_name_in_both_spellings_is_refused_and_true_is_a_flag() -> None:
    params = "{stopping: {maxNewTokens: 1, max_new_tokens: 2}}"
    said = problems(f"- {{name: a, request: {{params: {params}}}, skip_check: maybe, response: {{}}}}")
    assert "duplicate field 'max_new_tokens'; first written as 'maxNewTokens'" in said
    assert "`skip_check` must be true or false; got 'maybe'" in said


def test_cases_of_one_name_are_told_apart(tmp_path: Path) -> None:
    text = "- {name: a, request: {}, response: {}}\n"
    for name in ("1.yaml", "2.yaml"):
        (tmp_path / name).write_text(text * 2)
    cases = read_cases([tmp_path / "1.yaml", tmp_path / "2.yaml"])
    assert [case.name for case in cases] == ["a", "a #2", "a #3", "a #4"]


def test_problems_of_all_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("- {name: a, request: {}}")
    with pytest.raises(SuiteError) as caught:
        read_cases([tmp_path / "bad.yaml", tmp_path / "none.yaml"])
    assert "case has no `response` or `error`" in str(caught.value)
    assert "none.yaml" in str(caught.value)


def test_ten_thousand_cases_and_a_prompt_of_ten_megabytes_are_read(tmp_path: Path) -> None:
    response = "{responses: [{text: ho, inputTokenCount: 1}]}"
    one = "- {name: 'case %d', request: {requests: [{text: hi}]}, response: " + response + "}\n"
    path = tmp_path / "many.yaml"
    prompt = "tell me more " * 800_000
    many = "".join(one % number for number in range(10_000))
    path.write_text(f"{many}- {{name: long, request: {{prompt: '{prompt}'}}, error: {{code: INVALID_ARGUMENT}}}}\n")
    cases = read_case_file(path).cases
    assert len(cases) == 10_001
    assert cases[9_999].name == "case 9999"
    assert cases[-1].request.inputs == (prompt,)
    assert len(prompt) > 10_000_000


# ---- recording


def _record(text: str, answers: dict[int, Answer]) -> str:
    source = Source("cases.yaml", text, limits=CASE_LIMITS)
    return recorded(source, cases_of(source, unanswered=True), answers)


def test_recording_changes_answers_alone() -> None:
    text = (FILES / "tester.yaml").read_text()
    answer = Answer((Generation(" there", 2, 1, StopReason.EOS_TOKEN, tokens=(Token(" there", -0.5, 1),)),))
    after = _record(text, {0: answer})
    head = text[: text.index("  response:\n")]
    tail = text[text.index("\n# Nobody knows") :]
    assert after.startswith(head)
    assert after.endswith(tail)
    assert after[len(head) : -len(tail)] == (
        "  response:\n"
        "    responses:\n"
        "    - inputTokenCount: 2\n"
        "      generatedTokenCount: 1\n"
        '      text: " there"\n'
        "      stopReason: EOS_TOKEN\n"
        "      tokens:\n"
        '      - {text: " there", logprob: -0.5, rank: 1}\n'
    )
    (case, *_) = read(after)
    assert case.answer == answer


@pytest.mark.parametrize("name", ["tester.yaml", "tgis.yaml"])
def test_what_is_recorded_reads_back_as_the_same(name: str) -> None:
    text = (FILES / name).read_text()
    cases = read(text)
    answers = {index: case.answer for index, case in enumerate(cases) if case.answer is not None}
    bare = _record(text, dict.fromkeys(answers, Answer()))
    assert {read(bare)[index].answer for index in answers} == {Answer()}
    again = read(_record(bare, answers))
    assert [(case.answer, case.error) for case in again] == [(case.answer, case.error) for case in cases]


def test_a_seed_is_recorded_in_the_spelling_of_the_dialect() -> None:
    answer = Answer((Generation("ho", 1, seed=7),))
    for flag, seed in (("single_shard_only", "7"), ("singleShardOnly", "'7'")):
        after = _record(f"- {{name: x, {flag}: true, request: {{prompt: hi}}}}\n", {0: answer})
        assert after.replace('"', "'").count(f"seed: {seed}") == 1
        assert read(after)[0].answer == Answer((Generation("ho", 1, 0, seed=7),))


def test_recording_writes_first_answers_errors_and_what_became_an_error() -> None:
    text = """\
- name: new    # has no answer yet
  request: {requests: [{text: hi}]}
- name: fails now
  request: {requests: [{text: hi}]}
  response: {responses: [{text: a, inputTokenCount: 1}]}
  # the end of it
- {name: flow, request: {requests: [{text: hi}]}}
"""
    answer = Answer((Generation("ho", 1, 1, StopReason.MAX_TOKENS, seed=5),))
    after = _record(text, {0: answer, 1: Answer(failure=Failure("INTERNAL", 'no: "way"\n')), 2: answer})
    assert "# has no answer yet" in after
    assert "  # the end of it" in after
    new, fails, flow = read(after)
    assert new.answer == answer
    assert flow.answer == answer
    assert (fails.answer, fails.error) == (None, ExpectedError("INTERNAL", 'no: "way"\n'))


def test_a_file_whose_answers_are_tied_to_others_is_not_changed() -> None:
    text = """\
- {name: a, request: {}, response: &one {responses: []}}
- {name: b, request: {}, response: *one}
"""
    with pytest.raises(CannotEdit, match="an alias"):
        _record(text, {1: Answer((Generation("x", 1),))})


@pytest.mark.parametrize("seed", range(40))
def test_whatever_an_answer_contains_it_reads_back(seed: int) -> None:
    """Texts that YAML would take for something else, control characters, halves of surrogates excepted."""
    chance = random.Random(seed)
    alphabet = ["a", " ", "no", "1e-4", "NaN", "é", "\u2028", "😀", *"\n\t\r\x07\ufeff\"'\\#:-{}~|>%@`"]

    def word() -> str:
        return "".join(chance.choices(alphabet, k=chance.randint(0, 8)))

    def token() -> Token:
        top = tuple(TopToken(word(), -float(f"{chance.random():.8g}")) for _ in range(chance.randint(0, 3)))
        return Token(
            word(),
            chance.choice([-float(f"{chance.expovariate(1):.8g}"), -1e-7, 0.0]),
            chance.choice([None, 1, 7]),
            top,
        )

    tokens = tuple(token() for _ in range(3))
    answer = Answer((Generation(word(), 2, 3, StopReason.STOP_SEQUENCE, word() or None, 2**64 - 1, tokens),))
    text = "- name: a\n  request: {requests: [{text: hi}]}\n- name: b   # end\n  request: {}\n"
    after = _record(text, {0: answer, 1: answer})
    assert [case.answer for case in read(after)] == [answer, answer]
    assert after.count("# end") == 1


# ---- answers in a file of their own


def _files(tmp_path: Path, answers: str) -> tuple[Path, Path]:
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "- {name: a, request: {prompt: hi}}\n- {name: b, request: {prompt: ho}, error: {code: INTERNAL}}\n"
    )
    (tmp_path / "answers.yaml").write_text(answers)
    return cases, tmp_path / "answers.yaml"


def test_models_share_a_file_of_cases_and_have_answers_of_their_own(tmp_path: Path) -> None:
    cases, answers = _files(
        tmp_path, "- {name: a, response: {responses: [{text: x}]}}\n- {name: other, response: {}}\n"
    )
    first, second = read_cases([cases], answers)
    assert first.request.inputs == ("hi",)
    assert first.answer == Answer((Generation("x", 0, 0),))
    assert second.error == ExpectedError("INTERNAL")


def test_a_full_case_file_of_a_model_has_its_answers_too(tmp_path: Path) -> None:
    good = "- {name: a, request: {prompt: hi}, response: {responses: [{text: x}]}}\n"
    cases, answers = _files(tmp_path, good)
    assert read_cases([cases], answers)[0].answer is not None
    answers.write_text(good.replace("hi", "something else"))
    with pytest.raises(SuiteError, match="the request of `a` differs from "):
        read_cases([cases], answers)


def test_a_case_without_an_answer_is_a_problem_unless_it_is_to_be_recorded(tmp_path: Path) -> None:
    cases, answers = _files(tmp_path, "- {name: other, response: {}}\n")
    with pytest.raises(SuiteError, match=r"`a` .*cases.yaml:1\) has no answer; `seatrial record`"):
        read_cases([cases], answers)
    assert read_cases([cases], answers, unanswered=True)[0].answer is None
    answers.unlink()
    assert read_cases([cases], answers, unanswered=True)[0].answer is None
    with pytest.raises(SuiteError, match="No such file"):
        read_cases([cases], answers)


def test_the_cases_in_the_docs_are_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "answers.md").read_text()
    (text,) = re.findall(r"^```yaml\n(# file: cases.yaml\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(read(text)) == 5
