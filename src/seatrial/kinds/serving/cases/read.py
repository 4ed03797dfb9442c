"""Case files: what a server is asked, and what it should answer. Two dialects, both of TGIS, that are read alike.

tgis-tester's own, and that of TGIS's integration tests. They differ in the name of a flag (`single_shard_only`,
`singleShardOnly`), in what `skip_check` means (true, or being there at all), and in that only the second has cases
which tokenize. Either spelling of a name is taken in both."""

import gc
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from json import JSONDecoder
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from seatrial.job import Unreadable, convert
from seatrial.kinds.serving.cases.fields import Fields
from seatrial.kinds.serving.cases.messages import ERROR, read_answer, read_error, read_request
from seatrial.kinds.serving.generation import (
    Answer,
    Case,
    ExpectedError,
    Generation,
    Request,
    StopReason,
    Token,
    TopToken,
)
from seatrial.suite.yaml.problem import Problem, SuiteError
from seatrial.suite.yaml.source import (
    MAX_DEPTH,
    FileLimits,
    Node,
    Source,
    StoppedReading,
    YamlReader,
    plain_value,
    read_text,
)

_RESPONSE = "response"
_ODD_LINE_END = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # which YAML counts as lines, and JSON does not
_BLANK = re.compile(r"[ \t\r\n]*")
U32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
U64 = Annotated[int, msgspec.Meta(ge=0)]
_NAN = frozenset(("NaN", "nan", ".nan", ".NaN", ".NAN"))


class NotQuick(Exception):
    """There is something here that must be read with its place."""


