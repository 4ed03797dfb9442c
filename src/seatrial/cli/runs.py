"""`seatrial runs`: lists runs. `seatrial reap`: deletes jobs that runs left behind."""

import asyncio
import time
from pathlib import Path

import click

from seatrial.cli.common import RUNS, duration, loaded, print_json, print_lines, say
from seatrial.job import ExitCode
from seatrial.record import run_overviews
from seatrial.report.terminal.history import runs_lines


@click.command()
@click.option("--last", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="Show the last N.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@RUNS
def command(last: int, as_json: bool, runs: Path) -> None:
    """List runs, newest first, with their results, or their progress and the process that owns them."""
    found, there = run_overviews(runs, last)
    if as_json:
        print_json({"runs": found, "there": there})
    elif not found:
        click.echo(f"no runs in {runs} yet; start one with `seatrial run SUITE`")
    else:
        print_lines(runs_lines(found, there))


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--suite", type=click.Path(path_type=Path), help="Search this suite's targets.  [default: this machine]")
@click.option("--target", metavar="T", help="Only this target: a name in the suite, kind, kind:key=value,… or file.")
@click.option("--older-than", "older", metavar="TIME", help="Only jobs created longer ago than this: 90s, 2h, 1d.")
@click.option("--running", is_flag=True, help="Also delete running jobs of machines that stopped responding.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted without deleting it.")
def reap_command(
    runs: tuple[str, ...], suite: Path | None, target: str | None, older: str | None, running: bool, dry_run: bool
) -> None:
    """Delete the jobs of the given RUNs or, without RUN, jobs left by runs that are no longer in progress."""

    from seatrial.engine import reap
    from seatrial.engine.verify import chosen_targets

    now_s = time.time()
    older_s = duration(older) if older else 0.0
    wanted = chosen_targets(loaded(suite) if suite else None, target)
    reaping = asyncio.run(reap(wanted, runs, older_s, now_s, dry_run, running))
    for one in reaping.reaped:
        what = "kept: its run is in progress" if one.in_use else "would delete" if dry_run else "deleted"
        if one.asleep:
            what = "kept: still running on a machine that may be asleep; use --running to delete the job"
        what = f"cannot delete: {one.problem}" if one.problem else what
        state = "running" if one.found.alive else "ended"
        if user := one.found.user:
            state, what = f"job of user {user}", "kept: only that user can see whether it is running, and delete it"
        click.echo(f"{one.found.handle} ({state}, {max(0.0, now_s - one.found.created_s):.0f} s old): {what}")
    for name, why in reaping.unreached.items():
        say(f"cannot search target {name}: {why}")
    if not reaping.reaped and reaping.done:
        click.echo("nothing to delete")
    if not reaping.done:
        raise SystemExit(ExitCode.INFRA)
