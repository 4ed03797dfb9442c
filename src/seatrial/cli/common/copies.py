"""The options --out, which copies a finished run folder elsewhere, and --notify, which posts its results."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from seatrial.cli.common import fail, say
from seatrial.job import ExitCode, RunResults
from seatrial.record import RecordError, RunFolder, remote
from seatrial.record.history.data import masked_location
from seatrial.report import ReportError
from seatrial.report.view.run import RunView
from seatrial.report.webhook import SECRET, notify


def checked_out(out: str) -> str:
    """Returns the address, a path as an absolute one. Exits if it can never work, before anything is planned."""
    if not out:
        return ""

    if masked_location(out) != out:
        fail(f"--out {masked_location(out)}: it would be stored with the password; set that in the environment")
    try:
        remote.file_system(out)
    except RecordError as error:
        fail(f"--out: {error}")
    return out if remote.is_address(out) else str(Path(out).absolute())


def copied(folder: RunFolder, out: str, code: int) -> int:
    """Copies the run folder if requested and not done yet; returns the exit code. A failed copy turns 0 into 3."""
    try:
        if out and not remote.is_copied(folder, out):
            click.echo(f"copied to {remote.copy_run(folder, out)}")
    except RecordError as error:
        say(f"{error}\nrun `seatrial attach {folder.run}` to copy the missing files")
        return code or int(ExitCode.INFRA)
    return code


_HELP = "POST totals, causes and changes to this URL as JSON, signed with the secret in SEATRIAL_NOTIFY_SECRET."
NOTIFY = click.option("--notify", metavar="URL", envvar="SEATRIAL_NOTIFY", help=_HELP)
NOTIFY_NOW = click.option("--notify", metavar="URL", help=_HELP)  # for read-only commands: ignores the environment


def checked_notify(url: str | None) -> str:
    """Returns the URL, "" if there is none. Exits if it or the secret is unusable, before anything runs."""
    if not url:
        return ""
    try:
        found = urlsplit(url)
        usable = found.scheme in ("http", "https") and bool(found.hostname) and (found.port or 1) > 0
        usable = usable and "@" not in found.netloc
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        fail("invalid --notify URL; use https://HOST/PATH, without a user name")
    if not os.environ.get(SECRET):
        fail(f"--notify needs the secret shared with the receiver; set the environment variable {SECRET}")
    return url


def notified(url: str, results: RunResults) -> bool:
    """Posts the webhook; returns whether it was delivered. A failure is printed and changes no verdict."""
    if not url:
        return True
    try:
        notify(url, RunView(results), os.environ.get(SECRET, ""))
    except ReportError as error:
        say(str(error))
        return False
    return True
