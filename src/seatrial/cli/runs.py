"""`seatrial runs`: the runs that are there."""

import asyncio
import time
from pathlib import Path

import click

from seatrial.cli.common import RUNS, duration, loaded, print_json, print_lines, say
from seatrial.job import ExitCode
from seatrial.record import run_overviews
from seatrial.report.terminal.history import runs_lines


@click.command()
@click.option("--last", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@RUNS
def command(last: int, as_json: bool, runs: Path) -> None:
    """List runs, the newest first: what each came to, or how far it is and who works on it."""
    found, there = run_overviews(runs, last)
    if as_json:
        print_json({"runs": found, "there": there})
    elif not found:
        click.echo(f"there are no runs in {runs} yet: `seatrial run SUITE` makes one")
    else:
        print_lines(runs_lines(found, there))


# `seatrial reap`: removes what runs left behind.


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--suite", type=click.Path(path_type=Path), help="Look on the targets of this suite, too; default: this machine."
)
@click.option("--target", metavar="T", help="Look on this one only: of the suite, a kind, kind:key=value,… or a file.")
@click.option("--older-than", "older", metavar="TIME", help="Only what was created longer ago: 90s, 2h, 1d.")
@click.option("--running", is_flag=True, help="Also what still runs and was submitted by a machine that may be asleep.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def reap_command(
    runs: tuple[str, ...], suite: Path | None, target: str | None, older: str | None, running: bool, dry_run: bool
) -> None:
    """Remove the jobs of RUNs, or of all runs that no process works on. They are found by their label alone."""

    from seatrial.engine import reap
    from seatrial.engine.verify import chosen_targets

    now_s = time.time()
    older_s = duration(older) if older else 0.0
    wanted = chosen_targets(loaded(suite) if suite else None, target)
    reaping = asyncio.run(reap(wanted, runs, older_s, now_s, dry_run, running))
    for one in reaping.reaped:
        what = "left, its run goes on" if one.in_use else "would be removed" if dry_run else "removed"
        if one.asleep:
            what = "left, it still runs and its machine may be asleep (--running removes it)"
        what = f"could not be removed ({one.problem})" if one.problem else what
        state = "running" if one.found.alive else "ended"
        click.echo(f"{what}: {one.found.handle} ({state}, {max(0.0, now_s - one.found.created_s):.0f} s old)")
    for name, why in reaping.unreached.items():
        say(f"nothing is known of target {name}: {why}")
    if not reaping.reaped and reaping.done:
        click.echo("nothing was found")
    if not reaping.done:
        raise SystemExit(ExitCode.INFRA)
