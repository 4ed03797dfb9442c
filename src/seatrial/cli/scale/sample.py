"""`seatrial scale sample`: as sampler.py."""

from pathlib import Path

import click

from seatrial import SeatrialError
from seatrial.cli.common import fail
from seatrial.cli.scale.access import FOLDER, NAMESPACE, TYPE, access, on_cluster, project_option
from seatrial.migrate.runai.files import NAMESPACE_PREFIX


@click.command(short_help="Write sampled.json: how far each workload is.")
@FOLDER
@TYPE
@project_option("-p", "--project")
@click.option(
    "--events/--no-events", default=True, show_default=True, help="Times of evictions, volumes, and below 1 s."
)
@click.option(
    "--backend", metavar="URL", envvar="SEATRIAL_BACKEND",
    help="Database of the control plane, postgresql://USER@HOST/DATABASE; the password of PGPASSWORD or ~/.pgpass.",
)  # fmt: skip
@click.option("--backend-cluster", metavar="UUID", help="Of a control plane of several clusters, this one.")
@NAMESPACE
@access
def sample(
    folder: Path, workload_type: str, project: str, events: bool, backend: str | None, backend_cluster: str | None,
    namespace: str | None, kubeconfig: Path | None, context: str | None,
) -> None:  # fmt: skip
    """Read how far each workload is, and write sampled.json: at any time, from any machine, again and again."""
    import msgspec

    from seatrial.migrate.runai.files import SAMPLED_FILE
    from seatrial.migrate.runai.sample import backend_times, sampled, take_snapshot
    from seatrial.record import write_whole

    if not folder.is_dir():
        fail(f"there is no folder {folder}: name that of `seatrial scale submit`, or make one for the sample alone")
    place = namespace or f"{NAMESPACE_PREFIX}{project}"
    try:
        known = backend_times(backend, project, workload_type, backend_cluster) if backend else {}
    except SeatrialError as error:
        fail(f"the database of the control plane cannot be used: {error}; without --backend its times are left out", 3)
    seen = on_cluster(kubeconfig, context, place, 8, lambda client: take_snapshot(client, workload_type, events, known))
    found = sampled(seen)
    write_whole(folder / SAMPLED_FILE, msgspec.json.format(msgspec.json.encode(found), indent=4) + b"\n")
    for remark in seen.remarks:
        click.echo(f"seatrial: {remark}", err=True)
    counts = f"{len(seen.jobs):,} jobs, {len(seen.pods):,} pods, {len(seen.groups):,} pod groups"
    click.echo(f"{place}: {len(found):,} {workload_type} workloads, {counts}, {len(seen.events):,} events")
    waiting = sum(one.pod_scheduling_decision_timestamp is None for one in found)
    unschedulable = sum(one.pod_scheduling_decision == "unschedulable" for one in found)
    click.echo(f"{waiting:,} wait for a scheduling decision, {unschedulable:,} were declared unschedulable")
    if backend:
        absent = sum(one.backend_job_created_timestamp is None for one in found)
        click.echo(f"{len(found) - absent:,} are known to the control plane, {absent:,} are not")
    click.echo(f"wrote {folder / SAMPLED_FILE}; next: seatrial scale plot -o {folder}")


# `seatrial scale plot`: as plotter.py.


@click.command(short_help="Write times.csv and a plot of both files.")
@FOLDER
@click.option("--plot", "plot_type", type=click.Choice(["general", "detailed"]), default="general", show_default=True)
@click.option(
    "--skip-errors/--no-skip-errors", default=True, show_default=True,
    help="Without workloads whose times cannot be: a pod group older than its first pod.",
)  # fmt: skip
@click.option("--head", type=click.IntRange(min=1), help="Only so many, the first that were submitted.")
@click.option("--tail", type=click.IntRange(min=1), help="Only so many, the last of those.")
def plot(folder: Path, plot_type: str, skip_errors: bool, head: int | None, tail: int | None) -> None:
    """Write times.csv and the plot, from submitted.json and sampled.json, also of Run:ai's own tool.

    Every workload that was submitted is shown: also one that never got a pod, or that the server refused.
    """
    from collections import Counter

    from seatrial.migrate.runai.files import TIMES_FILE
    from seatrial.migrate.runai.plot import caption, draw, shown_milestones
    from seatrial.migrate.runai.times import ERROR, csv_text, metrics_of, read_folder
    from seatrial.record import write_whole

    joined = read_folder(folder)
    write_whole(folder / TIMES_FILE, csv_text(joined.rows).encode())
    errors = [row.name for row in joined.rows if row.state == ERROR]
    rows = [row for row in joined.rows if row.state != ERROR] if skip_errors else list(joined.rows)
    rows = rows[:head]
    rows = rows[-tail:] if tail else rows
    if not rows:
        fail("no data: submitted.json has no workload that could be shown", 1)
    picture = folder / f"{plot_type}.png"
    try:
        draw(rows, plot_type, picture)
    except ModuleNotFoundError as error:
        fail(f"{picture} needs matplotlib ({error}): pip install 'seatrial[plot]'; {folder / TIMES_FILE} is written")
    for milestone in shown_milestones(rows, plot_type):
        metrics = metrics_of(rows, milestone.name)
        click.echo(f"{milestone.name} from {milestone.reference} ({metrics.count}): {caption(metrics)}")
    states = Counter(row.state for row in joined.rows)
    click.echo(", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    if joined.strangers:
        some = _some(joined.strangers)
        click.echo(f"{len(joined.strangers)} sampled workloads are not in submitted.json, and not shown: {some}")
    if errors:
        what = f"have erroneous times and are {'skipped' if skip_errors else 'shown'}"
        click.echo(f"{len(errors)} of {len(joined.rows)} workloads {what}: {_some(errors)}")
    click.echo(f"wrote {folder / TIMES_FILE} and {picture}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
