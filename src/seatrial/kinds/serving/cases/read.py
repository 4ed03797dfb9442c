"""Reads case files: requests and expected answers, in the dialect of tgis-tester or of TGIS's integration tests.

The dialects differ in the name of a flag (`single_shard_only`, `singleShardOnly`) and in `skip_check`, which in TGIS's
applies whenever it is present. Only TGIS's has tokenize cases. Both accept either spelling of a name."""

import gc
import os
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from json import JSONDecoder
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import Unreadable
from seatrial.kinds.serving.cases.fields import Fields, read_case
from seatrial.kinds.serving.cases.messages import read_answer, read_error, read_request
from seatrial.kinds.serving.cases.openai import BEGINNINGS, read_openai_cases
from seatrial.kinds.serving.generation import Answer
from seatrial.kinds.serving.request import Case, Request
from seatrial.limited_yaml import MAX_DEPTH
from seatrial.suite.yaml.problem import Problem, SuiteError
from seatrial.suite.yaml.source import FileLimits, Node, Source, YamlReader, read_text

CASE_LIMITS = FileLimits("case", 256 << 20, 20_000_000, "split it: `cases` takes several files", "split it")
_RESPONSE = "response"
_CASE = ("name", "request_type", "skip_check", "single_shard_only", "tags", "request", _RESPONSE, "error")


class Dialect(StrEnum):
    TESTER = "tgis-tester"
    TGIS = "tgis"


class CaseFile(msgspec.Struct, frozen=True):
    path: str
    dialect: Dialect
    cases: tuple[Case, ...]


def read_cases(paths: Iterable[Path], answers: Path | None = None, unanswered: bool = False) -> tuple[Case, ...]:
    """The cases of all files in order, with unique names. Raises SuiteError with all problems of all files.

    `answers` is a file of expected answers by case name. `unanswered` allows cases without a response or error, so that
    they can be recorded."""
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            file = read_case_file(path, unanswered or answers is not None)
            if answers is None and any(case.request.path for case in file.cases):
                beside = answers_beside(path)
                known = (
                    read_case_file(beside, answers=True) if beside.exists() else CaseFile(str(beside), file.dialect, ())
                )
                cases += _answered(named_apart(file.cases), known, unanswered)
            else:
                cases += file.cases
        except SuiteError as error:
            problems += error.problems
    named = named_apart(cases)
    if answers is not None and (os.path.exists(answers) or not unanswered):
        try:
            named = _answered(named, read_case_file(answers, answers=True), unanswered)
        except SuiteError as error:
            problems += error.problems
    if problems:
        raise SuiteError(problems)
    return named


def answers_beside(path: Path) -> Path:
    """The file of recorded answers to the cases in OpenAI's own words: `cases.answers.yaml` beside `cases.yaml`."""
    return path.with_name(f"{path.stem}.answers{path.suffix}")


