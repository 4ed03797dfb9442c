"""Live pages: server-sent events with the changed parts of a page.

1. The id of an event is the journal line that it brings the page to. A client that reconnects with `Last-Event-ID` gets
   all changes since then.
2. Events contain the current state, not the changes in between. Slow clients get fewer events and do not delay others.
3. A client that does not read for a minute is disconnected.
"""

import asyncio
import codecs
import contextlib
import sys
import traceback
from collections.abc import AsyncGenerator, Mapping
from functools import partial

import msgspec
from aiohttp import web

from seatrial.record import RunFolder
from seatrial.web import pages
from seatrial.web.catalogue import Site
from seatrial.web.follow import Feed, Followers
from seatrial.web.render import error_page

MOST_STREAMS = 256
ALIVE_S = 15.0  # between keep-alive messages
_PATIENCE_S = 60.0  # write timeout
SITE_EVERY_S = 1.0
LOG_EVERY_S = 0.5
MOST_LOG_BYTES = 64 << 10  # in one event
_STILL_HERE = b": still here\n\n"


async def stream(
    request: web.Request, events: AsyncGenerator[bytes], streams: "set[asyncio.Task[None]]", headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends events until the client disconnects. `streams` has all open streams."""
    if len(streams) >= MOST_STREAMS:
        page = error_page(503, "Too many live pages. Reload this page manually.")
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
    if isinstance(ended, Exception):  # the status was already sent; the client reconnects
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


async def run_events(site: Site, followers: Followers, folder: RunFolder, after: int) -> AsyncGenerator[bytes]:
    """The changes of a run since line `after` of its journal."""
    async with followers.follow(folder) as feed:
        generation, wrong = feed.now.generation, ""
        while True:
            now = feed.now
            if now.generation != generation or after > now.run.line:
                yield event("reload", {}, now.run.line)
                return
            if now.run.line > after or now.wrong != wrong:
                wrong = now.wrong
                after, parts = await feed.parts(after, partial(pages.live_parts, site))
                yield event("parts", parts, after)
            elif now.run.finished:
                yield event("reload", {}, now.run.line)
                return
            elif not await feed.changes_within(ALIVE_S):
                yield _STILL_HERE


async def log_events(site: Site, folder: RunFolder, hash_: str) -> AsyncGenerator[bytes]:
    """The output of a cell while it runs, from its start. Of a burst, only the end is sent."""
    assert site.follow_log is not None
    async with contextlib.aclosing(site.follow_log(folder, hash_)) as blocks:
        read = asyncio.ensure_future(anext(blocks, None))
        text = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while True:
                data, until_s = b"", asyncio.get_running_loop().time() + LOG_EVERY_S
                while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
                    if not (await asyncio.wait([read], timeout=left_s))[0]:
                        break
                    if (block := read.result()) is None:
                        yield event("log", {"text": text.decode(data, final=True)}, 0)
                        yield event("end", {}, 0)
                        return
                    data = (data + block)[-MOST_LOG_BYTES:]
                    read = asyncio.ensure_future(anext(blocks, None))
                yield event("log", {"text": text.decode(data)}, 0) if data else _STILL_HERE
        finally:
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)


class SiteFeed(Feed):
    """The live parts of the home page."""

    every_s = SITE_EVERY_S

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self.parts: dict[str, str] = {}
        self.number = -1  # of the last change

    async def _update(self) -> bool:
        parts = await asyncio.to_thread(pages.home_parts, self._site)
        if parts == self.parts:
            return False
        self.parts, self.number = parts, self.number + 1
        return True


async def site_events(feed: SiteFeed) -> AsyncGenerator[bytes]:
    """Each event has all live parts of the home page."""
    shown = -1
    async with feed.followed():
        while True:
            if feed.number != shown:
                shown = feed.number
                yield event("parts", feed.parts, shown)
            elif not await feed.changes_within(ALIVE_S):
                yield _STILL_HERE


def event(name: str, data: Mapping[str, str], number: int) -> bytes:
    """A server-sent event. The JSON has no line breaks, so one data line is enough."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(data))


def last_seen(request: web.Request) -> int:
    """The last journal line that the client has seen; -1 for none."""
    text = request.headers.get("Last-Event-ID") or request.query.get("after") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
