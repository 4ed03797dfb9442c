"""What a run that must leave nothing open does not pass with: figures that nothing judged, and regressions that are too
small for their bounds, but not over."""

from collections.abc import Iterable

from seatrial.job import FIGURES, CellResult, RunResults, Verdict, figures
from seatrial.record.history import Series
from seatrial.report.trend.series import with_bound, with_changes

_JUDGED = (Verdict.PASSED, Verdict.SLOWER, Verdict.FASTER, Verdict.FAILED, Verdict.XFAIL, Verdict.XPASS)


def unbounded_figures(results: RunResults) -> list[str]:
    """Figures that say which way is better, and were judged by no bounds; each with the reason."""
    found: dict[str, None] = {}
    for cell in results.cells:
        judged = {f.check: f for f in cell.findings if f.step == FIGURES}
        for figure in figures(cell.metrics):
            finding = judged.get(f"bounds {figure.name}")
            if figure.better and (finding is None or finding.verdict not in _JUDGED):
                why = finding.message if finding else _why_none(cell)
                found[f"{cell.benchmark or cell.id} {figure.name} has no bounds: {why}"] = None
    return list(found)


def _why_none(cell: CellResult) -> str:
    whole = next((f.message for f in cell.findings if f.step == FIGURES and f.check == "bounds"), "")
    return whole or "its trial names no `baseline`, or that has no entry for it"


def open_regressions(series: Iterable[Series]) -> list[str]:
    """Of each series whose level got worse and was not accepted: since which run."""
    views = (with_bound(with_changes(one)) for one in series)
    return [f"{view.name}: a regression is open since run {view.regression}" for view in views if view.regression]
