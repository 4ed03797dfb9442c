"""`seatrial check`: checks a training job or a load that ran elsewhere by its files, without running anything."""

import shutil
import signal
import tempfile
from pathlib import Path

import click
import msgspec

from seatrial import SeatrialError, __version__
from seatrial.cli.common import HISTORY, RUNS, complete_cell, completed, fail, history_of, loaded, print_lines, warn
from seatrial.cli.report import format_options, write_reports
from seatrial.engine.check_folder import Checked, check_folder, checked_name
from seatrial.job import VERSION, RunResults, flatten_metrics
from seatrial.plan import Selection, expand
from seatrial.plugins import kinds
from seatrial.record.history import HistoryError
from seatrial.record.remote import fetch_folder, is_address
from seatrial.report.terminal.cell import finding_lines
from seatrial.report.terminal.lines import Line, glyph
from seatrial.report.view.run import RunView
from seatrial.report.view.words import one_line
from seatrial.suite import Cell, nearest

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("folder", metavar="DIR|FILE|URL")
@click.option("--suite", required=True, type=_FILE, help="Suite that contains the trial.")
@click.option(
    "--trial", required=True, metavar="TRIAL", help="Training or serving trial with the checks to apply.",
    shell_complete=completed(lambda context: loaded(context.params["suite"]).trials),
)  # fmt: skip
@click.option(
    "--select", multiple=True, metavar="EXPR", shell_complete=complete_cell,
    help="The trial's cell: id glob, axis=value or /hash.",
)  # fmt: skip
@click.option("--log", "logs", multiple=True, type=_FILE, help="Log file; repeat per host.  [default: those in DIR]")
@click.option("--exit-code", type=click.IntRange(0, 255), help="Exit code of the job, if known.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the format of results.json.")
@format_options("junit", "markdown")
@click.option("--record", is_flag=True, help="Add the metrics to the history; replaces those of the same job.")
@click.option("--commit", default="", help="Commit under test, for --record.")
@RUNS
@HISTORY
def command(
    folder: str,
    suite: Path,
    trial: str,
    select: tuple[str, ...],
    logs: tuple[Path, ...],
    exit_code: int | None,
    as_json: bool,
    record: bool,
    commit: str,
    runs: Path,
    history: str | None,
    **files: Path | None,
) -> None:
    """Apply a trial's checks to a job or a load that ran elsewhere. Nothing is run.

    \b
    training  the log and files in DIR or at an fsspec URL
    serving   FILE, the results (JSON) of vllm bench serve, guidellm, AIPerf or inference-perf

    Exit codes are those of `seatrial run`: 0 passed, 1 a check failed or a metric is out of bounds.
    """
    cell, name = _cell(suite, trial, select)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so that the temporary folder and processes are removed
    try:
        with tempfile.TemporaryDirectory(prefix="seatrial-check-") as scratch:
            place = Path(folder)
            if is_address(folder):
                place = Path(scratch)
                steps = [step for part in kinds()[cell.kind].parts(cell) for step in part.job.steps]
                entries = [entry for step in steps if step.kind == "read" for entry in step.args["entries"].values()]
                fetch_folder(folder, [entry["match"] for entry in entries], place)
            checked = check_folder(cell, place, logs, exit_code, folder)
            results = RunResults(
                VERSION,
                checked_name(folder, checked),
                name,
                checked.result.verdict,
                [checked.result],
                suite_path=str(suite),
                started_s=checked.ended_s,
                commit=commit,
                seatrial=__version__,
            )
            write_reports(RunView(results, place), files)
    except (SeatrialError, FileNotFoundError) as error:
        fail(str(error))
    if record:
        past = history_of(runs, history)
        try:
            past.add(results)
        except HistoryError as error:
            fail(f"not recorded: {error}", 3)
        click.echo(f"recorded as {results.run} in {past.location}", err=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results), indent=1).decode())
    else:
        _print(checked, folder)
    raise SystemExit(results.exit_code)


def _cell(suite: Path, trial: str, select: tuple[str, ...]) -> tuple[Cell, str]:
    """Returns the one selected cell, and the suite's name."""
    read = loaded(suite)
    warn([warning for baselines in read.baselines.values() for warning in baselines.warnings], suite)
    if trial not in read.trials:
        fail(f"unknown trial {trial!r} in {suite}{nearest(trial, read.trials)}")
    cells = [cell for cell in expand(read, Selection(select)).cells if cell.trial == trial]
    distinct = {cell.benchmark or cell.id: cell for cell in reversed(cells)}
    if not cells:
        fail(f"trial {trial!r} has no cell to check; run `seatrial plan {suite}` to see why")
    if len(distinct) > 1:
        names = "\n".join(f"  --select '{cell.id}'" for cell in list(reversed(distinct.values()))[:20])
        fail(f"trial {trial!r} has {len(distinct)} cells; choose one:\n{names}")
    return next(iter(distinct.values())), read.name


def _print(checked: Checked, folder: str) -> None:
    columns = min(shutil.get_terminal_size((100, 24)).columns, 140)
    result = checked.result
    mark, colour = glyph(result.verdict.value)
    logs = ", ".join(log.name for log in checked.logs[:4]) + (" …" if len(checked.logs) > 4 else "")
    lines: list[Line] = [
        [(one_line(result.id), "bold"), (f"  {one_line(folder)}{f'  log {one_line(logs)}' if logs else ''}", "dim")]
    ]
    for finding in result.findings:
        lines += finding_lines(finding, one_line(f"{finding.step} ({finding.check})"), None, columns)
    lines += [[]] if result.metrics else []
    for metric in flatten_metrics(result.metrics):
        measured, source = f"{metric.value:.6g} {metric.unit}".rstrip(), one_line(metric.source)
        lines.append([(f"    {one_line(metric.name)} ", ""), (measured, "bold"), (f"  {source}", "dim")])
    lines += [[("─" * columns, "dim")], [(f"{mark} {result.verdict.value}", f"bold {colour}")]]
    print_lines(lines)
