"""What commands do about copies of run folders elsewhere: making one when a run is over, and reading one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seatrial.cli.options import fail

if TYPE_CHECKING:
    from seatrial.record import RunFolder


def checked_out(out: str) -> str:
    """The address, a path as one that means the same anywhere on this machine. One that could never be used ends the
    command before anything is planned."""
    if not out:
        return ""
    from seatrial.record import remote
    from seatrial.record.history.data import place_text

    if place_text(out) != out:
        fail(f"--out {place_text(out)}: a password would stand in the run folder; give it by the environment")
    try:
        remote.file_system(out)
    except remote.RemoteError as error:
        fail(f"--out: {error}")
    return out if remote.is_address(out) else str(Path(out).absolute())


def begin_copy_or_fail(folder: "RunFolder", out: str) -> None:
    from seatrial.job import ExitCode
    from seatrial.record import remote

    try:
        remote.begin_copy(folder, out)
    except remote.RemoteError as error:
        fail(f"--out: {error}; nothing was run", ExitCode.INFRA)


def copied(folder: "RunFolder", out: str, code: int) -> int:
    """The exit code of a run after its folder was copied, where that was asked for and not done yet. A copy that failed
    is infrastructure: it says nothing of what was tested, but a run that should be elsewhere and is not is no success.
    """
    from seatrial.job import ExitCode
    from seatrial.record import remote

    if not out or remote.is_copied(folder, out):
        return code
    try:
        click.echo(f"copied to {remote.copy_run(folder, out)}")
    except remote.RemoteError as error:
        click.echo(f"seatrial: {error}\n`seatrial attach {folder.run}` copies what is missing", err=True)
        return code or int(ExitCode.INFRA)
    return code


def fetched(address: str) -> "RunFolder":
    """A copy, brought here to be read."""
    from seatrial.job import ExitCode
    from seatrial.record import UnknownRun, remote
    from seatrial.targets.local.folders import cache_folder

    try:
        return remote.fetch_run(address, cache_folder() / "runs")
    except UnknownRun as error:
        fail(str(error))
    except remote.RemoteError as error:
        fail(str(error), ExitCode.INFRA)
