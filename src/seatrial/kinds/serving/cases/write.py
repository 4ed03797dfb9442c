"""Writes answers into an existing case file, in the spelling of its dialect."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.kinds.serving.cases.messages import WrittenGeneration, WrittenToken, WrittenToolCall, WrittenTopToken
from seatrial.kinds.serving.cases.read import CASE_LIMITS, CaseFile, Dialect, cases_of
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, Token, Tokenization
from seatrial.suite.yaml.document import CannotEdit, Document, Indent, Tall, block_item, check_data
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source


def _generation(one: Generation, dialect: Dialect) -> Tall:
    stop = one.stop_reason if one.stop_reason is not StopReason.NOT_FINISHED else None
    # As text, like protobuf: YAML parsers may lose digits of a 64-bit number.
    seed = str(one.seed) if one.seed and (dialect is Dialect.TGIS or one.seed >= 10**18) else one.seed
    written = WrittenGeneration(
        # written even if 0: tgis-tester requires it
        input_token_count=one.input_count,
        generated_token_count=one.generated_count or None,
        text=one.text or None,
        stop_reason=stop.upper() if stop else None,
        stop_sequence=one.stop_sequence or None,
        seed=seed or None,
        input_tokens=_tokens(one.input_tokens) or None,
        tokens=_tokens(one.tokens) or None,
        reasoning=one.reasoning or None,
        model=one.model,
        tool_calls=[WrittenToolCall(call.name, call.arguments) for call in one.tool_calls or ()] or None,
        vector=None if one.vector is None else [float(f"{value:.8g}") for value in one.vector],
    )
    return Tall(msgspec.to_builtins(written))


def _tokens(tokens: Sequence[Token] | None) -> list[WrittenToken]:
    missing = "NaN" if any(token.logprob is not None for token in tokens or ()) else None
    return [
        WrittenToken(
            token.text,
            missing if token.logprob is None else _rounded(token.logprob),
            token.rank or None,
            [WrittenTopToken(top.text, _rounded(top.logprob)) for top in token.top] or None,
        )
        for token in tokens or ()
    ]


def _rounded(logprob: float | None) -> float | None:
    """Rounds to the precision of a 32-bit float."""
    return None if logprob is None else float(f"{logprob:.8g}")


def _tokenization(one: Tokenization) -> Tall:
    data = Tall({"tokenCount": one.count} if one.count else {})
    if one.tokens is not None:
        data["tokens"] = list(one.tokens)
    if one.offsets is not None:
        pairs = [zip(("start", "end"), offset, strict=True) for offset in one.offsets]
        data["offsets"] = [{name: value for name, value in pair if value} for pair in pairs]
    return data


def recorded(source: Source, file: CaseFile, answers: Mapping[int, Answer]) -> str:
    """The file's text with these expected answers, by case index; every other byte is kept. Raises CannotEdit."""
    document = Document(source)
    for index, answer in answers.items():
        document.set((index,), {"response": None, "error": None} | _expected(answer, file.dialect))
    after = document.apply()
    try:
        cases_of(after, unanswered=True, answers=True)
    except SuiteError as error:
        raise CannotEdit(source.file, f"the edited file would be invalid: {error}") from error
    return after.text


def recorded_answers(source: Source, answers: Mapping[str, Answer], dialect: Dialect) -> str:
    """The text of an answers file, by case name: existing entries are changed in place, new ones are appended. Raises
    CannotEdit and SuiteError."""
    known: dict[str, int] = {}
    wanted: list[Any] = []
    text = source.text
    if source.root is not None or source.problems:  # has more than comments
        file = cases_of(source, unanswered=True, answers=True)
        known = {case.name: index for index, case in enumerate(file.cases)}
        text = recorded(source, file, {known[name]: one for name, one in answers.items() if name in known})
        wanted = Source(source.file, text, limits=CASE_LIMITS).data
    for name, one in answers.items():
        if name not in known:
            item = Tall({"name": name} | _expected(one, dialect))
            text += ("" if not text or text.endswith("\n") else "\n") + "\n".join(block_item(item, 0, Indent())) + "\n"
            wanted.append(dict(item))
    after = Source(source.file, text, limits=CASE_LIMITS)
    check_data(after, wanted)
    return text


def _expected(answer: Answer, dialect: Dialect) -> dict[str, object]:
    """In protobuf's JSON format: no zeros or empty texts, NaN for a missing logprob among others."""
    if answer.failure is not None:
        code = {"code": answer.failure.code} if answer.failure.code else {}
        return {"error": {**code, "message": answer.failure.message}}
    found = [_generation(one, dialect) for one in answer.generations]
    return {"response": {"responses": found + [_tokenization(one) for one in answer.tokenizations]}}
