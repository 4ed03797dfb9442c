"""Runs the dashboard until it is told to end."""

import asyncio
import errno
import gc
import logging
import signal
from collections.abc import Callable

from aiohttp import web

from seatrial.web.access import WebAccess, is_ip_address
from seatrial.web.application import Dashboard
from seatrial.web.render import web_templates
from seatrial.web.site import Site

_PATIENCE_S = 3.0  # for answers that are under way when it ends
_GARBAGE = 100_000  # new objects between two looks for what only refers to itself: a large page is made of as many
_MOST_LINE_BYTES = 8_190  # of a request, and of each of its headers


class CannotListen(Exception):
    """The address cannot be listened on, and what to do about it."""


async def serve(site: Site, access: WebAccess, port: int, ready: Callable[[str], None]) -> None:
    """Answer until SIGINT or SIGTERM. `ready` is called with the address when it answers. Raises CannotListen."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # bad requests are theirs, not ours
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        Dashboard(site, access).application(),
        access_log=None,
        shutdown_timeout=_PATIENCE_S,
        max_line_size=_MOST_LINE_BYTES,
        max_field_size=_MOST_LINE_BYTES,
    )
    await runner.setup()
    await asyncio.to_thread(_prepare, site)
    try:
        listening = web.TCPSite(runner, access.host, port)
        try:
            await listening.start()
        except OSError as error:
            raise CannotListen(_why(error, access.host, port)) from error
        ready(_address(runner, access.host))
        await stop.wait()
    finally:
        await runner.cleanup()


def _prepare(site: Site) -> None:
    """What the first pages would else have to do, so that they are as quick as all others."""
    import seatrial.stats.compare  # noqa: F401

    site.catalogue.list()
    for name in web_templates().list_templates(["j2"]):
        web_templates().get_template(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with --port (0: any free one), or end who has it"
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user: choose one above 1023 with --port"
    return f"{host}:{port} cannot be listened on: {error.strerror or error}"


def _address(runner: web.AppRunner, host: str) -> str:
    port = runner.addresses[0][1]
    return f"http://{f'[{host}]' if is_ip_address(host) and ':' in host else host}:{port}/"
