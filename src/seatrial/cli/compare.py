"""`seatrial compare`: what moved between two runs."""

import json
from pathlib import Path

import click

from seatrial.api import find
from seatrial.cli.common import HISTORY, RUNS, fail, history_of, print_lines, say
from seatrial.job import RunResults
from seatrial.record.history import History, HistoryError, Series
from seatrial.record.results import read_results
from seatrial.report.terminal.comparison import compare_lines
from seatrial.report.view.compare import compare_runs, comparison_json
from seatrial.report.view.series import POINTS_SHOWN


@click.command()
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@click.option("--all", "all_metrics", is_flag=True, help="Also metrics that are not judged.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@RUNS
@HISTORY
def command(before: str, after: str, all_metrics: bool, as_json: bool, runs: Path, history: str | None) -> None:
    """Say what moved from the first RUN to the second, and how sure that is. A RUN is an id, its beginning, a path, the
    URL of a copy, or `last`.

    Ends with 0 when they could be compared, whatever came of it.
    """
    first, second = _results(runs, before), _results(runs, after)
    found = compare_runs(first, second, _past(history_of(runs, history), second, all_metrics), all_metrics)
    if as_json:
        click.echo(json.dumps(comparison_json(found), indent=1, ensure_ascii=False))
        return

    print_lines(compare_lines(found))


def _results(runs: Path, name: str) -> RunResults:
    path = Path(name)
    try:
        direct = path.parent if path.name == "results.json" else path
        folder = direct if (direct / "results.json").is_file() else find(runs, name).path
        return read_results(folder)
    except (OSError, ValueError) as error:
        fail(f"there is no run {name[:80]!r}: {error}")


def _past(history: History, results: RunResults, all_metrics: bool) -> list[Series]:
    """Where noise is taken from. Without it single runs cannot be told apart, but all else can."""
    try:
        return history.filled(history.names(run=results.run, judged=not all_metrics), POINTS_SHOWN)
    except HistoryError as error:
        say(f"compared without the history: {error}")
        return []
