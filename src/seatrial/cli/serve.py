"""`seatrial serve`: serves the dashboard."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe

import click

from seatrial import SeatrialError
from seatrial.cli.common import HISTORY, RUNS, fail, history_of, say
from seatrial.record import RunFolder

PORT = 8642


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0 for any free one."
)
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="File with the access token, such as the output of `openssl rand -hex 32`.",
)  # fmt: skip
@click.option("--allow-host", multiple=True, metavar="NAME", help="Also accept this host name; repeat to accept more.")
@click.option(
    "--public", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Do not serve: write all pages to this folder, for any web server, and exit.",
)  # fmt: skip
@click.option("--allow-review", is_flag=True, help="Let users of the dashboard review alerts.")
@RUNS
@HISTORY
def command(
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    public: Path | None,
    allow_review: bool,
    runs: Path,
    history: str | None,
) -> None:
    """Serve the dashboard for a runs folder and its history: live runs, suites over time, cells, metrics.

    The dashboard is read-only; it shows commands to copy for changes. With --allow-review, a form records reviews of
    alerts in the history. On an address that other machines can reach, it
    requires a token from --token-file or SEATRIAL_SERVE_TOKEN. Enter it as the password in the browser.

    \b
    seatrial serve                                        http://127.0.0.1:8642/, for this machine only
    seatrial serve --host 0.0.0.0 --token-file token      for other machines, with a token
    seatrial serve --public site                          write the pages to the folder `site`
    """
    from seatrial.checks import find_causes
    from seatrial.cli.baseline.scope import RecenterPreview
    from seatrial.web.access import CannotServe, WebAccess, read_token
    from seatrial.web.application import serve
    from seatrial.web.catalogue import Site
    from seatrial.web.public import ENDING, write_public

    past = history_of(runs, history)
    # Options for the commands that pages show. A history URL may contain a password, so it is left out.
    options = ("--runs", str(runs)) if runs != Path("runs") else ()
    if history and "://" not in history:
        options = (*options, "--history", history)
    if public is not None:
        # Without `options`, so that the pages contain no path of this machine.
        written = write_public(Site(runs, past, RecenterPreview(runs, past), find_causes, ending=ENDING), public)
        click.echo(f"wrote {written.pages} pages and {written.files} job files to {public}")
        for path in written.left_out[:5]:
            say(f"left out: {path}")
        if len(written.left_out) > 5:
            say(f"left out: {len(written.left_out) - 5} more")
        return
    site = Site(runs, past, RecenterPreview(runs, past, options), find_causes, _follow_log, options=options)
    site = replace(site, review_token=token_urlsafe() if allow_review else "")
    try:
        access = WebAccess.of(host, read_token(file=token_file), allow_host)
        asyncio.run(serve(site, access, port, lambda at: click.echo(f"serving {runs} at {at} (Ctrl-C to stop)")))
    except CannotServe as error:
        fail(str(error))


async def _follow_log(folder: RunFolder, cell: str) -> AsyncGenerator[bytes]:
    """Yields the log of a cell while it runs; the reason if it cannot be read."""
    from seatrial.engine import RunLogs
    from seatrial.job import Unreadable

    try:
        cells = {one.hash: one.id for one in folder.read_plan().cells if one.hash == cell}
        async with RunLogs(folder, cells) as logs:
            async for piece in logs.follow(ended_too=True):
                yield piece.data or f"[{piece.problem}]\n".encode()
    except (SeatrialError, Unreadable, OSError) as error:
        yield f"[cannot read the log: {error}]\n".encode()
