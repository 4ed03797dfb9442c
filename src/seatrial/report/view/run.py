"""What a summary shows and in which order, the same in every form: failures, flaky passes, xfails, skips, holes."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seatrial.job import CELLS_WORST_FIRST, FIGURES, IN_SHORT, Cause, CellResult, Finding, Hole, RunResults, Verdict
from seatrial.job.units import count
from seatrial.report.view.words import one_line


@dataclass(frozen=True)
class RunSummary:
    failures: list[CellResult]  # cells that are not good, worst first
    flaky: list[CellResult]
    xfails: list[tuple[CellResult, Finding]]
    skips: dict[str, int]  # reason -> how many cells and steps
    holes: dict[str, list[Hole]]  # reason -> combinations
    counts: dict[Verdict, int]  # cells by verdict, in CELLS_WORST_FIRST, none that is zero
    unjudged: int = 0  # figures that a baseline should have judged, and did not


def summarize(results: RunResults) -> RunSummary:
    rank = {verdict: place for place, verdict in enumerate(CELLS_WORST_FIRST)}
    counted = dict.fromkeys(CELLS_WORST_FIRST, 0)
    skips: dict[str, int] = {}
    xfails: list[tuple[CellResult, Finding]] = []
    unjudged = 0
    for cell in results.cells:
        counted[cell.verdict] += 1
        if cell.verdict is Verdict.SKIPPED:
            reason = one_line(cell.why) or "no reason given"
            skips[reason] = skips.get(reason, 0) + 1
        for finding in cell.findings:
            if finding.verdict is Verdict.XFAIL:
                xfails.append((cell, finding))
            elif finding.verdict is Verdict.SKIPPED and cell.verdict is not Verdict.SKIPPED:
                reason = f"{one_line(finding.step)}: {one_line(finding.message) or 'no reason given'}"
                skips[reason] = skips.get(reason, 0) + 1
                unjudged += finding.step == FIGURES
    holes: dict[str, list[Hole]] = {}
    for hole in results.holes:
        holes.setdefault(one_line(hole.why) or "no reason given", []).append(hole)
    return RunSummary(
        failures=sorted((cell for cell in results.cells if not cell.verdict.good), key=lambda cell: rank[cell.verdict]),
        flaky=[cell for cell in results.cells if cell.flaky],
        xfails=xfails,
        skips=skips,
        holes=holes,
        counts={verdict: number for verdict, number in counted.items() if number},
        unjudged=unjudged,
    )


MOST_MOVES = 3


def recent_changes(folder: Path) -> list[str]:
    """The newest changes of the run's figures, a sentence for all that moved at one commit."""
    if not (folder / "series.json").is_file():
        return []
    from seatrial.report.view.series import read_series
    from seatrial.report.view.words import change_group_text

    made = read_series(folder)
    return [change_group_text(group) for group in made.together[:MOST_MOVES]] if made else []


def regressions_of_run(folder: Path) -> list[str]:
    """Of the run's figures: since which run a level that got worse was neither accepted nor fixed."""
    if not (folder / "series.json").is_file():
        return []
    from seatrial.report.view.series import read_series

    made = read_series(folder)
    return [
        f"{one_line(view.name)}: a regression is open since run {one_line(view.regression)}"
        for view in (made.series if made else [])
        if view.regression
    ]


def bad_findings(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.verdict.good]


def finding_title(finding: Finding, cell: CellResult) -> str:
    """The step that it is about, and the check where the step has several findings."""
    alone = sum(other.step == finding.step for other in cell.findings) == 1
    return one_line(finding.step if alone else f"{finding.step} ({finding.check})")


def causes_sentence(results: RunResults) -> str:
    """`42 of 299 cells need attention; 4 causes explain 39 of them`; empty where all is well."""
    bad = sum(not cell.verdict.good for cell in results.cells)
    if not bad:
        return ""
    shared = [cause for cause in results.causes if len(cause.cells) > 1]
    head = f"{bad} of {count(len(results.cells), 'cell')} need{'s' if bad == 1 else ''} attention"
    if not shared:
        return head
    explained = {hash_ for cause in shared for hash_ in cause.cells}  # a cell may have several causes
    verb = "explains" if len(shared) == 1 else "explain"
    return f"{head}; {count(len(shared), 'cause')} {verb} {len(explained)} of them"


def cause_place(cause: Cause, results: RunResults) -> str:
    """Where a cause is, as exactly as it is known: `machine=x3: all 10 there, none elsewhere`; of a few cells
    `both cells of machine=x3`, which does not claim that the machine is the reason."""
    if len(cause.cells) == 1:
        known = (cell.id for cell in results.cells if cell.hash == cause.cells[0])
        return one_line(next(known, cause.cells[0]))
    place = ", ".join(f"{one_line(axis)}={one_line(value)}" for axis, value in (cause.place or cause.shared).items())
    if not place:
        all_of = len(cause.cells) == sum(bool(cell.attempts) for cell in results.cells)
        return "every cell" if all_of else "no clear pattern"
    if not cause.place:
        return f"{'both' if len(cause.cells) == 2 else f'all {len(cause.cells)}'} cells of {place}"
    there = f"all {cause.of} there" if cause.there == cause.of else f"{cause.there} of {cause.of} there"
    elsewhere = len(cause.cells) - cause.there
    return f"{place}: {there}, {elsewhere or 'none'} elsewhere"


def rerun_command(results: RunResults, cell: CellResult) -> str:
    """The command that runs just that cell again."""
    moved = f" --target {shlex.quote(results.target)}" if results.target else ""
    return f"seatrial run {shlex.quote(results.suite_path or results.suite)}{moved} --select /{cell.hash}"


def why_of(cell: CellResult) -> str:
    """Why a cell without a bad finding has its verdict: its own reason, or how its last attempt ended."""
    if cell.why:
        return one_line(cell.why)
    if not cell.attempts:
        return "it never started"
    last = cell.attempts[-1]
    return one_line(last.why or last.exit.message) or f"its job ended: {last.exit.outcome.value}"


def describe_attempts(cell: CellResult) -> list[str]:
    """Each attempt: where it ran, what it came to and why."""
    lines = []
    for attempt in cell.attempts:
        why = one_line(attempt.why or attempt.exit.message)
        lines.append(
            f"attempt {attempt.number}: {attempt.verdict.value} at {attempt.place}"
            + (f" ({why})" if why and not attempt.verdict.good else "")
        )
    return lines


def headline_of(cell: CellResult) -> str:
    """The one line that says most of a cell: what is wrong, that it failed as declared, or its figures; or empty."""
    if not cell.verdict.good:
        return one_line(cell.attempts[-1].headline) if cell.attempts and cell.attempts[-1].headline else why_of(cell)
    if cell.verdict is Verdict.SKIPPED:
        return why_of(cell)
    xfails = [finding for finding in cell.findings if finding.verdict is Verdict.XFAIL]
    if xfails:
        return one_line(f"{finding_title(xfails[0], cell)}: {xfails[0].message}")
    return next((one_line(one.message) for one in cell.findings if one.check == IN_SHORT), "")


def told_in_short(results: RunResults) -> dict[str, str]:
    """Of the cells that passed, those whose figures say more than how long it took."""
    passed = {cell.id: headline_of(cell) for cell in results.cells if cell.verdict is Verdict.PASSED}
    return {cell: text for cell, text in passed.items() if text}
