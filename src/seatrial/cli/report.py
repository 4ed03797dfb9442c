"""`seatrial report`: shows a run that is over."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import RUNS, fail, find, read_plan

if TYPE_CHECKING:
    from seatrial.record import RunFolder

_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)


@click.command()
@click.argument("run")
@RUNS
@click.option("--html", type=_FILE, metavar="FILE", help="Write the HTML report; - is standard output.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write Markdown, for a CI job's summary page.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON (its schema is in the docs).")
def command(run: str, runs: Path, html: Path | None, junit: Path | None, markdown: Path | None, as_json: bool) -> None:
    """Show RUN (an id, its beginning, a path, or `last`): what passed, what failed and why.

    Ends with 0 when it could be shown, whatever the run's verdict is.
    """
    from seatrial.report.results import ResultsError, read_results

    found = find(runs, run)
    folder = found.path
    if not found.results.exists():
        fail(_unfinished(found))
    try:
        results = read_results(folder)
    except ResultsError as error:
        fail(str(error))
    if as_json:
        import msgspec

        _write(Path("-"), msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    if junit:
        from seatrial.report.junit import render_junit

        _write(junit, render_junit(results, folder))
    if markdown:
        from seatrial.report.markdown import render_markdown

        _write(markdown, render_markdown(results, folder).encode())
    if html:
        from seatrial.report.html.page import render_html

        start = Path.cwd() if html == Path("-") else html.resolve().parent
        _write(html, render_html(results, folder, os.path.relpath(folder, start)).encode())
    if not (as_json or junit or markdown or html):
        from seatrial.report.terminal.summary import print_summary

        print_summary(results, folder)


def _unfinished(folder: "RunFolder") -> str:
    from seatrial.record import JournalError, owner_of, read_journal

    try:
        entries, _ = read_journal(folder.journal) if folder.journal.exists() else ([], 0)
    except JournalError as error:
        return str(error)
    done = len({entry["cell"] for entry in entries if entry["event"] in ("judged", "skipped")})
    text = f"{done} of {len(read_plan(folder)['cells'])} cells are judged"
    owner = owner_of(folder.path)
    if owner and owner.alive():
        return f"{folder.run} is still running (process {owner.pid}): {text}; `seatrial attach {folder.run}` shows it"
    return f"{folder.run} was not finished: {text}; `seatrial attach {folder.run}` finishes it"


def _write(path: Path, data: bytes) -> None:
    if path == Path("-"):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
