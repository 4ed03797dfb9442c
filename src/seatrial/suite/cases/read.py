"""Case files: what a server is asked, and what it should answer. Two dialects, both of TGIS, that are read alike.

tgis-tester's own, and that of TGIS's integration tests. They differ in the name of a flag (`single_shard_only`,
`singleShardOnly`), in what `skip_check` means (true, or being there at all), and in that only the second has cases
which tokenize. Either spelling of a name is taken in both."""

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from seatrial.job.generation import Answer, Case, ExpectedError, Request
from seatrial.suite.cases.fields import Fields
from seatrial.suite.cases.quick import NotQuick, quick_cases
from seatrial.suite.cases.request import read_request
from seatrial.suite.cases.response import ERROR, read_answer, read_error
from seatrial.suite.yaml.problem import Problem, SuiteError
from seatrial.suite.yaml.source import FileLimits, Node, Source, read_text

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
        tokenize = self._tokenizes(fields)
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

    def _tokenizes(self, fields: Fields) -> bool:
        kind = fields.text("request_type")
        if kind not in (None, "generate", "tokenize"):
            fields.report(f"`request_type` is generate or tokenize; got {kind!r}", fields.get("request_type"))
        return kind == "tokenize"

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
