"""`seatrial run`: runs a suite."""

from pathlib import Path
from typing import Any

import click

from seatrial.api import prepare
from seatrial.cli.common import AGAINST, HISTORY, RUNS, SELECTING, compared_with, fail, history_of, plan_of
from seatrial.cli.common.copies import NOTIFY, checked_notify, checked_out
from seatrial.record import RecordError, remote


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@SELECTING
@click.option("--failed", metavar="RUN", help="Only the cells that did not pass in that run.")
@click.option("--parallel", type=click.IntRange(min=1), help="Cells at a time on each target.")
@click.option("--retries", type=click.IntRange(min=0), help="Further attempts for each class that the trial retries.")
@click.option(
    "--max-failures", type=click.IntRange(min=1), help="Start nothing more after this many cells have failed."
)
@click.option("--detach", is_flag=True, help="Return at once; `seatrial attach` shows it live, `cancel` stops it.")
@click.option("--commit", default="", help="Commit of what is tested; default: what the CI or the checkout says.")
@click.option(
    "--out",
    metavar="URL",
    default="",
    envvar="SEATRIAL_OUT",
    help="Copy the run folder to below this fsspec URL (s3://…, gs://…, a path) when the run is over.",
)
@click.option("--strict", is_flag=True, help="A metric without bounds, or a regression inside them, ends with 1, too.")
@AGAINST
@NOTIFY
@HISTORY
@RUNS
def command(
    suite: Path,
    failed: str | None,
    parallel: int | None,
    retries: int | None,
    max_failures: int | None,
    detach: bool,
    commit: str,
    out: str,
    strict: bool,
    against: str | None,
    notify: str | None,
    runs: Path,
    history: str | None,
    max_cost: float | None,
    **chosen: Any,
) -> None:
    """Run SUITE and say what passed, what failed and why."""
    from seatrial.cli.common.watching import detached, run_shown
    from seatrial.engine import RunOptions

    out = checked_out(out)
    notify = checked_notify(notify)
    before = compared_with(runs, against) if against else None
    plan = plan_of(suite, runs, failed=failed, history=history, **chosen)
    options = RunOptions(parallel, retries, max_failures, max_cost, commit, out, strict)
    prepared = prepare(plan, runs, options, before)
    try:
        if out:
            remote.begin_copy(prepared.folder, out)
    except RecordError as error:
        fail(f"--out: {error}; nothing was run", 3)
    if detach:
        detached(prepared, runs, history, notify)
        return
    raise SystemExit(run_shown(prepared, history_of(runs, history), notify=notify))
