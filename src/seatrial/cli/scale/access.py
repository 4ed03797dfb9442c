"""Options that these commands share, and the cluster that they mean."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seatrial.cli.common import fail
from seatrial.migrate.runai.files import DEFAULT_FOLDER, DEFAULT_PROJECT, WORKLOAD_TYPES

if TYPE_CHECKING:
    from seatrial.kubernetes import Kubernetes

_T = TypeVar("_T")

FOLDER = click.option(
    "-o", "--output-dir", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(DEFAULT_FOLDER),
    show_default=True, help="Folder of the files of one test.",
)  # fmt: skip
TYPE = click.option(
    "-t", "--workload-type", "workload_type", type=click.Choice(WORKLOAD_TYPES), default=WORKLOAD_TYPES[0],
    show_default=True, help="Which workloads.",
)  # fmt: skip
NAMESPACE = click.option("--namespace", help="Of the workloads.  [default: runai-PROJECT]")


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which cluster."""
    context = click.option("--context", help="Of the kubeconfig.  [default: its current one]")
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("--kubeconfig", type=file, help="As of kubectl.")(context(command))


def project_option(*names: str) -> Callable[..., Any]:
    return click.option(*names, "project", default=DEFAULT_PROJECT, show_default=True, help="Project of the workloads.")


def on_cluster(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    at_once: int,
    work: "Callable[[Kubernetes], Awaitable[_T]]",
) -> _T:
    """What `work` gives; a cluster that does not answer or does not allow it ends the command with 3."""
    from dataclasses import replace

    from seatrial.kubernetes import Kubernetes, KubernetesError, load_access

    async def run() -> _T:
        found = replace(load_access(kubeconfig, context), namespace=namespace)
        async with Kubernetes(found, at_once=at_once) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except KubernetesError as error:
        fail(f"the cluster cannot be used: {error}; `seatrial doctor --target kubernetes` examines it", 3)
