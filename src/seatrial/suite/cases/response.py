"""What a case expects: answers of TGIS as proto-JSON, or an error."""

import re
from collections.abc import Iterator

from seatrial.job.generation import (
    Answer,
    ErrorMatch,
    ExpectedError,
    Generation,
    StopReason,
    Token,
    Tokenization,
    TopToken,
)
from seatrial.suite.cases.fields import MOST_U64, Fields
from seatrial.suite.yaml.problem import nearest

_GENERATION = (
    *("text", "input_token_count", "generated_token_count", "stop_reason", "stop_sequence", "seed"),
    *("tokens", "input_tokens"),
)
_TOKEN = ("text", "logprob", "rank", "top_tokens")
_TOKENIZATION = ("token_count", "tokens", "offsets")
ERROR = ("code", "message", "message_prefix", "message_pattern")
GRPC_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_HTTP_CODE = re.compile(r"[1-5][0-9]{2}")


def read_answer(fields: Fields, tokenize: bool) -> Answer:
    """Counts and text that are left out are zero and empty: protobuf writes no zeros."""
    if tokenize:
        found = fields.maps("responses", _TOKENIZATION, "a response")
        return Answer(tokenizations=tuple(map(_tokenization, found)))
    return Answer(tuple(map(_generation, fields.maps("responses", _GENERATION, "a response"))))


def _generation(fields: Fields) -> Generation:
    return Generation(
        text=fields.text("text") or "",
        input_count=fields.whole("input_token_count") or 0,
        generated_count=fields.whole("generated_token_count") or 0,
        stop_reason=fields.word("stop_reason", StopReason),
        stop_sequence=fields.text("stop_sequence"),
        seed=fields.whole("seed", MOST_U64),
        tokens=tuple(_tokens(fields, "tokens")) if "tokens" in fields else None,
        input_tokens=tuple(_tokens(fields, "input_tokens")) if "input_tokens" in fields else None,
    )


def _tokens(fields: Fields, name: str) -> Iterator[Token]:
    for token in fields.maps(name, _TOKEN, "a token"):
        top = tuple(
            TopToken(one.text("text") or "", one.number("logprob", nan=True))
            for one in token.maps("top_tokens", ("text", "logprob"), "a top token")
        )
        yield Token(token.text("text") or "", token.number("logprob", nan=True), token.whole("rank") or None, top)


def _tokenization(fields: Fields) -> Tokenization:
    offsets = (
        (one.whole("start") or 0, one.whole("end") or 0)
        for one in fields.maps("offsets", ("start", "end"), "an offset")
    )
    return Tokenization(
        fields.whole("token_count") or 0,
        fields.texts("tokens") if "tokens" in fields else None,
        tuple(offsets) if "offsets" in fields else None,
    )


def read_error(fields: Fields) -> ExpectedError:
    ways = {"message": ErrorMatch.EXACT, "message_prefix": ErrorMatch.PREFIX, "message_pattern": ErrorMatch.PATTERN}
    given = [name for name in ways if name in fields]
    if len(given) > 1:
        fields.report(f"{' and '.join(given)} are here; an error has one of them", fields.get(given[1]))
    if not given and "code" not in fields:
        fields.report("an error has a `code`, a `message`, or both; without either, every error would do")
    message = fields.text(given[0]) if given else None
    match = ways[given[0]] if given else ErrorMatch.EXACT
    if match is ErrorMatch.PATTERN and message is not None:
        try:
            re.compile(message)
        except re.error as error:
            fields.report(f"`message_pattern` is no regular expression: {error}", fields.get("message_pattern"))
    return ExpectedError(_code(fields), message, match)


def _code(fields: Fields) -> str | None:
    code = fields.text("code")
    if code is not None and code not in GRPC_CODES and not _HTTP_CODE.fullmatch(code):
        fields.report(f"{code!r} is no code of gRPC or HTTP{nearest(code, GRPC_CODES)}", fields.get("code"))
    return code
