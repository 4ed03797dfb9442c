"""`seatrial serve`: serves the dashboard."""

import asyncio
from pathlib import Path

import click

from seatrial.cli.common import HISTORY, RUNS, fail, history_of, say

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
@RUNS
@HISTORY
def command(
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    public: Path | None,
    runs: Path,
    history: str | None,
) -> None:
    """Serve the dashboard for a runs folder and its history: live runs, suites over time, cells, metrics.

    The dashboard is read-only; it shows commands to copy for changes. On an address that other machines can reach, it
    requires a token from --token-file or SEATRIAL_SERVE_TOKEN. Enter it as the password in the browser.

    \b
    seatrial serve                                        http://127.0.0.1:8642/, for this machine only
    seatrial serve --host 0.0.0.0 --token-file token      for other machines, with a token
    seatrial serve --public site                          write the pages to the folder `site`
    """
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
        written = write_public(Site(runs, past, RecenterPreview(runs, past), ENDING), public)
        click.echo(f"wrote {written.pages} pages and {written.files} job files to {public}")
        for path in written.left_out[:5]:
            say(f"left out: {path}")
        if len(written.left_out) > 5:
            say(f"left out: {len(written.left_out) - 5} more")
        return
    site = Site(runs, past, RecenterPreview(runs, past, options), options=options)
    try:
        access = WebAccess.of(host, read_token(file=token_file), allow_host)
        asyncio.run(serve(site, access, port, lambda at: click.echo(f"serving {runs} at {at} (Ctrl-C to stop)")))
    except CannotServe as error:
        fail(str(error))
