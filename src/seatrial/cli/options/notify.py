"""The option `--notify` of commands that end with results."""

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from seatrial.cli.options import fail

if TYPE_CHECKING:
    from seatrial.job import RunResults

_HELP = "POST totals, causes and what is new there as JSON, signed with the secret in SEATRIAL_NOTIFY_SECRET."
NOTIFY = click.option("--notify", metavar="URL", envvar="SEATRIAL_NOTIFY", help=_HELP)
NOTIFY_NOW = click.option("--notify", metavar="URL", help=_HELP)  # of what only shows: not unless it is asked to


def checked_notify(url: str | None) -> str:
    """The address, before anything is run for it; "" for none."""
    from seatrial.report.export.webhook import SECRET

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


def notified(url: str, results: "RunResults") -> bool:
    """Told, or it is said why not; what the run came to stays as it is."""
    from seatrial.report.export.webhook import SECRET, NotNotified, notify

    try:
        if url:
            notify(url, results, os.environ.get(SECRET, ""))
    except NotNotified as error:
        click.echo(f"seatrial: {error}", err=True)
        return False
    return True
