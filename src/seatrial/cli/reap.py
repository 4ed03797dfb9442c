"""`seatrial reap`: removes what runs left behind."""

import time
from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--suite", type=click.Path(path_type=Path), help="Look on the targets of this suite, too; default: this machine."
)
@click.option("--older-than", "older", metavar="TIME", help="Only what was created longer ago: 90s, 2h, 1d.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def command(runs: tuple[str, ...], suite: Path | None, older: str | None, dry_run: bool) -> None:
    """Remove the jobs of RUNs, or of all runs that no living process works on. They are found by their label alone."""
    import asyncio

    from seatrial.cli.options import duration, loaded
    from seatrial.engine import reap

    now_s = time.time()
    seen = asyncio.run(reap(loaded(suite) if suite else None, runs, duration(older) if older else 0.0, now_s, dry_run))
    for one in seen:
        what = "left, its run goes on" if one.in_use else "would be removed" if dry_run else "removed"
        state = "running" if one.found.alive else "ended"
        click.echo(f"{what}: {one.found.handle} ({state}, {now_s - one.found.created_s:.0f} s old)")
    if not seen:
        click.echo("nothing is left")