def named_apart(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Numbers cases that have the same name."""
    used: set[str] = set()
    found = []
    for case in cases:
        name, number = case.name, 2
        while name in used:
            name, number = f"{case.name} #{number}", number + 1
        used.add(name)
        found.append(case if name == case.name else msgspec.structs.replace(case, name=name))
    return tuple(found)


def _answered(cases: tuple[Case, ...], file: CaseFile, unanswered: bool) -> tuple[Case, ...]:
    """The cases with the expected answers of the file. A case without one is a problem; an answer without a case is
    not, because a trial may use only some of the case files."""
    expected = {case.name: case for case in named_apart(file.cases)}
    problems: list[Problem] = []
    found = []
    for case in cases:
        known = expected.get(case.name)
        if known is None and not (case.answer or case.error or case.expect or unanswered):
            advice = "`seatrial record` fills it in from a trusted server"
            problems.append(Problem(f"{file.path}: `{case.name}` ({case.at}) has no answer; {advice}"))
        elif known is not None and known.request not in (Request(), case.request):
            problems.append(Problem(f"{known.at}: the request of `{case.name}` differs from {case.at}"))
        found.append(msgspec.structs.replace(case, answer=known.answer, error=known.error) if known else case)
    if problems:
        raise SuiteError(problems)
    return tuple(found)


def read_case_file(path: Path, unanswered: bool = False, answers: bool = False) -> CaseFile:
    """As `cases_of`. A file with errors or unusual syntax is read again, with the position of every value."""
    text = read_text(path, limits=CASE_LIMITS)
    was_enabled = gc.isenabled()
    gc.disable()  # a collection over millions of values takes as long as the reading, and finds no cycles
    try:
        return cases_of(_read_quickly(str(path), text), unanswered, answers)
    except (Unreadable, SuiteError):
        return cases_of(Source(str(path), text, limits=CASE_LIMITS), unanswered, answers)
    finally:
        if was_enabled:
            gc.enable()


def cases_of(source: Source, unanswered: bool = False, answers: bool = False) -> CaseFile:
    """The cases of a parsed file; with `answers`, cases need no request. Raises SuiteError."""
    root = source.root
    if not source.problems and (root is None or not isinstance(root.items, list) or not root.items):
        source.report("expected a list of cases, each with `name`, `request` and `response` or `error`", 1, 1)
    nodes = root.items if root is not None and isinstance(root.items, list) else []
    # TGIS's dialect, if any case has one of its own fields
    theirs = {"singleShardOnly", "request_type", "requestType"}
    dialect = Dialect.TGIS if any(theirs & node.keys.keys() for node in nodes) else Dialect.TESTER
    cases: list[Case] = []
    for node in nodes:
        if "request" not in node.keys and BEGINNINGS & node.keys.keys():
            cases += read_openai_cases(source, node)
        else:
            cases.append(_case(source, node, dialect, unanswered, answers))
    if source.problems:
        raise SuiteError(source.problems)
    return CaseFile(source.file, dialect, tuple(cases))


def _case(source: Source, node: Node, dialect: Dialect, unanswered: bool, answers: bool) -> Case:
    fields = Fields(source, node, _CASE, "a case")
    if "request" not in fields and not answers:
        fields.report("case has no `request`, `prompt` or `messages`")
    kind = fields.text("request_type")
    if kind not in (None, "generate", "tokenize"):
        fields.report(f"`request_type` must be generate or tokenize; got {kind!r}", fields.get("request_type"))
    tokenize = kind == "tokenize"
    request = read_request(source, fields.get("request"), tokenize)
    if _RESPONSE in fields and "error" in fields:
        fields.report("case has both `response` and `error`; remove one")
    if _RESPONSE not in fields and "error" not in fields and not unanswered:
        fields.report(
            "case has no `response` or `error`, so any answer would pass; `seatrial record` fills it in from a trusted "
            "server"
        )
    answer, response = None, fields.get(_RESPONSE)
    if response is not None and isinstance(response.data, Answer):
        answer = response.data
    elif _RESPONSE in fields:
        answer = read_answer(fields.map(_RESPONSE, ("responses",)), tokenize)
    skips = "skip_check" in fields
    if skips and dialect is Dialect.TESTER:  # in TGIS's dialect its presence is enough
        skips = fields.get("skip_check") is None or bool(fields.flag("skip_check"))
    error = read_error(fields) if "error" in fields else None
    return read_case(source, node, fields, request, answer=answer, error=error, skip_check=skips)


# Quick reading: the response of each case, which is most of a large file, is read as soon as the case is parsed, so
# that its nodes are not kept. JSON is read without libyaml and without positions. After any problem, the file is read
# again as YAML, with the position of every value. 500 cases with 50 tokens take 0.7 s of CPU as JSON and 2 s as YAML.


def _read_response(source: Source, case: Node) -> None:
    """Replaces the nodes of the response by its answer."""
    node = case.items.get(_RESPONSE) if isinstance(case.items, dict) else None
    if not isinstance(case.items, dict) or node is None or isinstance(node.data, Answer):
        return
    kind = case.items.get("request_type") or case.items.get("requestType")
    fields = Fields(source, node, ("responses",), "`response`")
    case.items[_RESPONSE] = answer = Node(node.line, node.column)
    answer.data = read_answer(fields, kind is not None and kind.data == "tokenize")


def _read_quickly(file: str, text: str) -> Source:
    """Raises Unreadable."""
    source = Source(file, "", limits=CASE_LIMITS)
    source.text = text
    try:
        source.root = _json_cases(source, text) or _QuickReader(source).read(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    return source


_JSON_START = re.compile(r"[ \t\r\n]*\[[ \t\r\n]*(?=\{)")
_JSON_NEXT = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*(?=\{)|\][ \t\r\n]*\Z)")
_ODD_LINE_END = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # line ends in YAML, but not in JSON


def _json_cases(source: Source, text: str) -> Node | None:
    """Reads a JSON list of maps; None for anything else. Uses the standard library's decoder, which can read one value
    at a time."""
    found = _JSON_START.match(text)
    if found is None or _ODD_LINE_END.search(text):
        return None
    decoder = JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
    nodes: list[Node] = []
    line, counted = 1, 0
    while found.end() < len(text) or not nodes:
        line += text.count("\n", counted, found.end())
        counted = found.end()
        data, end = decoder.raw_decode(text, counted)
        nodes.append(_node(data, line))
        _read_response(source, nodes[-1])
        found = _JSON_NEXT.match(text, end)
        if found is None:
            raise Unreadable("not a list of maps")
    root = Node(1, 1)
    root.items = nodes
    return root


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Unreadable("duplicate key")
    return made


def _refuse(constant: str) -> float:
    raise Unreadable(constant)


def _node(data: Any, line: int, depth: int = 0) -> Node:
    if depth > MAX_DEPTH:
        raise Unreadable("nested too deep")
    node = Node(line, 1)
    node.data = data
    if isinstance(data, dict):
        node.items = {key: _node(value, line, depth + 1) for key, value in data.items()}
        node.keys = dict.fromkeys(data, (line, 1))
    elif isinstance(data, list):
        node.items = [_node(value, line, depth + 1) for value in data]
    return node


class _QuickReader(YamlReader):
    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        node = super()._node(event, events, depth)
        if depth == 1:
            _read_response(self._source, node)
        return node
