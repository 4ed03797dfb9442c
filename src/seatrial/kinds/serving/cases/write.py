"""Answers put into a case file that is there, in the spelling of its dialect."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.kinds.serving.cases.messages import WrittenGeneration, WrittenToken, WrittenTopToken
from seatrial.kinds.serving.cases.read import CASE_LIMITS, CaseFile, Dialect, cases_of
from seatrial.kinds.serving.generation import Answer, Generation, StopReason, Token, Tokenization
from seatrial.suite.yaml.document import CannotEdit, Document, Indent, Tall, block_item, check_data
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source


def _generation(one: Generation, dialect: Dialect) -> Tall:
    stop = one.stop_reason if one.stop_reason is not StopReason.NOT_FINISHED else None
    # Protobuf writes 64 bits as text; so does everybody who knows what readers of YAML make of 20 digits.
    seed = str(one.seed) if one.seed and (dialect is Dialect.TGIS or one.seed >= 10**18) else one.seed
    written = WrittenGeneration(
        # One that is known is always there: tgis-tester does not read an answer without it.
        input_token_count=one.input_count,
        generated_token_count=one.generated_count or None,
        text=one.text or None,
        stop_reason=stop.upper() if stop else None,
        stop_sequence=one.stop_sequence or None,
        seed=seed or None,
        input_tokens=_tokens(one.input_tokens) or msgspec.UNSET,
        tokens=_tokens(one.tokens) or msgspec.UNSET,
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
    """To what a 32-bit float on the wire means."""
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
    """The text of the file with these answers as what is expected, by the number of the case; every other byte stays.
    Raises CannotEdit."""
    document = Document(source.text)
    wanted = list(source.data)
    for index, answer in answers.items():
        values = _expected(answer, file.dialect)
        document.set((index,), {"response": None, "error": None} | values)
        kept = {key: value for key, value in wanted[index].items() if key not in ("response", "error")}
        wanted[index] = kept | values
    after = Source(source.file, document.apply(), limits=CASE_LIMITS)
    check_data(after, wanted)
    try:
        cases_of(after, unanswered=True, answers=True)
    except SuiteError as error:
        raise CannotEdit(source.file, f"it would not be sound afterwards: {error}") from error
    return after.text


def recorded_answers(source: Source, answers: Mapping[str, Answer], dialect: Dialect) -> str:
    """The text of a file of answers alone, by the names of the cases: those that are there are changed in place, the
    others come after them. Raises CannotEdit and SuiteError."""
    known: dict[str, int] = {}
    wanted: list[Any] = []
    text = source.text
    if source.root is not None or source.problems:  # there is more in it than comments
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
    """As protobuf's JSON: no zeros, no empty texts, NaN for a logprob that is missing among others."""
    if answer.failure is not None:
        code = {"code": answer.failure.code} if answer.failure.code else {}
        return {"error": {**code, "message": answer.failure.message}}
    found = [_generation(one, dialect) for one in answer.generations]
    return {"response": {"responses": found + [_tokenization(one) for one in answer.tokenizations]}}
