"""Pages that keep themselves up to date: server-sent events, with pieces of the page as it is now.

1. The id of an event is the number of the journal's line that it brings a page to. Who comes back with the last one
   that it saw (`Last-Event-ID`) is sent what changed after it, and is then where everybody is.
2. An event holds what is true now, not what happened: a client that reads slowly is sent less, and nobody waits for it.
3. A client that does not read at all is let go after a minute.
"""

import asyncio
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping

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


class _Stream(ABC):
    def __init__(self, streams: "set[asyncio.Task[None]]", headers: Mapping[str, str]) -> None:
        self._streams = streams
        self._headers = headers

    @abstractmethod
    def _events(self, after: int) -> AsyncIterator[bytes]: ...

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if len(self._streams) >= MOST_STREAMS:
            page = error_page(503, "Too many pages are kept up to date at once; reload this one by hand.")
            return web.Response(status=503, text=page.html, content_type="text/html", headers={"Retry-After": "60"})
        response = web.StreamResponse(headers={**self._headers, "Content-Type": "text/event-stream; charset=utf-8"})
        response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'none'"
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        task = asyncio.ensure_future(self._send(request, response))
        self._streams.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            self._streams.discard(task)
        if isinstance(ended, Exception):  # its status is sent already: the client comes back by itself
            traceback.print_exception(ended, file=sys.stderr)
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse) -> None:
        events = self._events(_after(request))
        try:
            async for event in events:
                await asyncio.wait_for(response.write(event), _PATIENCE_S)
        except (TimeoutError, ConnectionResetError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            await events.aclose()  # type: ignore[attr-defined]


class RunEvents(_Stream):
    def __init__(self, followers: Followers, streams: "set[asyncio.Task[None]]", headers: Mapping[str, str]) -> None:
        super().__init__(streams, headers)
        self._followers = followers
        self._folder: RunFolder

    async def answer(self, request: web.Request, folder: RunFolder) -> web.StreamResponse:
        self._folder = folder
        return await self._answer(request)

    async def _events(self, after: int) -> AsyncIterator[bytes]:
        async with self._followers.follow(self._folder) as feed:
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


class SiteEvents(_Stream):
    """Each event holds all of it."""

    def __init__(self, feed: SiteFeed, streams: "set[asyncio.Task[None]]", headers: Mapping[str, str]) -> None:
        super().__init__(streams, headers)
        self._feed = feed

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request)

    async def _events(self, after: int) -> AsyncIterator[bytes]:
        feed, shown = self._feed, -1
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


def _after(request: web.Request) -> int:
    """The line that a client has seen; -1 for none."""
    text = request.headers.get("Last-Event-ID") or request.query.get("after") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
