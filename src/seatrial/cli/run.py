"""`seatrial run`: runs a suite."""

from pathlib import Path
from typing import Any

import click

from seatrial.api import prepare
from seatrial.cli.common import (
    AGAINST,
    HISTORY,
    RUNS,
    SELECTING,
    compared_with,
    complete_run,
    fail,
    history_of,
    plan_of,
    say,
)
from seatrial.cli.common.copies import NOTIFY, checked_notify, checked_out
from seatrial.record import RecordError, remote


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), default=Path("seatrial.yaml"))
@SELECTING
@click.option(
    "--failed", metavar="RUN", shell_complete=complete_run, help="Only cells that did not pass in RUN, such as `last`."
)
@click.option(
    "--parallel", type=click.IntRange(min=1),
    help="Cells to run at a time on each target.  [default: the target's `parallel`, else one per CPU, 50 on clusters]",
)  # fmt: skip
@click.option(
    "--retries", type=click.IntRange(min=0),
    help="Retry a cell up to this many times if its verdict is in `retry_on`.  [default: the trial's `retries`, or 1]",
)  # fmt: skip
@click.option("--max-failures", type=click.IntRange(min=1), help="Start no more cells once this many have failed.")
@click.option("--detach", is_flag=True, help="Run in the background; see `seatrial attach` and `seatrial cancel`.")
@click.option("--commit", default="", help="Commit under test.  [default: from the CI environment or the checkout]")
@click.option(
    "--out",
    metavar="URL",
    default="",
    envvar="SEATRIAL_OUT",
    help="Copy the run folder into this folder when it has finished: s3://…, gs://… or a path.",
)
@click.option(
    "--strict", is_flag=True,
    help="Exit 2 before anything runs if there are warnings, such as bounds that cannot fail. Also exit 1 if a metric "
    "has no bounds or an open regression.",
)  # fmt: skip
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
    """Run SUITE (default: seatrial.yaml) and show what passed, what failed and why."""
    from seatrial.cli.common.watching import detached, run_shown
    from seatrial.engine import RunOptions

    out = checked_out(out)
    notify = checked_notify(notify)
    before = compared_with(runs, against) if against else None
    plan = plan_of(suite, runs, failed=failed, history=history, strict=strict, **chosen)
    options = RunOptions(parallel, retries, max_failures, max_cost, commit, out, strict)
    prepared = prepare(plan, runs, options, before)
    for rule in prepared.plan.unmatched_rules:
        say(rule)
    try:
        if out:
            remote.begin_copy(prepared.folder, out)
    except RecordError as error:
        fail(f"--out: {error}; nothing was run", 3)
    if detach:
        detached(prepared, runs, history, notify)
        return
    raise SystemExit(run_shown(prepared, history_of(runs, history), notify=notify))
