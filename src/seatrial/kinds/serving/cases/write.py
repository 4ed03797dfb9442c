"""Cases as data of a case file, in the spelling of a dialect; and answers put into a file that is there."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.kinds.serving.cases.fields import camel
from seatrial.kinds.serving.cases.messages import MESSAGES, WrittenGeneration, WrittenToken, WrittenTopToken
from seatrial.kinds.serving.cases.read import CASE_LIMITS, CaseFile, Dialect, cases_of
from seatrial.kinds.serving.generation import (
    Answer,
    Case,
    ErrorMatch,
    ExpectedError,
    Failure,
    Generation,
    Guide,
    Guided,
    Method,
    Mode,
    Request,
    StopReason,
    Token,
    Tokenization,
)
from seatrial.suite.yaml.document import CannotEdit, Document, Indent, Tall, block_item, check_data
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source


def case_data(case: Case, dialect: Dialect) -> dict[str, object]:
    """The whole of a case, as the dialect writes it. What is not stated is left out."""
    flag = "singleShardOnly" if dialect is Dialect.TGIS else "single_shard_only"
    data: dict[str, object] = {"name": case.name}
    if case.request.mode is Mode.TOKENIZE:
        data["request_type"] = "tokenize"
    data |= {"skip_check": True} if case.skip_check else {}
    data |= {flag: True} if case.single_shard_only else {}
    data |= {"tags": list(case.tags)} if case.tags else {}
    data["request"] = request_data(case.request, dialect)
    if case.answer is not None:
        data["response"] = answer_data(case.answer, dialect)
    if case.error is not None:
        data["error"] = error_data(case.error)
    return data


def request_data(request: Request, dialect: Dialect) -> dict[str, object]:
    ids = {"model_id": request.model or None, "prefix_id": request.prefix_id, "adapter_id": request.adapter_id}
    # tgis-tester has these in snake_case when it streams, and in camelCase when it does not.
    data = _spelled(ids, camel_case=dialect is Dialect.TGIS or request.mode is not Mode.STREAM)
    if request.limit_s is not None:
        data["limit_s"] = request.limit_s
    if request.mode is Mode.TOKENIZE:
        wanted = {"return_tokens": request.wanted.generated_tokens, "return_offsets": request.wanted.offsets}
        data |= {camel(name): True for name, value in wanted.items() if value}
        data |= {"truncateInputTokens": request.truncate_input_tokens} if request.truncate_input_tokens else {}
    elif params := _params(request, dialect):
        data["params"] = params
    if request.messages:
        data["messages"] = [{"role": message.role, "content": message.content} for message in request.messages]
    elif request.mode is Mode.STREAM:
        data["request"] = {"text": request.inputs[0] if request.inputs else ""}
    elif request.inputs:
        data["requests"] = [{"text": text} for text in request.inputs]
    return data


def _params(request: Request, dialect: Dialect) -> dict[str, object]:
    tgis = dialect is Dialect.TGIS
    sampling, stopping, decoding = request.sampling, request.stopping, request.decoding
    seed = None if sampling.seed is None else _seed(sampling.seed, dialect)
    penalty = _spelled(msgspec.structs.asdict(decoding.length_penalty), tgis) if decoding.length_penalty else None
    parts = {
        "method": request.method.upper() if request.method is not Method.GREEDY else None,
        "sampling": _spelled(msgspec.structs.asdict(sampling) | {"seed": seed}, tgis),
        "stopping": _spelled(
            {
                "max_new_tokens": stopping.max_new_tokens,
                "min_new_tokens": stopping.min_new_tokens,
                "time_limit_millis": stopping.time_limit_ms,
                "stop_sequences": list(stopping.stop_sequences) or None,
                "include_stop_sequence": stopping.include_stop_sequence,
            }
        ),
        "response": _spelled(
            {name: value or None for name, value in msgspec.structs.asdict(request.wanted).items() if name != "offsets"}
        ),
        "decoding": _spelled(
            {
                "repetition_penalty": decoding.repetition_penalty,
                "length_penalty": penalty,
                **(_guided(decoding.guided) if decoding.guided else {}),
            },
            tgis,
        ),
        "truncateInputTokens": request.truncate_input_tokens,
    }
    return {name: part for name, part in parts.items() if part}


def _guided(guided: Guided) -> dict[str, object]:
    if guided.guide is Guide.CHOICE:
        return {"choice": {"choices": list(guided.choices)}}
    if guided.guide in (Guide.TEXT, Guide.JSON):
        return {"format": guided.guide.upper()}
    return {guided.guide.value: guided.value}


def _spelled(values: Mapping[str, object], camel_case: bool = True) -> dict[str, object]:
    return {camel(name) if camel_case else name: value for name, value in values.items() if value is not None}


def _seed(seed: int, dialect: Dialect) -> int | str:
    """Protobuf writes 64 bits as text; so does everybody who knows what readers of YAML make of 20 digits."""
    return str(seed) if dialect is Dialect.TGIS or seed >= 10**18 else seed


# ---- answers


def answer_data(answer: Answer, dialect: Dialect) -> dict[str, object]:
    """As protobuf's JSON: no zeros, no empty texts, NaN for a logprob that is missing among others."""
    found = [_generation(one, dialect) for one in answer.generations]
    return {"responses": found + [_tokenization(one) for one in answer.tokenizations]}


def error_data(error: ExpectedError | Failure) -> dict[str, object]:
    match = error.match if isinstance(error, ExpectedError) else ErrorMatch.EXACT
    data = {"code": error.code or None, MESSAGES[match]: error.message}
    return {name: value for name, value in data.items() if value is not None}


def _generation(one: Generation, dialect: Dialect) -> Tall:
    finished = one.stop_reason is not None and one.stop_reason is not StopReason.NOT_FINISHED
    written = WrittenGeneration(
        # One that is known is always there: tgis-tester does not read an answer without it.
        input_token_count=one.input_count,
        generated_token_count=one.generated_count or None,
        text=one.text or None,
        stop_reason=one.stop_reason.upper() if finished and one.stop_reason else None,
        stop_sequence=one.stop_sequence or None,
        seed=_seed(one.seed, dialect) if one.seed else None,
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
        data["offsets"] = [
            {name: value for name, value in (("start", start), ("end", end)) if value} for start, end in one.offsets
        ]
    return data


# ---- a file that is there


def recorded(source: Source, file: CaseFile, answers: Mapping[int, Answer]) -> str:
    """The text of the file with these answers as what is expected, by the number of the case; every other byte stays.
    Raises CannotEdit."""
    document = Document(source.text)
    wanted = list(source.data)
    for index, answer in answers.items():
        values = _expected(answer, file.dialect)
        document.set((index,), {"response": None, "error": None} | values)
        wanted[index] = {
            key: value for key, value in wanted[index].items() if key not in ("response", "error")
        } | values
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
    if answer.failure is not None:
        return {"error": error_data(answer.failure)}
    return {"response": answer_data(answer, dialect)}
