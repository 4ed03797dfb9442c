"""A cell as all reports show it, with the steps, notebooks, logs and files of its last attempt."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from seatrial.job import (
    IN_SHORT,
    METRICS,
    AttemptResult,
    CellResult,
    Change,
    Finding,
    History,
    Metric,
    Moment,
    Observation,
    ObservedStep,
    Tile,
    Unreadable,
    Verdict,
    flatten_metrics,
    opened_regular,
    read_json,
)
from seatrial.report.view.changes import NEWLY_BAD
from seatrial.report.view.notebook import NotebookView, notebook_view
from seatrial.report.view.sentences import cell_news_text, moment_text
from seatrial.report.view.words import duration_text, grouped, listed, one_line, size_text

if TYPE_CHECKING:
    from seatrial.report.view.run import CauseView, RunView
    from seatrial.report.view.series import SeriesView

LOG_TAIL_BYTES = 6_000
_NOT_REACHED = "before this step "  # start of a message of `checks.ended`


class CellView:
    """A cell of a run. Its folder is read only by `details`."""

    def __init__(self, run: "RunView", result: CellResult) -> None:
        self._run = run
        self.result = result
        self.id, self.hash, self.kind, self.axes = result.id, result.hash, result.kind, result.axes
        self.trial, self.benchmark = result.trial, result.benchmark
        self.verdict, self.flaky, self.reason = result.verdict, result.flaky, result.why
        self.done, self.unfinished = result.done, result.unfinished
        self.attempts, self.findings, self.charts = result.attempts, result.findings, result.charts
        self.news = result.news
        self.state = run.states.get(result.hash) or result.verdict.value  # while it runs, not its verdict
        self.over = result.hash not in run.states
        self.bad = self.over and not result.verdict.good
        self.live = run.live
        self.last = result.attempts[-1] if result.attempts else None
        self.seconds = self.last.seconds if self.last else None
        self.bad_findings = [finding for finding in result.findings if not finding.verdict.good]
        self.xfails = [finding for finding in result.findings if finding.verdict is Verdict.XFAIL]
        self.tiles = [one for one in result.charts if isinstance(one, Tile)]
        change = result.news.change if result.news else None
        self.newly_bad = change in NEWLY_BAD  # it was good, or bad in another way, in its previous run
        self.change = change.value if change and change is not Change.SAME else ""  # empty if none or unknown
        # The folders of its parts, relative to its own; "" if it is a single job.
        self.parts = [f"{part}/" for part in self.last.parts] if self.last and self.last.parts else [""]

    @property
    def causes(self) -> "list[CauseView]":
        return self._run.causes_of.get(self.hash, [])

    @property
    def cause(self) -> "CauseView | None":
        return next(iter(self.causes), None)

    @cached_property
    def by_step(self) -> dict[str, list[Finding]]:
        return grouped(self.findings, lambda finding: finding.step)

    def title(self, finding: Finding) -> str:
        """The finding's step, with the check if the step has several findings."""
        alone = len(self.by_step[finding.step]) == 1
        step = step_title(finding)
        return one_line(step if alone else f"{step} ({finding.check})")

    @cached_property
    def bad_titles(self) -> list[tuple[str, Finding]]:
        """The bad findings with their titles. The steps that a job did not reach have one together."""
        alike = grouped(self.bad_findings, lambda one: one.message if one.message.startswith(_NOT_REACHED) else id(one))
        return [(listed([self.title(one) for one in found], 3), found[0]) for found in alike.values()]

    @property
    def why(self) -> str:
        """The reason for the verdict of a cell without bad findings: its own, or how its last attempt ended."""
        if self.reason:
            return one_line(self.reason)
        if self.last is None:
            return "never started"
        return one_line(self.last.why or self.last.exit.message) or f"job outcome: {self.last.exit.outcome.value}"

    @property
    def problem(self) -> str:
        """The first bad finding, or the reason if there is none."""
        first = self.bad_findings[0] if self.bad_findings else None
        return one_line(f"{self.title(first)}: {first.message}") if first else self.why

    @property
    def error(self) -> str:
        """The error line that a program printed, or the reason for the verdict."""
        return (self.last.headline if self.last else "") or self.why

    @cached_property
    def headline(self) -> str:
        """The most informative line: what is wrong, the expected failure, or metrics; may be empty."""
        if not self.verdict.good:
            return one_line(self.error)
        if self.verdict is Verdict.SKIPPED:
            return self.why if self.over else ""
        if self.xfails:
            return one_line(f"{self.title(self.xfails[0])}: {self.xfails[0].message}")
        return next((one_line(one.message) for one in self.findings if one.check == IN_SHORT), "")

    @property
    def attempt_lines(self) -> list[str]:
        """One line per attempt: verdict, where it ran, reason."""
        return [
            f"attempt {one.number}: {one.verdict.value}, {one.place}"
            + (f" ({why})" if (why := attempt_why(one)) else "")
            for one in self.attempts
        ]

    @property
    def skips(self) -> list[str]:
        """Reasons why the cell, or some of its steps, were skipped."""
        if self.verdict is Verdict.SKIPPED:
            return [one_line(self.reason) or "no reason given"] if self.over else []
        skipped = (finding for finding in self.findings if finding.verdict is Verdict.SKIPPED)
        return [f"{one_line(step_title(one))}: {one_line(one.message) or 'no reason given'}" for one in skipped]

    @property
    def news_text(self) -> str:
        return cell_news_text(self.result)

    @property
    def past(self) -> list[tuple[str, str]]:
        """Its runs, oldest first, including this one: a verdict or `flaky`, and a description. Empty without earlier
        runs."""
        if self.news is None or not self.news.past:
            return []
        results = self._run.results
        runs = results.past_runs
        known = [(outcome, runs[place]) for place, outcome in self.news.past if 0 <= place < len(runs)]
        now = Moment(results.run, results.started_s, results.commit)
        known.append(("flaky" if self.flaky else self.verdict.value, now))
        return [(outcome, f"{outcome}, {moment_text(when)}") for outcome, when in known]

    @cached_property
    def histories(self) -> "list[SeriesView]":
        """The past of metrics for the first screen: those that the kind names, and those outside their bounds."""
        named = [one.metric for one in self.charts if isinstance(one, History)]
        named += [one.check.partition(" ")[2] for one in self.bad_findings if one.step == METRICS]
        found = self._run.series.series if self._run.series and named else []
        own = {one.metric: one for one in found if one.benchmark == self.benchmark and one.points}
        return [own[metric] for metric in dict.fromkeys(named) if metric in own]

    @property
    def first_charts(self) -> bool:
        """Whether it has something for the first screen."""
        return bool(self.tiles or any(getattr(one, "first", False) for one in self.charts) or self.histories)

    @cached_property
    def packages(self) -> dict[str, str]:
        found: object = next((finding.data["packages"] for finding in self.findings if "packages" in finding.data), {})
        return {str(name): str(version) for name, version in sorted(found.items())} if isinstance(found, dict) else {}

    @cached_property
    def metrics(self) -> list[Metric]:
        return list(flatten_metrics(self.result.metrics))

    @property
    def leading_metric(self) -> Metric | None:
        """The first metric that has a direction."""
        return next((metric for metric in self.metrics if metric.better), None)

    @property
    def rerun(self) -> str:
        """The command that reruns this cell."""
        return self._run.rerun(f"--select /{self.hash}")

    def details(self) -> "CellDetails":
        """Not cached: the samples of thousands of cells would stay in memory."""
        below = f"cells/{self.hash}/{self.last.number if self.last else 1}"
        base = self._run.base.rstrip("/")
        return CellDetails(self._run.folder / below, f"{base}/{below}" if base else below, self.parts)


