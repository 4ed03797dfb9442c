"""`seatrial scale sample`: as sampler.py."""

from pathlib import Path

import click

from seatrial.cli.options import fail
from seatrial.cli.scale.access import FOLDER, NAMESPACE, TYPE, access, namespace_of, on_cluster, project_option


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
    from seatrial.migrate.runai.objects import BackendError, backend_times
    from seatrial.migrate.runai.sample import sampled, take_snapshot
    from seatrial.record import write_whole

    if not folder.is_dir():
        fail(f"there is no folder {folder}: name that of `seatrial scale submit`, or make one for the sample alone")
    place = namespace_of(project, namespace)
    try:
        known = backend_times(backend, project, workload_type, backend_cluster) if backend else {}
    except BackendError as error:
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