class _TopToken(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    logprob: float | str | None = None


class _Token(_TopToken, forbid_unknown_fields=True, rename="camel"):
    rank: U32 | None = None
    top_tokens: list[_TopToken] | None = None


class _Generation(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    text: str = ""
    input_token_count: U32 = 0
    generated_token_count: U32 = 0
    stop_reason: str | None = None
    stop_sequence: str | None = None
    seed: U64 | None = None
    tokens: list[_Token] | msgspec.UnsetType = msgspec.UNSET
    input_tokens: list[_Token] | msgspec.UnsetType = msgspec.UNSET


class _Response(msgspec.Struct, forbid_unknown_fields=True):
    responses: list[_Generation] = []


_STOPS = {reason.value.upper(): reason for reason in StopReason}


def quick_cases(source: Source, text: str) -> Iterator[tuple[Node, Answer | None]]:
    """Each case without its response, and what that says; to `source` is reported what is wrong. Raises NotQuick.

    It reads responses, nearly all of a large file, without the place of every value, and gives up at the first thing
    that it does not know to be right: the file is then read again with places, to say where everything is that is
    wrong. For 2,000 cases with tokens this takes 0.5 s of CPU as JSON and 2.1 s as YAML; with places it takes 4 s."""
    if _ODD_LINE_END.search(text):
        raise NotQuick
    found = _json_cases(text) if text.lstrip(" \t\r\n")[:1] == "[" else _YamlCases(source, text).cases()
    try:
        yield from found
    except (ValueError, yaml.YAMLError, RecursionError, StoppedReading) as error:
        raise NotQuick from error


def _answer(data: Any) -> Answer:
    try:
        made = convert(data, _Response)
    except Unreadable:
        raise NotQuick from None
    return Answer(tuple(map(_generation, made.responses)))


def _generation(one: _Generation) -> Generation:
    if one.stop_reason is not None and one.stop_reason not in _STOPS:
        raise NotQuick
    return Generation(
        one.text,
        one.input_token_count,
        one.generated_token_count,
        _STOPS[one.stop_reason] if one.stop_reason else None,
        one.stop_sequence,
        one.seed,
        _tokens(one.tokens),
        _tokens(one.input_tokens),
    )


def _tokens(found: list[_Token] | msgspec.UnsetType) -> tuple[Token, ...] | None:
    if isinstance(found, msgspec.UnsetType):
        return None
    made = []
    for one in found:
        top = tuple([TopToken(each.text, _logprob(each.logprob)) for each in one.top_tokens or ()])
        made.append(Token(one.text, _logprob(one.logprob), one.rank or None, top))
    return tuple(made)


def _logprob(value: float | str | None) -> float | None:
    if isinstance(value, str):
        if value not in _NAN:
            raise NotQuick
        return None
    if value is not None and not math.isfinite(value):
        raise NotQuick
    return value


# ---- JSON


def _json_cases(text: str) -> Iterator[tuple[Node, Answer | None]]:
    """By the decoder of the standard library, which can be asked for one value after the other."""
    decoder = JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
    at = _skip(text, text.index("[") + 1)
    line, line_begins, counted = 1, 0, 0
    while text[at : at + 1] != "]":
        if more := text.count("\n", counted, at):
            line, line_begins = line + more, text.rfind("\n", counted, at) + 1
        counted = at
        data, at = decoder.raw_decode(text, at)
        if not isinstance(data, dict):
            raise NotQuick
        answer = _answer(data.pop(_RESPONSE)) if _RESPONSE in data else None
        yield _node(data, line, counted - line_begins + 1), answer
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                raise NotQuick
        elif text[at : at + 1] != "]":
            raise NotQuick
    if _skip(text, at + 1) != len(text):
        raise NotQuick


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotQuick
    return made


def _refuse(_: str) -> float:
    raise NotQuick


def _node(data: Any, line: int, column: int, depth: int = 0) -> Node:
    """At the place of its case: a problem with it is looked for again."""
    if depth > MAX_DEPTH:
        raise NotQuick
    node = Node(line, column)
    node.data = data
    if isinstance(data, dict):
        node.items = {key: _node(value, line, column, depth + 1) for key, value in data.items()}
        node.keys = dict.fromkeys(data, (line, column))
    elif isinstance(data, list):
        node.items = [_node(value, line, column, depth + 1) for value in data]
    return node


# ---- YAML


class _YamlCases(YamlReader):
    """Of a list of maps: the values of `response` as plain data, everything else as nodes with their places."""

    def __init__(self, source: Source, text: str) -> None:
        super().__init__(source)
        self._text = text

    def cases(self) -> Iterator[tuple[Node, Answer | None]]:
        events: Iterator[Any] = yaml.parse(self._text, Loader=yaml.CSafeLoader)
        _expect(events, yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.SequenceStartEvent)
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            if not isinstance(event, yaml.MappingStartEvent) or event.anchor or event.tag:
                raise NotQuick
            yield self._case(event, events)
        _expect(events, yaml.DocumentEndEvent, yaml.StreamEndEvent)

    def _case(self, start: Any, events: Iterator[Any]) -> tuple[Node, Answer | None]:
        node, answer = Node(start.start_mark.line + 1, start.start_mark.column + 1), None
        items: dict[str, Node] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, events, 2)
            if not isinstance(key.data, str) or key.data == "<<" or key.data in node.keys:
                raise NotQuick
            node.keys[key.data] = (key.line, key.column)
            if key.data == _RESPONSE:
                answer = _answer(_plain_data(next(events), events, 2))
            else:
                items[key.data] = self._node(next(events), events, 2)
        if answer is not None:
            del node.keys[_RESPONSE]
        if self._source.problems or self._anchors:
            raise NotQuick
        node.items, node.data = items, {name: one.data for name, one in items.items()}
        return node, answer


def _expect(events: Iterator[Any], *kinds: type[yaml.Event]) -> None:
    if not all(isinstance(next(events, None), kind) for kind in kinds):
        raise NotQuick


def _plain_data(event: Any, events: Iterator[Any], depth: int) -> Any:
    """What YAML says there, of plain things: no anchors, tags, merges, and no key twice."""
    kind = event.__class__
    if kind is yaml.AliasEvent or event.anchor or event.tag or depth > MAX_DEPTH:
        raise NotQuick
    if kind is yaml.ScalarEvent:
        return plain_value(event.value) if event.implicit[0] else event.value
    if kind is yaml.SequenceStartEvent:
        items: list[Any] = []
        for inner in events:
            if inner.__class__ is yaml.SequenceEndEvent:
                return items
            items.append(_plain_data(inner, events, depth + 1))
    made: dict[str, Any] = {}
    for inner in events:
        if inner.__class__ is yaml.MappingEndEvent:
            return made
        key = _plain_data(inner, events, depth + 1)
        if not isinstance(key, str) or key in made or key == "<<":
            raise NotQuick
        made[key] = _plain_data(next(events), events, depth + 1)
    raise NotQuick


CASE_LIMITS = FileLimits("case", 256 << 20, 20_000_000, "split it: `cases` takes several files", "split it")
_CASE = ("name", "request_type", "skip_check", "single_shard_only", "tags", "request", "response", "error")


class Dialect(StrEnum):
    TESTER = "tgis-tester"
    TGIS = "tgis"


class CaseFile(msgspec.Struct, frozen=True):
    path: str
    dialect: Dialect
    cases: tuple[Case, ...]
    warnings: tuple[str, ...] = ()


def read_cases(paths: Iterable[Path], answers: Path | None = None, unanswered: bool = False) -> tuple[Case, ...]:
    """The cases of all files in order, each with a name of its own. Raises SuiteError with every problem of them all.

    What is expected may be in a file of its own, `answers`, by the names of the cases: so several models share one file
    of cases. `unanswered` allows cases that have neither a response nor an error, so that they can be recorded."""
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            cases += read_case_file(path, unanswered or answers is not None).cases
        except SuiteError as error:
            problems += error.problems
    named = _named_apart(cases)
    if answers is not None and (os.path.exists(answers) or not unanswered):
        try:
            named = _answered(named, read_case_file(answers, answers=True), unanswered)
        except SuiteError as error:
            problems += error.problems
    if problems:
        raise SuiteError(problems)
    return named


def _answered(cases: tuple[Case, ...], file: CaseFile, unanswered: bool) -> tuple[Case, ...]:
    """The cases with what the file expects of them. A case that it does not know is a problem; one that only it knows
    is not: the files of cases of this trial may be fewer."""
    expected = {case.name: case for case in _named_apart(file.cases)}
    problems: list[Problem] = []
    found = []
    for case in cases:
        known = expected.get(case.name)
        if known is None and case.answer is None and case.error is None and not unanswered:
            why = (
                f"`{case.name}` ({case.at}) has no answer here; `seatrial record` writes what a trusted server answers"
            )
            problems.append(Problem(f"{file.path}: {why}"))
        elif known is not None and known.request not in (Request(), case.request):
            problems.append(Problem(f"{known.at}: `{case.name}` asks something else than {case.at} does"))
        expects = case if known is None else msgspec.structs.replace(case, answer=known.answer, error=known.error)
        found.append(expects)
    if problems:
        raise SuiteError(problems)
    return tuple(found)


def read_case_file(path: Path, unanswered: bool = False, answers: bool = False) -> CaseFile:
    text = read_text(path, limits=CASE_LIMITS)
    with _no_garbage():
        try:
            return _quickly(str(path), text, unanswered, answers)
        except NotQuick:
            return cases_of(Source(str(path), text, limits=CASE_LIMITS), unanswered, answers)


def _quickly(file: str, text: str, unanswered: bool, answers: bool) -> CaseFile:
    """Raises NotQuick where anything is wrong with the file, or unusual."""
    source = Source(file, "", limits=CASE_LIMITS)
    reading = _Reading(source, Dialect.TESTER, unanswered, answers)
    cases = []
    for node, answer in quick_cases(source, text):
        if _dialect([node]) is Dialect.TGIS:
            reading.dialect = Dialect.TGIS
        cases.append((node, answer))
    made = tuple(reading.case(node, answer) for node, answer in cases)
    if source.problems or not made:
        raise NotQuick
    return CaseFile(file, reading.dialect, made, tuple(reading.warnings))


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing here refers to itself; to look for what does, among millions of values, takes as long as reading them."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


def cases_of(source: Source, unanswered: bool = False, answers: bool = False) -> CaseFile:
    """The same of a file that was read; with `answers`, of one whose cases need not have a request. Raises
    SuiteError."""
    root = source.root
    if not source.problems and (root is None or not isinstance(root.items, list) or not root.items):
        source.report("a case file is a list of cases, each with `name`, `request` and `response` or `error`", 1, 1)
    nodes = root.items if root is not None and isinstance(root.items, list) else []
    reading = _Reading(source, _dialect(nodes), unanswered, answers)
    cases = tuple(reading.case(node) for node in nodes)
    if source.problems:
        raise SuiteError(source.problems)
    return CaseFile(source.file, reading.dialect, cases, tuple(reading.warnings))


def _dialect(nodes: Iterable[Node]) -> Dialect:
    """TGIS's own when a case has what only that has."""
    theirs = {"singleShardOnly", "request_type", "requestType"}
    return Dialect.TGIS if any(theirs & node.keys.keys() for node in nodes) else Dialect.TESTER


def _named_apart(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Two cases of one name are told apart by a number."""
    used: set[str] = set()
    found = []
    for case in cases:
        name, number = case.name, 2
        while name in used:
            name, number = f"{case.name} #{number}", number + 1
        used.add(name)
        found.append(case if name == case.name else msgspec.structs.replace(case, name=name))
    return tuple(found)


class _Reading:
    def __init__(self, source: Source, dialect: Dialect, unanswered: bool, answers: bool) -> None:
        self._source = source
        self._unanswered = unanswered
        self._answers = answers
        self.dialect = dialect
        self.warnings: list[str] = []

    def case(self, node: Node, answer: Answer | None = None) -> Case:
        """`answer`: what its response says, where that is no part of the node."""
        fields = Fields(self._source, node, _CASE, "a case")
        if "name" not in fields:
            fields.report("a case has a `name`")
        if "request" not in fields and not self._answers:
            fields.report("a case has a `request`")
        kind = fields.text("request_type")
        if kind not in (None, "generate", "tokenize"):
            fields.report(f"`request_type` is generate or tokenize; got {kind!r}", fields.get("request_type"))
        tokenize = kind == "tokenize"
        request = read_request(self._source, fields.get("request"), tokenize)
        expected, error = self._expected(fields, tokenize, answer)
        return Case(
            name=fields.text("name") or "",
            request=request,
            answer=expected,
            error=error,
            skip_check=self._skips(fields, node),
            single_shard_only=bool(fields.flag("single_shard_only")),
            tags=fields.texts("tags"),
            at=f"{self._source.file}:{node.line}",
        )

    def _expected(
        self, fields: Fields, tokenize: bool, answer: Answer | None
    ) -> tuple[Answer | None, ExpectedError | None]:
        responds = "response" in fields or answer is not None
        if responds and "error" in fields:
            fields.report("a case has a `response` or an `error`, and this has both")
        if not responds and "error" not in fields and not self._unanswered:
            fields.report(
                "a case has a `response` or an `error`, and this has neither: whatever a server answers would pass; "
                "`seatrial record` writes what a trusted one answers"
            )
        if "response" in fields:
            answer = read_answer(fields.map("response", ("responses",)), tokenize)
        return answer, read_error(fields.map("error", ERROR)) if "error" in fields else None

    def _skips(self, fields: Fields, node: Node) -> bool:
        if "skip_check" not in fields:
            return False
        given = fields.get("skip_check")
        if self.dialect is Dialect.TGIS:  # its tests ask only whether it is there
            if given is not None and given.data is False:
                at = f"{self._source.file}:{given.line}:{given.column}"
                self.warnings.append(f"{at}: in a file of TGIS's, `skip_check: false` skips the check too; take it out")
            return True
        return given is None or bool(fields.flag("skip_check"))
