"""`seatrial scale submit`: replaces Run:ai's submitter.py. `seatrial scale clean`: deletes the workloads."""

import asyncio
import functools
import signal
import uuid
from pathlib import Path

import click

from seatrial import SeatrialError
from seatrial.cli.common import fail
from seatrial.cli.scale.access import FOLDER, NAMESPACE, TYPE, access, on_cluster, project_option
from seatrial.job import Unreadable, read_json
from seatrial.kinds.scale.workload import rendered
from seatrial.kubernetes import Kubernetes, Manifest
from seatrial.migrate.runai.files import SUBMISSION_FILE, BegunSubmission, SubmittedWorkload
from seatrial.migrate.runai.submit import Waves, remove_workloads, submit_workloads
from seatrial.suite import SuiteError
from seatrial.targets.kubernetes.owned import workload_labels

_SHOWN = 5  # rejection reasons


@click.command(short_help="Submit workloads and write submitted.json.")
@FOLDER
@TYPE
@click.option("-n", "--num-workloads", "count", type=click.IntRange(min=1), required=True, help="Number of workloads.")
@click.option(
    "-p", "--num-processes", "parallel", type=click.IntRange(1, 1000), default=8, show_default=True,
    help="Workloads per group; a group is sent in parallel once the previous one is answered.",
)  # fmt: skip
@click.option("--num-workers", default="1", show_default=True, help="Workers of a distributed workload.")
@click.option("-g", "--num-gpus", default="1", show_default=True, help="GPUs per pod; may be a fraction.")
@click.option(
    "--delay", "delay_s", type=click.FloatRange(min=0), default=0.0, show_default=True,
    help="Seconds between two groups.",
)  # fmt: skip
@project_option("--project")
@click.option("--pvc", is_flag=True, help="Add a volume claim from the template pvc.yaml.")
@click.option(
    "--templates", type=click.Path(path_type=Path, file_okay=False), default=Path("yaml"), show_default=True,
    help="Folder with training.yaml, distributed.yaml, interactive.yaml and pvc.yaml.",
)  # fmt: skip
@NAMESPACE
@access
def submit(
    folder: Path, workload_type: str, count: int, parallel: int, num_workers: str, num_gpus: str, delay_s: float,
    project: str, pvc: bool, templates: Path, namespace: str | None, kubeconfig: Path | None, context: str | None,
) -> None:  # fmt: skip
    """Submit workloads and write submitted.json.

    Exits 1 if the server rejected some; submitted.json has the reasons. Delete the workloads with
    `seatrial scale clean`.
    """
    values = {"PROJECT_PLACEHOLDER": project, "NUM_WORKERS_PLACEHOLDER": num_workers, "NUM_GPUS": num_gpus}
    manifest = _manifest(templates / f"{workload_type}.yaml", templates / "pvc.yaml" if pvc else None, values)
    where = namespace or manifest["metadata"].get("namespace") or f"runai-{project}"
    run = f"submission-{uuid.uuid4().hex[:8]}"
    waves = Waves(run, project, where, manifest, count, parallel, delay_s, workload_labels(run))

    async def send(client: Kubernetes) -> tuple[list[SubmittedWorkload], bool]:
        """Ctrl-C stops after the current group; all submitted workloads are written."""
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopping.set)
        say = functools.partial(click.echo, err=True)
        return await submit_workloads(client, waves, folder, context or "", stopping, say), stopping.is_set()

    try:
        done, stopped = on_cluster(kubeconfig, context, where, parallel, send)
    except SeatrialError as error:
        fail(f"nothing was submitted: {error}; change {templates / workload_type}.yaml or the namespace", 3)
    refused = [one for one in done if one.error]
    click.echo(f"{len(done) - len(refused):,} of {count:,} workloads submitted to {where}, {len(refused):,} rejected")
    for reason in sorted({one.error for one in refused})[:_SHOWN]:
        click.echo(f"  {reason}", err=True)
    where = f"-t {workload_type} -p {project} -o {folder}"
    click.echo(f"wrote {folder / 'submitted.json'}; next: seatrial scale sample {where}")
    if stopped or refused:
        raise SystemExit(130 if stopped else 1)


def _manifest(path: Path, claim: Path | None, values: dict[str, str]) -> Manifest:
    text, added = _template(path), _template(claim) if claim else ""
    used = {name: value for name, value in values.items() if name in text + added}
    try:
        manifest, *others = rendered(str(path), text, used, added)
    except SuiteError as error:
        fail(str(error.problems[0]))
    if others:
        fail(f"{path} has {len(others) + 1} objects; `submit` needs exactly one, a scale trial takes several")
    return manifest


def _template(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        fail(f"cannot read {path}: not a UTF-8 text file")
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}; set Run:ai's template folder with --templates DIR")


@click.command(short_help="Delete the workloads that `submit` created.")
@FOLDER
@access
def clean(folder: Path, kubeconfig: Path | None, context: str | None) -> None:
    """Delete the workloads of a submission, found by label, and wait until they are gone.

    Also works after `submit` was killed. Exits 3 if some workloads remain.
    """
    path = folder / SUBMISSION_FILE
    try:
        begun = read_json(path, BegunSubmission)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fail(f"cannot read {path}: {why}; it is written by `seatrial scale submit`")

    async def remove(client: Kubernetes) -> bool:
        resource = await client.discovery.of_kind(begun.api_version, begun.kind)
        return await remove_workloads(client, resource, workload_labels(begun.run))

    if not on_cluster(kubeconfig, context or begun.context or None, begun.namespace, 8, remove):
        fail(f"some workloads in {begun.namespace} were not deleted; try again, or check their finalizers", 3)
    click.echo(f"deleted all workloads of {begun.run} in {begun.namespace}")
