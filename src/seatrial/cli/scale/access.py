"""Options of the `seatrial scale` commands, and access to their cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from seatrial.cli.common import fail
from seatrial.kubernetes import Kubernetes, KubernetesError, load_access
from seatrial.migrate.runai.files import DEFAULT_FOLDER, DEFAULT_PROJECT, WORKLOAD_TYPES

_T = TypeVar("_T")

FOLDER = click.option(
    "-o", "--output-dir", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(DEFAULT_FOLDER),
    show_default=True, help="Folder with the test's files.",
)  # fmt: skip
TYPE = click.option(
    "-t", "--workload-type", "workload_type", type=click.Choice(WORKLOAD_TYPES), default=WORKLOAD_TYPES[0],
    show_default=True, help="Type of the workloads.",
)  # fmt: skip
NAMESPACE = click.option("--namespace", help="Namespace of the workloads.  [default: runai-PROJECT]")


def access(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose the cluster."""
    context = click.option("--context", help="Kubeconfig context.  [default: the current one]")
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("--kubeconfig", type=file, help="Kubeconfig file.  [default: kubectl's]")(context(command))


def project_option(*names: str) -> Callable[..., Any]:
    return click.option(*names, "project", default=DEFAULT_PROJECT, show_default=True, help="Project of the workloads.")


def on_cluster(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    at_once: int,
    work: Callable[[Kubernetes], Awaitable[_T]],
) -> _T:
    """Returns the result of `work`. Exits 3 if the cluster does not respond or denies access."""

    async def run() -> _T:
        found = replace(load_access(kubeconfig, context), namespace=namespace)
        async with Kubernetes(found, at_once=at_once) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except KubernetesError as error:
        fail(f"cannot use the cluster: {error}; run `seatrial doctor --target kubernetes` to check it", 3)
