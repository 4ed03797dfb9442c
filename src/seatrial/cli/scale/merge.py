"""`seatrial scale merge`: merges scale trials that loaded one cluster at the same time."""

from pathlib import Path

import click

from seatrial.api import find
from seatrial.cli.common import RUN, RUNS, cells_of, fail, print_json
from seatrial.job import Unreadable, Verdict, convert
from seatrial.job.plan import PlannedCell
from seatrial.kinds.scale.driver.merge import Merged, merge_shards, read_shard
from seatrial.kinds.scale.model import NONE, parse_scale_bound
from seatrial.kinds.scale.work import ScaleWork, broken_scale_bounds
from seatrial.record import RunFolder

_PART = "driver"


@click.command(short_help="Merge concurrent scale trials.")
@RUN
@RUNS
@click.option("--select", metavar="EXPR", help="Only cells that match an id glob, axis=value or /hash.")
@click.option(
    "--bound", "bounds", multiple=True, metavar="METRIC=VALUE",
    help="Bound to check, such as scheduled.p99=30s; repeatable. failed=0 and unfinished=0 unless given.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def merge(run: str, runs: Path, select: str | None, bounds: tuple[str, ...], as_json: bool) -> None:
    """Merge the timestamps of RUN's concurrent scale trials, and check bounds on the total.

    Exits 1 if a bound is broken or one of the trials is not valid.
    """
    try:
        given = {**NONE, **dict(one.partition("=")[::2] for one in bounds)}
        wanted = tuple(parse_scale_bound(name, value) for name, value in given.items())
    except ValueError as error:
        fail(f"--bound: {error}")
    folder = find(runs, run)
    cells = cells_of(folder, select)
    works = _works(folder, cells)
    if not works:
        fail(f"nothing to merge: {folder.run} has no scale trial with results")
    try:
        merged = merge_shards((read_shard(files, work) for files, work in works.items()), wanted)
    except (Unreadable, ValueError) as error:
        fail(f"cannot merge these trials: {error}; choose some with --select")
    doubts = _doubts(folder, cells)
    broken, _ = broken_scale_bounds(wanted, merged.whole, merged.stages)  # each shard has checked its own errors
    if as_json:
        print_json(
            {"drivers": len(works), "whole": merged.whole, "stages": merged.stages, "broken": broken, "doubts": doubts}
        )
    else:
        _print(merged, len(works), broken, doubts)
    if broken or doubts:
        raise SystemExit(1)


def _works(folder: RunFolder, cells: list[PlannedCell]) -> dict[Path, ScaleWork]:
    """The work of each cell's load generator in its last attempt, by the folder of its files. Skips cells that have
    no load generator."""
    found = {}
    for cell in cells:
        attempts = [int(path.name) for path in (folder.path / "cells" / cell.hash).glob("*") if path.name.isdigit()]
        place = folder.attempt(cell.hash, max(attempts, default=1), _PART)
        if not (place / "job.json").exists():
            continue
        try:
            (step,) = folder.read_part(cell.hash, max(attempts), _PART).job.steps
            if step.args.get("kind") != "scale":
                continue
            work = convert(step.args.get("work"), ScaleWork)
        except (Unreadable, ValueError) as error:
            fail(f"{cell.id}: cannot read its job: {error}", 3)
        if work.find is not None:
            fail(f"cannot merge {cell.id}: it searches a limit and has no single rate; leave it out with --select")
        found[place / "files"] = work
    return found


def _doubts(folder: RunFolder, cells: list[PlannedCell]) -> list[str]:
    """Findings that make the merged result unreliable."""
    results = folder.read_results()
    if results is None:
        return [f"the run has no results yet; finish it with `seatrial attach {folder.run}`"]
    chosen, broke = {cell.hash for cell in cells}, (_PART, Verdict.FAILED)
    return [
        f"{cell.id}: {finding.message}"
        for cell in results.cells
        if cell.hash in chosen
        for finding in cell.findings
        if finding.verdict in (Verdict.INVALID, Verdict.INFRA) or (finding.check, finding.verdict) == broke
    ]


def _print(merged: Merged, shards: int, broken: list[str], doubts: list[str]) -> None:
    whole = merged.whole
    rate = "" if whole.rate is None else f", {whole.rate:.1f} per second"
    generators = f"{shards} load generator{'s' * (shards != 1)}"
    click.echo(f"{generators}: {whole.submitted:,} of {whole.count:,} workloads created{rate}")
    click.echo(f"{whole.failed:,} failed, {whole.unfinished:,} unfinished, {whole.refused:,} error responses")
    widest = max((len(stage.name) for stage in merged.stages), default=0)
    for stage in merged.stages:
        known = ", ".join(f"{one.name} {one.text}" for one in stage.quantiles)
        counts = f"{stage.reached:,} of {stage.count:,}, {stage.unfinished:,} unfinished, {stage.censored:,} inexact"
        click.echo(f"{stage.name:{widest}}  {known} ({counts})")
    for text in broken:
        click.echo(f"broken: {text}")
    for text in doubts:
        click.echo(f"unreliable: {text}")
