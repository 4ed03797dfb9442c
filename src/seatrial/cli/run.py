"""`seatrial run`: runs a suite."""

from pathlib import Path

import click

from seatrial.cli.common import AGAINST, HISTORY, RUNS, check_cost, compared_with, fail, history_at, plan_of, selecting
from seatrial.cli.common.copies import NOTIFY, checked_notify


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@selecting
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
@click.option("--strict", is_flag=True, help="A figure without bounds, or a regression inside them, ends with 1, too.")
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
    select: tuple[str, ...],
    tag: tuple[str, ...],
    pairwise: bool,
    repeat: int | None,
    target: str | None,
    max_cost: float | None,
) -> None:
    """Run SUITE and say what passed, what failed and why."""
    import msgspec

    from seatrial.cli.common.copies import begin_copy_or_fail, checked_out
    from seatrial.cli.execute import detached, execute
    from seatrial.engine import RunOptions, SecretError, commit_of, create
    from seatrial.record import write_whole
    from seatrial.suite import SuiteError

    out = checked_out(out)
    notify = checked_notify(notify)
    before = compared_with(runs, against) if against else None
    suite_read, plan = plan_of(suite, runs, select, tag, pairwise, repeat, failed, history, target)
    max_cost = suite_read.max_cost if max_cost is None else max_cost
    check_cost(plan, max_cost)
    if not plan.cells:
        fail(f"nothing to run: each of the {len(plan.holes):,} combinations is a hole; see `seatrial plan {suite}`")
    commit = commit or commit_of(suite_read.directory)
    options = RunOptions(parallel, retries, max_failures, max_cost, commit, out, strict, before.run if before else "")
    try:
        prepared = create(suite_read, plan, runs, options)
    except (SecretError, SuiteError) as error:
        fail(str(error))
    if before:
        write_whole(prepared.folder.against, msgspec.json.encode(before))
    if out:
        begin_copy_or_fail(prepared.folder, out)
    if detach:
        detached(prepared, runs, history, notify)
        return
    raise SystemExit(execute(prepared, history_at(runs, history), notify=notify))
