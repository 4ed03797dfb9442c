"""The details of one cell, evidence first."""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

import msgspec

from seatrial.job import Finding, Verdict
from seatrial.report.html.charts import pictures
from seatrial.report.view.cell import CellDetails, CellView, url
from seatrial.report.view.charts import resource_plots
from seatrial.report.view.over_runs import metric_plot
from seatrial.report.view.sentences import series_bound_text
from seatrial.report.view.series import bound_levels
from seatrial.report.view.words import duration_text, one_line, shorten, size_text

_MOST_EVIDENCE = 8_000
_MOST_FILES = 60
_MOST_RUNS = 60  # of a metric's past
STEP_WIDTH = 130
INERT = frozenset((".txt", ".json", ".csv", ".png", ".jpg", ".jpeg", ".gif", ".webp"))
LOG_PAGE = "log.html"
_WITH_MESSAGE = (Verdict.XFAIL, Verdict.SKIPPED)  # good verdicts that need an explanation
_LOG_LINE = re.compile(r"^line ([\d,]+) of the log(?: of the (\S+))?:$", re.MULTILINE)


@dataclass(frozen=True)
class Link:
    name: str
    url: str


class Evidence:
    """The evidence of a finding: lines, and whether each is highlighted. `quoted`: shown for an earlier finding."""

    def __init__(self, finding: Finding, title: str, log: Link | None, quoted: bool) -> None:
        self.title, self.verdict, self.class_, self.log = title, finding.verdict.value, finding.class_, log
        text = "" if quoted else shorten(finding.evidence, _MOST_EVIDENCE).strip("\n")
        lines = text.split("\n")
        first = lines[0].strip()
        self.message = "" if first == finding.message.strip() else finding.message
        # The first line may repeat one of the following lines: highlight that line instead.
        hits = [line.strip() == first for line in lines[1:]]
        self.lines: list[tuple[str, bool]] = []
        if any(hits):
            self.lines = list(zip(lines[1:], hits, strict=True))
        elif text:
            self.lines = [(line, place == 0) for place, line in enumerate(lines)]


@dataclass(frozen=True)
class StepRow:
    title: str
    verdict: str
    message: str
    took: str
    peak: str
    left: float
    width: float

    @property
    def quiet(self) -> bool:
        """A passed check without a duration."""
        return self.verdict == Verdict.PASSED and not self.took and not self.width


class CellInspector:
    """All details of a cell. `served`: log pages of bad cells are rendered on request. `run_link` is the address of
    another run."""

    def __init__(self, cell: CellView, served: bool = False, run_link: Callable[[str], str] = lambda _: "") -> None:
        served = served and (cell.bad or cell.live)
        self.cell = cell
        self.details = details = cell.details()
        self.evidence = _evidences(cell, details, served)
        steps = _steps(cell, details)
        self.steps = [row for row in steps if not row.quiet]
        self.quiet = [row for row in steps if row.quiet]
        self.notebooks = [notebook for notebook in details.notebooks if notebook.passes]
        self.resources = [plot for part, one in details.observed.items() for plot in resource_plots(part, one)]
        levels = {one.metric: next(iter(found.values())) for one in cell.histories if (found := bound_levels(one))}
        first = [one for one in cell.charts if getattr(one, "first", False)]
        self.first = list(pictures(first, levels))
        self.pictures = list(pictures([one for one in cell.charts if one not in first]))
        self.over_runs = [
            msgspec.structs.replace(
                metric_plot(one, lambda point: run_link(point.run), _MOST_RUNS),
                title=f"{one_line(one.metric)} over runs",
                note=series_bound_text(one),
            )
            for one in cell.histories
            if len(one.points) > 1
        ]
        self.links = _links(details, served)
        self.more_files = max(0, len(details.kept) - _MOST_FILES)
        self.log_tail = shorten(details.log_tail(), _MOST_EVIDENCE) if cell.bad else ""


def _evidences(cell: CellView, details: CellDetails, served: bool) -> list[Evidence]:
    """Evidence shared by several findings is shown once."""
    made = []
    seen: set[str] = set()
    for finding in cell.bad_findings:
        quoted = finding.evidence in seen
        log = None if quoted else _log_line(shorten(finding.evidence, _MOST_EVIDENCE), details, served)
        seen.add(finding.evidence)
        made.append(Evidence(finding, cell.title(finding), log, quoted))
    return made


def _log_line(text: str, details: CellDetails, served: bool) -> Link | None:
    found = _LOG_LINE.search(text)
    if found is None:
        return None
    part = f"{found[2]}/" if found[2] else details.parts[0]
    if not served and not (details.folder / part / LOG_PAGE).is_file():
        return None
    where = url(f"{details.base}/{part}{LOG_PAGE}")
    return Link(f"line {found[1]} of the log", f"{where}#L{found[1].replace(',', '')}")


def _steps(cell: CellView, details: CellDetails) -> list[StepRow]:
    """Each finding, with the time of its step relative to the first step."""
    known = [step for step in details.steps.values() if step.started_s is not None]
    first = min((step.started_s or 0.0 for step in known), default=0.0)
    last = max((step.ended_s if step.ended_s is not None else step.started_s or 0.0 for step in known), default=0.0)
    span = max(last - first, 1e-9)
    rows = []
    seen: set[str] = set()
    for finding in cell.findings:
        step = details.steps.get(finding.step)
        took = details.step_seconds(finding.step)
        timed = step is not None and step.started_s is not None and finding.step not in seen
        begin = (step.started_s or 0.0) - first if step is not None else 0.0
        rows.append(
            StepRow(
                cell.title(finding),
                finding.verdict.value,
                finding.message if finding.verdict in _WITH_MESSAGE else "",
                duration_text(took) if finding.step not in seen else "",
                size_text(step.peak_memory_bytes) if step and timed else "",
                round(begin / span * STEP_WIDTH, 1) if timed else 0.0,
                round(max(2.0, (took or 0.0) / span * STEP_WIDTH), 1) if timed else 0.0,
            )
        )
        seen.add(finding.step)
    return rows


def _links(details: CellDetails, served: bool) -> list[Link]:
    links = []
    for log in details.logs:
        name = log.removeprefix(f"{details.base}/")
        page = name.removesuffix("log.txt") + LOG_PAGE
        if served or (details.folder / page).is_file():
            links.append(Link(name.removesuffix(".txt"), url(f"{details.base}/{page}")))
        links.append(Link(name, url(log)))
    for name in details.kept[:_MOST_FILES]:
        shown = os.fsencode(name.removeprefix("files/")).decode("utf-8", "backslashreplace")
        links.append(Link(one_line(shown), url(f"{details.base}/{name}") if _inert(name, details) else ""))
    return links


def _inert(name: str, details: CellDetails) -> bool:
    """Whether a browser displays the file without running it. Files of jobs are not trusted: an HTML page, an SVG, or a
    file of unknown type could run scripts as part of this report. Notebook pages are ours: we overwrite whatever was
    there."""
    path = PurePath(name)
    if path.suffix == ".html" and path.parts[:2] == ("files", "notebooks"):
        return str(path.with_suffix(".ipynb")) in details.kept
    if path.suffix == ".ipynb":
        with contextlib.suppress(OSError), (details.folder / name).open("rb") as file:
            return file.read(1) == b"{"  # browsers do not treat a file that starts with { as a page
    return path.suffix.lower() in INERT
