"""`seatrial scale merge`: several drivers that loaded one cluster side by side, as one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.api import find
from seatrial.cli.common import RUN, RUNS, cells_of, fail, print_json

if TYPE_CHECKING:
    from seatrial.job.plan import PlannedCell
    from seatrial.kinds.scale.driver.merge import Merged
    from seatrial.kinds.scale.work import ScaleWork
    from seatrial.record import RunFolder

_PART = "driver"


@click.command(short_help="Judge scale trials that ran side by side as one.")
@RUN
@RUNS
@click.option("--select", metavar="EXPR", help="Cells by id glob, axis=value or /hash; default: all of the run.")
@click.option(
    "--bound", "bounds", multiple=True, metavar="METRIC=VALUE",
    help="Such as scheduled.p99=30s; repeat for more. Without others, failed=0 and unfinished=0.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def merge(run: str, runs: Path, select: str | None, bounds: tuple[str, ...], as_json: bool) -> None:
    """Merge the stamps of the scale trials of RUN that ran side by side, and judge the whole.

    Exit code 1: a bound is broken, or one of them did not measure what it was meant to.
    """
    from seatrial.job import Unreadable
    from seatrial.kinds.scale.driver.merge import merge_shards, read_shard
    from seatrial.kinds.scale.model import NONE, parse_scale_bound
    from seatrial.kinds.scale.work import broken_scale_bounds

    try:
        given = {**NONE, **dict(one.partition("=")[::2] for one in bounds)}
        wanted = tuple(parse_scale_bound(name, value) for name, value in given.items())
    except ValueError as error:
        fail(f"--bound: {error}")
    folder = find(runs, run)
    cells = cells_of(folder, select)
    works = _works(folder, cells)
    if not works:
        fail(f"{folder.run} has no scale trial that wrote what could be merged")
    try:
        merged = merge_shards(read_shard(files, work) for files, work in works.items())
    except (Unreadable, ValueError) as error:
        fail(f"these trials cannot be merged: {error}; choose some with --select")
    doubts = _doubts(folder, cells)
    broken = broken_scale_bounds(wanted, merged.whole, merged.stages)
    if as_json:
        print_json(
            {"drivers": len(works), "whole": merged.whole, "stages": merged.stages, "broken": broken, "doubts": doubts}
        )
    else:
        _print(merged, len(works), broken, doubts)
    if broken or doubts:
        raise SystemExit(1)


def _works(folder: "RunFolder", cells: "list[PlannedCell]") -> "dict[Path, ScaleWork]":
    """What the driver of the last attempt of each cell was to do, by the folder of the files that it wrote. Cells
    without a driver, or with one of another kind, are left out."""
    from seatrial.job import Unreadable, convert
    from seatrial.kinds.scale.work import ScaleWork

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
            fail(f"{cell.id}: what it was to do cannot be read: {error}", 3)
        if work.find is not None:
            fail(f"{cell.id} searches a limit: there is no one rate to merge it at; leave it out with --select")
        found[place / "files"] = work
    return found


def _doubts(folder: "RunFolder", cells: "list[PlannedCell]") -> list[str]:
    """Why the whole is not to be trusted: a part of it was not."""
    from seatrial.job import Verdict

    results = folder.read_results()
    if results is None:
        return ["the run has no results yet: seatrial attach finishes it"]
    chosen, broke = {cell.hash for cell in cells}, (_PART, Verdict.FAILED)
    return [
        f"{cell.id}: {finding.message}"
        for cell in results.cells
        if cell.hash in chosen
        for finding in cell.findings
        if finding.verdict in (Verdict.INVALID, Verdict.INFRA) or (finding.check, finding.verdict) == broke
    ]


def _print(merged: "Merged", shards: int, broken: list[str], doubts: list[str]) -> None:
    whole = merged.whole
    rate = "" if whole.rate is None else f", {whole.rate:.1f} sent a second"
    click.echo(f"{shards} drivers, {whole.submitted:,} of {whole.count:,} workloads made{rate}")
    click.echo(f"{whole.failed:,} failed, {whole.unfinished:,} unfinished, {whole.refused:,} answers were no success")
    widest = max((len(stage.name) for stage in merged.stages), default=0)
    for stage in merged.stages:
        known = ", ".join(f"{one.name} {one.text}" for one in stage.quantiles)
        counts = f"{stage.reached:,} of {stage.count:,}, {stage.unfinished:,} unfinished, {stage.censored:,} censored"
        click.echo(f"{stage.name:{widest}}  {known} ({counts})")
    for text in broken:
        click.echo(f"broken: {text}")
    for text in doubts:
        click.echo(f"not to be judged: {text}")
