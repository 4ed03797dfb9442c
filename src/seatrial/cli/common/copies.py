"""What commands do about copies of run folders elsewhere: making one when a run is over, and reading one."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from seatrial.cli.common import fail, say
from seatrial.job import ExitCode, RunResults
from seatrial.record import RecordError, RunFolder, remote
from seatrial.record.history.data import place_text
from seatrial.report import ReportError
from seatrial.report.view.run import RunView
from seatrial.report.webhook import SECRET, notify


def checked_out(out: str) -> str:
    """The address, a path as one that means the same anywhere on this machine. One that could never be used ends the
    command before anything is planned."""
    if not out:
        return ""

    if place_text(out) != out:
        fail(f"--out {place_text(out)}: a password would stand in the run folder; give it by the environment")
    try:
        remote.file_system(out)
    except RecordError as error:
        fail(f"--out: {error}")
    return out if remote.is_address(out) else str(Path(out).absolute())


def copied(folder: RunFolder, out: str, code: int) -> int:
    """The exit code of a run after its folder was copied, where that was asked for and not done yet. A copy that failed
    is infrastructure: it says nothing of what was tested, but a run that should be elsewhere and is not is no success.
    """
    try:
        if out and not remote.is_copied(folder, out):
            click.echo(f"copied to {remote.copy_run(folder, out)}")
    except RecordError as error:
        say(f"{error}\n`seatrial attach {folder.run}` copies what is missing")
        return code or int(ExitCode.INFRA)
    return code


# The option `--notify` of commands that end with results.


_HELP = "POST totals, causes and what is new there as JSON, signed with the secret in SEATRIAL_NOTIFY_SECRET."
NOTIFY = click.option("--notify", metavar="URL", envvar="SEATRIAL_NOTIFY", help=_HELP)
NOTIFY_NOW = click.option("--notify", metavar="URL", help=_HELP)  # of what only shows: not unless it is asked to


def checked_notify(url: str | None) -> str:
    """The address, before anything is run for it; "" for none."""
    if not url:
        return ""
    try:
        found = urlsplit(url)
        usable = found.scheme in ("http", "https") and bool(found.hostname) and (found.port or 1) > 0
        usable = usable and "@" not in found.netloc
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        fail("--notify takes an address such as https://HOST/PATH, without a user name in it")
    if not os.environ.get(SECRET):
        fail(f"--notify signs what it sends: set the environment variable {SECRET} to what the receiver knows, too")
    return url


def notified(url: str, results: RunResults) -> bool:
    """Told, or it is said why not; what the run came to stays as it is."""
    try:
        if url:
            notify(url, RunView(results), os.environ.get(SECRET, ""))
    except ReportError as error:
        say(str(error))
        return False
    return True
