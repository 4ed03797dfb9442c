"""`seatrial report`: shows a finished run."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from seatrial.api import find
from seatrial.cli.common import AGAINST, RUN, RUNS, cells_of, compared_with, complete_cell, fail, options, say
from seatrial.cli.common.copies import NOTIFY_NOW, checked_notify, notified
from seatrial.job import ExitCode
from seatrial.job.units import count
from seatrial.record import RunFolder, RunState, run_overview, write_whole
from seatrial.record.folder import read_results
from seatrial.report.terminal.summary import print_cells, print_summary
from seatrial.report.view.changes import past_of_run, with_news
from seatrial.report.view.run import RunView
from seatrial.report.view.words import date_text

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
# What the option of each format does. HTML is rendered separately.
_FORMATS = {
    "junit": "Write JUnit XML.",
    "markdown": "Write Markdown for a CI job's summary page.",
    "csv": "Write CSV: one row per cell, with its axes and metrics.",
    "ctrf": "Write a Common Test Report (CTRF JSON).",
    "openmetrics": "Write OpenMetrics for node exporter's textfile collector.",
    "svg": "Write the grid and metrics as an SVG image.",
}


def format_options(*formats: str) -> Callable[..., Any]:
    """An option for each of these formats of a report."""
    return options(*(click.option(f"--{one}", type=_FILE, metavar="FILE", help=_FORMATS[one]) for one in formats))


@click.command()
@RUN
@AGAINST
@NOTIFY_NOW
@RUNS
@click.option(
    "--cell", metavar="CELL", shell_complete=complete_cell,
    help="Show matching cells in full: id, glob, axis=value or /hash.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Show full details of each cell that did not pass.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write the HTML report; - for standard output.")
@format_options(*_FORMATS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the format of results.json.")
def command(
    run: str,
    against: str | None,
    notify: str | None,
    runs: Path,
    cell: str | None,
    verbose: bool,
    html: Path | None,
    as_json: bool,
    **files: Path | None,
) -> None:
    """Show RUN (an id or prefix, a path, the URL of a copy, or `last`): what passed, what failed and why. With --cell,
    show only those cells, in full.

    Exits 0 whatever the run's verdict is; 3 if --notify could not deliver.
    """
    notify = checked_notify(notify)
    found = find(runs, run)
    folder = found.path
    if not found.results.exists():
        _fail_unfinished(found)
    results = read_results(folder)
    if run == "last":  # a later command that exited 2 left no run
        say(f"the last run is {found.run}, started {date_text(results.started_s, timed=True)} UTC")
    if against:
        before = compared_with(runs, against)
        results = with_news(results, past_of_run(before), before.run)
    if cell is not None:
        wanted = {one.id for one in cells_of(found, cell)}
        cells = [one for one in results.cells if one.id in wanted]
        hashes = {one.hash for one in cells}
        causes = [cause for cause in results.causes if not hashes.isdisjoint(cause.cells)]
        results = msgspec.structs.replace(results, cells=cells, excluded=[], causes=causes)
    if as_json:
        _write(Path("-"), msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    if html:
        from seatrial.report.html.page import RunPage

        start = Path.cwd() if html == Path("-") else html.resolve().parent
        _write(html, RunPage(RunView(results, folder, os.path.relpath(folder, start))).html().encode())
    view = RunView(results, folder)
    write_reports(view, files)
    if notify and not notified(notify, results):
        raise SystemExit(3)
    if not (as_json or html or any(files.values()) or notify):
        if cell is not None:
            print_cells(results, folder)
        else:
            print_summary(results, folder, verbose=verbose)


def write_reports(view: RunView, files: Mapping[str, Path | None]) -> None:
    """Writes a report in each requested format; `files` maps each format to its path or None."""
    for form, file in files.items():
        if file:
            module = importlib.import_module(f"seatrial.report.{'picture' if form == 'svg' else form}")
            text = getattr(module, f"render_{form}")(view)
            data = text.encode("utf-8", "replace") if isinstance(text, str) else text
            _write(file, data, whole=form == "openmetrics")


def _fail_unfinished(folder: RunFolder) -> NoReturn:
    found = run_overview(folder)
    text = f"{found.done} of {count(found.cells, 'cell')} done"
    if found.state is RunState.DAMAGED:
        fail(found.why, ExitCode.INFRA)
    if found.owner is not None:
        watch = f"watch it with `seatrial attach {folder.run}`"
        fail(f"{folder.run} is in progress (process {found.owner.pid}): {text}; {watch}")
    fail(f"{folder.run} was interrupted: {text}; resume with `seatrial attach {folder.run}`")


def _write(path: Path, data: bytes, whole: bool = False) -> None:
    """`whole`: replaces the file atomically and makes it readable for all users."""
    if path == Path("-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        write_whole(path, data, mode=0o644) if whole else path.write_bytes(data)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
