"""`seatrial scale submit`: as submitter.py."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial import SeatrialError
from seatrial.cli.common import fail
from seatrial.cli.scale.access import FOLDER, NAMESPACE, TYPE, access, on_cluster, project_option

if TYPE_CHECKING:
    from seatrial.kubernetes import Kubernetes, Manifest
    from seatrial.migrate.runai.files import SubmittedWorkload
    from seatrial.migrate.runai.submit import Waves

_SHOWN = 5  # reasons of refusals


@click.command(short_help="Submit workloads, and write submitted.json.")
@FOLDER
@TYPE
@click.option("-n", "--num-workloads", "count", type=click.IntRange(min=1), required=True, help="How many.")
@click.option(
    "-p", "--num-processes", "parallel", type=click.IntRange(1, 1000), default=8, show_default=True,
    help="So many in parallel; the next ones when all of these are answered.",
)  # fmt: skip
@click.option("--num-workers", default="1", show_default=True, help="Workers of a distributed workload.")
@click.option("-g", "--num-gpus", default="1", show_default=True, help="GPUs of a pod, also a fraction.")
@click.option(
    "--delay", "delay_s", type=click.FloatRange(min=0), default=0.0, show_default=True,
    help="Seconds between one such group and the next.",
)  # fmt: skip
@project_option("--project")
@click.option("--pvc", is_flag=True, help="With a volume claim: pvc.yaml of the templates.")
@click.option(
    "--templates", type=click.Path(path_type=Path, file_okay=False), default=Path("yaml"), show_default=True,
    help="Folder of training.yaml, distributed.yaml, interactive.yaml and pvc.yaml.",
)  # fmt: skip
@NAMESPACE
@access
def submit(
    folder: Path, workload_type: str, count: int, parallel: int, num_workers: str, num_gpus: str, delay_s: float,
    project: str, pvc: bool, templates: Path, namespace: str | None, kubeconfig: Path | None, context: str | None,
) -> None:  # fmt: skip
    """Submit workloads, and write submitted.json.

    Exit code 1: the server refused some; they are in submitted.json with the reason. What is made stays until
    `seatrial scale clean`.
    """
    import uuid

    from seatrial.migrate.runai.submit import Waves
    from seatrial.targets.kubernetes.owned import workload_labels

    values = {"PROJECT_PLACEHOLDER": project, "NUM_WORKERS_PLACEHOLDER": num_workers, "NUM_GPUS": num_gpus}
    manifest = _manifest(templates / f"{workload_type}.yaml", templates / "pvc.yaml" if pvc else None, values)
    place = namespace or manifest["metadata"].get("namespace") or f"runai-{project}"
    run = f"submission-{uuid.uuid4().hex[:8]}"
    waves = Waves(run, project, place, manifest, count, parallel, delay_s, workload_labels(run))
    try:
        done, stopped = on_cluster(
            kubeconfig, context, place, parallel, lambda client: _submitted(client, waves, folder, context or "")
        )
    except SeatrialError as error:
        fail(f"{error}; nothing was submitted: change {templates / workload_type}.yaml, or the namespace", 3)
    refused = [one for one in done if one.error]
    click.echo(f"{len(done) - len(refused):,} of {count:,} workloads submitted to {place}, {len(refused):,} refused")
    for reason in sorted({one.error for one in refused})[:_SHOWN]:
        click.echo(f"  {reason}", err=True)
    where = f"-t {workload_type} -p {project} -o {folder}"
    click.echo(f"wrote {folder / 'submitted.json'}; next: seatrial scale sample {where}")
    if stopped or refused:
        raise SystemExit(130 if stopped else 1)


def _manifest(path: Path, claim: Path | None, values: dict[str, str]) -> "Manifest":
    from seatrial.kinds.scale.workload import rendered
    from seatrial.suite import SuiteError

    text, added = _template(path), _template(claim) if claim else ""
    try:
        return rendered(str(path), text, {name: value for name, value in values.items() if name in text + added}, added)
    except SuiteError as error:
        fail(str(error.problems[0]))


def _template(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        fail(f"{path} is no text")
    except OSError as error:
        what = "run this beside the folder of Run:ai's templates, or name it: --templates DIR"
        fail(f"{path} cannot be read: {error.strerror}; {what}")


async def _submitted(
    client: "Kubernetes", waves: "Waves", folder: Path, context: str
) -> "tuple[list[SubmittedWorkload], bool]":
    """Ctrl-C ends it after the group that is being sent, with all of them written."""
    import asyncio
    import functools
    import signal

    import msgspec

    from seatrial.migrate.runai.files import SUBMISSION_FILE, SUBMITTED_FILE, BegunSubmission
    from seatrial.migrate.runai.submit import submit_workloads
    from seatrial.record import write_whole

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopping.set)

    def write(name: str, data: object) -> None:
        write_whole(folder / name, msgspec.json.format(msgspec.json.encode(data), indent=4) + b"\n")

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (SUBMITTED_FILE, SUBMISSION_FILE):
            _put_aside(folder / name)
        manifest = waves.manifest
        begun = (waves.run, waves.namespace, manifest["apiVersion"], manifest["kind"], waves.count, context)
        write(SUBMISSION_FILE, BegunSubmission(1, *begun))

    keep, progress = functools.partial(write, SUBMITTED_FILE), functools.partial(click.echo, err=True)
    return await submit_workloads(client, waves, begin, keep, stopping, progress), stopping.is_set()


def _put_aside(path: Path) -> None:
    """The file of an earlier test in the same folder stays, under the time when it was written."""
    from datetime import UTC, datetime

    if path.exists():
        at = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S-%f")
        path.rename(path.with_name(f"{path.stem}-{at}{path.suffix}"))
        click.echo(f"{path} of an earlier test is now {path.stem}-{at}{path.suffix}", err=True)


# `seatrial scale clean`: removes what `seatrial scale submit` made.


@click.command(short_help="Remove what `submit` made.")
@FOLDER
@access
def clean(folder: Path, kubeconfig: Path | None, context: str | None) -> None:
    """Delete the workloads that were submitted into a folder, by their label alone, and wait until they are gone.

    Also after the submission was killed. Exit code 3: some are still there.
    """
    from seatrial.job import Unreadable
    from seatrial.job.reading import read_json
    from seatrial.migrate.runai.files import SUBMISSION_FILE, BegunSubmission
    from seatrial.migrate.runai.submit import remove_workloads
    from seatrial.targets.kubernetes.owned import workload_labels

    path = folder / SUBMISSION_FILE
    try:
        begun = read_json(path, BegunSubmission)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fail(f"{path} cannot be read: {why}; `seatrial scale submit` writes it")

    async def remove(client: "Kubernetes") -> bool:
        resource = await client.discovery.of_kind(begun.api_version, begun.kind)
        return await remove_workloads(client, resource, workload_labels(begun.run))

    if not on_cluster(kubeconfig, context or begun.context or None, begun.namespace, 8, remove):
        fail(f"some workloads of {begun.namespace} are still there: try again, or look for their finalizers", 3)
    click.echo(f"nothing of {begun.run} is left in {begun.namespace}")
