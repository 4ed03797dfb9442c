"""`seatrial compare`: shows what changed between two runs."""

from pathlib import Path

import click

from seatrial.api import find
from seatrial.cli.common import HISTORY, RUNS, complete_run, fail, history_of, print_json, print_lines, say
from seatrial.job import RunResults
from seatrial.record.folder import read_results
from seatrial.record.history import History, HistoryError, Series
from seatrial.report.terminal.comparison import compare_lines
from seatrial.report.view.compare import RunPair, comparison_json
from seatrial.report.view.series import POINTS_SHOWN


@click.command()
@click.argument("before", metavar="RUN", shell_complete=complete_run)
@click.argument("after", metavar="RUN", shell_complete=complete_run)
@click.option("--all", "all_metrics", is_flag=True, help="Also show metrics that are not checked.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@RUNS
@HISTORY
def command(before: str, after: str, all_metrics: bool, as_json: bool, runs: Path, history: str | None) -> None:
    """Show what changed from the first RUN to the second, and how certain it is. RUN is an id or prefix, a path, the
    URL of a copy, or `last`.

    Exits 0 if the runs could be compared, whatever changed.
    """
    first, second = _results(runs, before), _results(runs, after)
    past = _past(history_of(runs, history), second, all_metrics)
    found = RunPair(first, second, all_metrics).compare(past)
    if as_json:
        print_json(comparison_json(found))
    else:
        print_lines(compare_lines(found))


def _results(runs: Path, name: str) -> RunResults:
    path = Path(name)
    try:
        direct = path.parent if path.name == "results.json" else path
        folder = direct if (direct / "results.json").is_file() else find(runs, name).path
        return read_results(folder)
    except (OSError, ValueError) as error:
        fail(f"run not found: {name[:80]!r}: {error}")


def _past(history: History, results: RunResults, all_metrics: bool) -> list[Series]:
    """Past series, to estimate noise. Without them, metrics of single runs cannot be compared; all else can."""
    try:
        return history.filled(history.names(run=results.run, judged=not all_metrics), POINTS_SHOWN)
    except HistoryError as error:
        say(f"compared without the history: {error}")
        return []