@dataclass(frozen=True)
class CellDetails:
    """The folder of a cell's last attempt, read on first use. `observed` is empty if files are missing or broken."""

    folder: Path
    base: str  # path or URL of the folder as seen from the report, without a final slash
    parts: list[str]  # as `CellView.parts`

    @cached_property
    def observed(self) -> dict[str, Observation]:
        """By part; `""` for a single job."""
        try:
            return {
                part.rstrip("/"): read_json(self.folder / part / "observation.json", Observation) for part in self.parts
            }
        except (OSError, Unreadable):
            return {}

    @cached_property
    def steps(self) -> dict[str, ObservedStep]:
        return {step.name: step for one in self.observed.values() for step in one.steps}

    def step_seconds(self, step: str) -> float | None:
        passes = {f"{notebook.step} {one.name}": one.seconds for notebook in self.notebooks for one in notebook.passes}
        return self.steps[step].seconds if step in self.steps else passes.get(step)

    @cached_property
    def notebooks(self) -> list[NotebookView]:
        return [notebook_view(step) for step in self.steps.values() if step.kind == "notebook"]

    @cached_property
    def peak_memory_bytes(self) -> int | None:
        return max((step.peak_memory_bytes for step in self.steps.values() if step.peak_memory_bytes), default=None)

    @property
    def used(self) -> list[str]:
        """CPU time and peak memory, if known."""
        cpu_s = [step.cpu_s for step in self.steps.values() if step.cpu_s is not None]
        cpu = [f"{duration_text(sum(cpu_s))} CPU"] if cpu_s else []
        return cpu + ([f"peak {size_text(self.peak_memory_bytes)}"] if self.peak_memory_bytes else [])

    @cached_property
    def logs(self) -> list[str]:
        """Paths of its logs, one per part that has one."""
        names = [f"{part}log.txt" for part in self.parts]
        return [f"{self.base}/{name}" for name in names if (self.folder / name).is_file()]

    @cached_property
    def kept(self) -> list[str]:
        """Files that its jobs kept, relative to `base`; at most 200."""
        names = []
        for part in self.parts:
            for place, folders, files in os.walk(self.folder / part / "files"):
                folders.sort()
                names += [str((Path(place) / name).relative_to(self.folder)) for name in sorted(files)]
                if len(names) > 200:
                    break
        return names[:200]

    def log_tail(self) -> str:
        """The last lines of its logs, with a heading per part if there are several."""
        return "\n".join(f"== {part}\n{text}" if part else text for part, text in self.log_tails().items())

    def log_tails(self) -> dict[str, str]:
        """By part, for parts that have a log."""
        tails = {part.rstrip("/"): _tail(self.folder / part / "log.txt") for part in self.parts}
        return {part: text for part, text in tails.items() if text}


def step_title(finding: Finding) -> str:
    return "metrics" if finding.step == METRICS else finding.step


def attempt_why(attempt: AttemptResult) -> str:
    """Empty if it passed."""
    return "" if attempt.verdict.good else one_line(attempt.why or attempt.exit.message)


def _tail(path: Path) -> str:
    """Empty if the file is not a regular one: a job could have replaced it by a link or a pipe."""
    try:
        with opened_regular(path) as found, open(found, "rb", closefd=False) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - LOG_TAIL_BYTES))
            text = file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.partition("\n")[2] if end > LOG_TAIL_BYTES else text


def url(path: str) -> str:
    """Also for paths that are not UTF-8."""
    return quote(os.fsencode(path), safe="/.-_~")
