"""`seatrial serve`: the dashboard."""

import asyncio
from pathlib import Path

import click

from seatrial.cli.common import HISTORY, RUNS, fail, history_of, say

PORT = 8642


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="What to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any that is free.")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Holds the token.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another name that requests may use, of a proxy.")
@click.option("--public", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write files instead.")
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
    """Serve the dashboard of a folder of runs and its history: what runs now, live, suites over time, cells, metrics.

    It only shows: what would change something is written out as the command to copy. On an address that other machines
    reach it asks for a token, from --token-file or SEATRIAL_SERVE_TOKEN: it is the password that a browser asks for.

    \b
    seatrial serve                      http://127.0.0.1:8642/
    seatrial serve --public DIR         the same pages as files, for any web server
    """
    from seatrial.cli.baseline.scope import RecenterPreview
    from seatrial.web.access import CannotServe, WebAccess, read_token
    from seatrial.web.application import serve
    from seatrial.web.catalogue import Site
    from seatrial.web.public import ENDING, write_public

    past = history_of(runs, history)
    # Of commands that are to be about the same runs. A history may have a password in it: that is left to the user.
    options = ("--runs", str(runs)) if runs != Path("runs") else ()
    if history and "://" not in history:
        options = (*options, "--history", history)
    if public is not None:
        # No path of this machine is in them.
        written = write_public(Site(runs, past, RecenterPreview(runs, past), ENDING), public)
        click.echo(f"wrote {written.pages} pages and {written.files} files of jobs to {public}")
        for path in written.left_out[:5]:
            say(f"left out: {path}")
        if len(written.left_out) > 5:
            say(f"left out: {len(written.left_out) - 5} more")
        return
    site = Site(runs, past, RecenterPreview(runs, past, options), options=options)
    try:
        access = WebAccess.of(host, read_token(file=token_file), allow_host)
        asyncio.run(serve(site, access, port, lambda at: click.echo(f"serving {runs} at {at} (Ctrl-C ends it)")))
    except CannotServe as error:
        fail(str(error))
