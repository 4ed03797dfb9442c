"""Pages that keep themselves up to date: server-sent events, with pieces of the page as it is now.

1. The id of an event is the number of the journal's line that it brings a page to. Who comes back with the last one
   that it saw (`Last-Event-ID`) is sent what changed after it, and is then where everybody is.
2. An event holds what is true now, not what happened: a client that reads slowly is sent less, and nobody waits for it.
3. A client that does not read at all is let go after a minute.
"""

import asyncio
import sys
import traceback
from collections.abc import AsyncGenerator, Mapping

import msgspec
from aiohttp import web

from seatrial.record import RunFolder
from seatrial.web import pages
from seatrial.web.catalogue import Site
from seatrial.web.follow import Feed, Followers
from seatrial.web.render import error_page

MOST_STREAMS = 256
ALIVE_S = 15.0  # between two signs of life
_PATIENCE_S = 60.0  # for a client that does not read
SITE_EVERY_S = 1.0


async def stream(
    request: web.Request, events: AsyncGenerator[bytes], streams: "set[asyncio.Task[None]]", headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send these events for as long as the client is there. `streams` are all that are being sent."""
    if len(streams) >= MOST_STREAMS:
        page = error_page(503, "Too many pages are kept up to date at once; reload this one by hand.")
        return web.Response(status=503, text=page.html, content_type="text/html", headers={"Retry-After": "60"})
    response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream; charset=utf-8"})
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    task = asyncio.ensure_future(_send(request, response, events))
    streams.add(task)
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        streams.discard(task)
    if isinstance(ended, Exception):  # its status is sent already: the client comes back by itself
        traceback.print_exception(ended, file=sys.stderr)
    return response


async def _send(request: web.Request, response: web.StreamResponse, events: AsyncGenerator[bytes]) -> None:
    try:
        async for event in events:
            await asyncio.wait_for(response.write(event), _PATIENCE_S)
    except (TimeoutError, ConnectionResetError):
        if request.transport is not None:
            request.transport.abort()
    finally:
        await events.aclose()


async def run_events(followers: Followers, folder: RunFolder, after: int) -> AsyncGenerator[bytes]:
    """What changed in a run since line `after` of its journal."""
    async with followers.follow(folder) as feed:
        generation, wrong = feed.now.generation, ""
        while True:
            now = feed.now
            if now.generation != generation or after > now.line:
                yield event("reload", {}, now.line)
                return
            if now.line > after or now.wrong != wrong:
                yield event("parts", feed.parts(after, pages.live_parts), now.line)
                after, wrong = now.line, now.wrong
            if now.run.finished:
                yield event("reload", {}, now.line)
                return
            try:
                await asyncio.wait_for(feed.wait(), ALIVE_S)
            except TimeoutError:
                yield b": still here\n\n"


class SiteFeed(Feed):
    """What runs now, of all runs."""

    every_s = SITE_EVERY_S

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self.parts: dict[str, str] = {}
        self.number = -1  # of changes

    async def _update(self) -> bool:
        parts = await asyncio.to_thread(pages.home_parts, self._site)
        if parts == self.parts:
            return False
        self.parts, self.number = parts, self.number + 1
        return True


async def site_events(feed: SiteFeed) -> AsyncGenerator[bytes]:
    """Each event holds all of it."""
    shown = -1
    async with feed.followed():
        while True:
            if feed.number != shown:
                shown = feed.number
                yield event("parts", feed.parts, shown)
            try:
                await asyncio.wait_for(feed.wait(), ALIVE_S)
            except TimeoutError:
                yield b": still here\n\n"


def event(name: str, data: Mapping[str, str], number: int) -> bytes:
    """JSON has no line breaks, so that all of it is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(data))


def last_seen(request: web.Request) -> int:
    """The line that a client has seen; -1 for none."""
    text = request.headers.get("Last-Event-ID") or request.query.get("after") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
