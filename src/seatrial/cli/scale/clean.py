"""`seatrial scale clean`: removes what `seatrial scale submit` made."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import fail
from seatrial.cli.scale.access import FOLDER, access, on_cluster

if TYPE_CHECKING:
    from seatrial.kubernetes import Kubernetes
    from seatrial.migrate.runai.files import BegunSubmission


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

    path = folder / SUBMISSION_FILE
    try:
        begun = read_json(path, BegunSubmission)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else error
        fail(f"{path} cannot be read: {why}; `seatrial scale submit` writes it")
    gone = on_cluster(kubeconfig, context or begun.context or None, begun.namespace, 8, lambda one: _clean(one, begun))
    if not gone:
        fail(f"some workloads of {begun.namespace} are still there: try again, or look for their finalizers", 3)
    click.echo(f"nothing of {begun.run} is left in {begun.namespace}")


async def _clean(client: "Kubernetes", begun: "BegunSubmission") -> bool:
    from seatrial.migrate.runai.submit import remove_workloads

    resource = await client.discovery.of_kind(begun.api_version, begun.kind)
    return await remove_workloads(client, resource, begun.run)
