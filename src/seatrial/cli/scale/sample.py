"""`seatrial scale sample` and `seatrial scale plot`: replace Run:ai's sampler.py and plotter.py."""

from collections import Counter
from pathlib import Path

import click

from seatrial import SeatrialError
from seatrial.cli.common import fail
from seatrial.cli.scale.access import FOLDER, NAMESPACE, TYPE, access, on_cluster, project_option
from seatrial.extras import install_command
from seatrial.migrate.runai.files import NAMESPACE_PREFIX, SAMPLED_FILE, TIMES_FILE, write_file
from seatrial.migrate.runai.plot import captions, draw, shown_milestones
from seatrial.migrate.runai.sample import backend_times, sampled, take_snapshot
from seatrial.migrate.runai.times import ALL_SAMPLED_FILE, ERROR, compatible_entries, csv_text, metrics_of, read_folder
from seatrial.record import write_whole
from seatrial.report.view.words import listed


@click.command(short_help="Write the progress of each workload to sampled.json.")
@FOLDER
@TYPE
@project_option("-p", "--project")
@click.option(
    "--events/--no-events", default=True, show_default=True,
    help="Also read the namespace's events, for eviction and volume times and for times more precise than 1 s.",
)  # fmt: skip
@click.option(
    "--backend", metavar="URL", envvar="SEATRIAL_BACKEND",
    help="Control plane database, postgresql://USER@HOST/DATABASE; password from PGPASSWORD or ~/.pgpass.",
)  # fmt: skip
@click.option(
    "--compatible/--no-compatible", "is_compatible", default=True, show_default=True,
    help="Write only complete workloads to sampled.json, as Run:ai's tool does; sampled-all.json has all.",
)  # fmt: skip
@click.option("--backend-cluster", metavar="UUID", help="Cluster, if the control plane has several.")
@NAMESPACE
@access
def sample(
    folder: Path, workload_type: str, project: str, events: bool, is_compatible: bool, backend: str | None,
    backend_cluster: str | None, namespace: str | None, kubeconfig: Path | None, context: str | None,
) -> None:  # fmt: skip
    """Write the progress of each workload to sampled.json. Can be run at any time, repeatedly and from any machine."""
    if not folder.is_dir():
        fail(f"folder not found: {folder}; use the folder of `seatrial scale submit`, or create one")
    where = namespace or f"{NAMESPACE_PREFIX}{project}"
    try:
        known = backend_times(backend, project, workload_type, backend_cluster) if backend else {}
    except SeatrialError as error:
        fail(f"cannot use the control plane database: {error}; to sample without its times, omit --backend", 3)
    seen = on_cluster(kubeconfig, context, where, 8, lambda client: take_snapshot(client, workload_type, events, known))
    found = sampled(seen)
    files: dict[str, object] = {SAMPLED_FILE: found}
    if is_compatible:
        files = {SAMPLED_FILE: compatible_entries(found), ALL_SAMPLED_FILE: found}
    for name, content in files.items():
        write_file(folder / name, content)
    for remark in seen.remarks:
        click.echo(f"seatrial: {remark}", err=True)
    counts = f"{len(seen.jobs):,} jobs, {len(seen.pods):,} pods, {len(seen.groups):,} pod groups"
    click.echo(f"{where}: {len(found):,} {workload_type} workloads, {counts}, {len(seen.events):,} events")
    waiting = sum(one.pod_scheduling_decision_timestamp is None for one in found)
    unschedulable = sum(one.pod_scheduling_decision == "unschedulable" for one in found)
    click.echo(f"{waiting:,} waiting for a scheduling decision, {unschedulable:,} declared unschedulable")
    if backend:
        absent = sum(one.backend_job_created_timestamp is None for one in found)
        click.echo(f"{len(found) - absent:,} known to the control plane, {absent:,} unknown")
    written = " and ".join(str(folder / name) for name in files)
    click.echo(f"wrote {written}; next: seatrial scale plot -o {folder}")


@click.command(short_help="Write times.csv and a plot.")
@FOLDER
@click.option(
    "--plot", "plot_type", type=click.Choice(["general", "detailed"]), default="general", show_default=True,
    help="general: a chart per stage; detailed: with submission times and a histogram per stage.",
)  # fmt: skip
@click.option(
    "--skip-errors/--no-skip-errors", default=True, show_default=True,
    help="Skip workloads with impossible times, such as a pod group older than its first pod.",
)  # fmt: skip
@click.option("--head", type=click.IntRange(min=1), help="Only the first N submitted workloads.")
@click.option("--tail", type=click.IntRange(min=1), help="Only the last N of those.")
def plot(folder: Path, plot_type: str, skip_errors: bool, head: int | None, tail: int | None) -> None:
    """Write times.csv and a plot from submitted.json and sampled.json, including those of Run:ai's own tool.

    Shows every submitted workload, including those without a pod and those rejected by the server.
    """
    joined = read_folder(folder)
    write_whole(folder / TIMES_FILE, csv_text(joined.rows).encode())
    errors = [row.name for row in joined.rows if row.state == ERROR]
    rows = [row for row in joined.rows if row.state != ERROR] if skip_errors else list(joined.rows)
    rows = rows[:head]
    rows = rows[-tail:] if tail else rows
    if not rows:
        fail("no data: submitted.json has no workload to show", 1)
    picture = folder / f"{plot_type}.png"
    try:
        draw(rows, plot_type, picture)
    except ModuleNotFoundError as error:
        install = f"run `{install_command('plot')}`"
        fail(f"{picture} needs matplotlib ({error}); {install}; wrote {folder / TIMES_FILE}")
    for milestone in shown_milestones(rows, plot_type):
        metrics = metrics_of(rows, milestone.name)
        text = ", ".join(filter(None, captions(metrics)))
        click.echo(f"{milestone.name} from {milestone.reference} ({metrics.count}): {text}")
    states = Counter(row.state for row in joined.rows)
    click.echo(", ".join(f"{count} {state}" for state, count in sorted(states.items())))
    if joined.strangers:
        some = listed(joined.strangers, 5)
        click.echo(f"not shown: {len(joined.strangers)} sampled workloads missing from submitted.json: {some}")
    if errors:
        what = f"with impossible times {'skipped' if skip_errors else 'shown'}"
        click.echo(f"{len(errors)} of {len(joined.rows)} workloads {what}: {listed(errors, 5)}")
    click.echo(f"wrote {folder / TIMES_FILE} and {picture}")
