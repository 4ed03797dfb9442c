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
@NAMESPACE
@access
def sample(
    folder: Path, workload_type: str, project: str, events: bool, namespace: str | None, kubeconfig: Path | None,
    context: str | None,
) -> None:  # fmt: skip
    """Read how far each workload is, and write sampled.json: at any time, from any machine, again and again."""
    import msgspec

    from seatrial.drive.runai.sample import look, sampled
    from seatrial.job.runai import SAMPLED_FILE
    from seatrial.record import write_whole

    if not folder.is_dir():
        fail(f"there is no folder {folder}: name that of `seatrial scale submit`, or make one for the sample alone")
    place = namespace_of(project, namespace)
    seen = on_cluster(kubeconfig, context, place, 8, lambda client: look(client, workload_type, events))
    found = sampled(seen)
    write_whole(folder / SAMPLED_FILE, msgspec.json.format(msgspec.json.encode(found), indent=4) + b"\n")
    for remark in seen.remarks:
        click.echo(f"seatrial: {remark}", err=True)
    counts = f"{len(seen.jobs):,} jobs, {len(seen.pods):,} pods, {len(seen.groups):,} pod groups"
    click.echo(f"{place}: {len(found):,} {workload_type} workloads, {counts}, {len(seen.events):,} events")
    waiting = sum(one.pod_scheduling_decision_timestamp is None for one in found)
    unschedulable = sum(one.pod_scheduling_decision == "unschedulable" for one in found)
    click.echo(f"{waiting:,} wait for a scheduling decision, {unschedulable:,} were declared unschedulable")
    click.echo(f"wrote {folder / SAMPLED_FILE}; next: seatrial scale plot -o {folder}")
