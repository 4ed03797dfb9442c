"""The dashboard server: GET only, every request is checked first, every response has a strict content policy."""

import asyncio
import errno
import gc
import hmac
import logging
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aiohttp import web

from seatrial.record.history import HistoryError
from seatrial.web import files, pages
from seatrial.web.access import CannotServe, NotThere, WebAccess, check_attempt, is_ip_address, run_folder
from seatrial.web.catalogue import Site
from seatrial.web.events import SiteFeed, last_seen, log_events, run_events, site_events, stream
from seatrial.web.follow import Followers
from seatrial.web.render import Page, error_page, web_templates

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_MOST_PATH = 2_000  # characters
_MOST_FORM_BYTES = 16_384
WORKERS = 4  # threads that render pages

_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Server": "seatrial",
}


class Dashboard:
    def __init__(self, site: Site, access: WebAccess) -> None:
        self._site = site
        self._access = access
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="page")
        self.followers = Followers()
        self._site_feed = SiteFeed(site)
        self._streams: set[asyncio.Task[None]] = set()
        self.busy: set[object] = set()  # connections with a request in progress

    def application(self) -> web.Application:
        made = web.Application(middlewares=[self._guard], client_max_size=_MOST_FORM_BYTES)
        for path, make in pages.ROUTES.items():
            made.router.add_get(path, self._page(make))
        made.router.add_post("/f/{benchmark}/{metric}", self._review)
        made.router.add_get("/events", self._site_events)
        made.router.add_get("/r/{name}/events", self._run_events)
        made.router.add_get("/r/{name}/log/{hash_}", self._log_events)
        made.router.add_get("/r/{name}/file/{path:.+}", self._file)
        made.on_shutdown.append(self._end_streams)
        made.on_cleanup.append(self._close)
        return made

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.busy.add(request.protocol)
        try:
            answer = self._refusal(request) or await self._answer(request, handler)
        finally:
            self.busy.discard(request.protocol)
        if not answer.prepared:
            for name, value in _SAFE.items():
                answer.headers.setdefault(name, value)
        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotThere as error:
            return _error(404, str(error))
        except HistoryError as error:
            return _error(503, str(error))
        except web.HTTPException as error:
            return _error(error.status, _REASONS.get(error.status, error.reason))
        except ConnectionResetError:
            raise
        except Exception:  # noqa: BLE001  an error in one page must not stop the server
            traceback.print_exc(file=sys.stderr)
            return _error(500, "Internal error. The server's terminal shows the cause.")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._access.knows_host(request.headers.get("Host")):
            return _error(421, "Unknown host name. Start the server with --allow-host NAME.")
        if not self._access.lets_in(request.headers.get("Authorization")):
            asked = {"WWW-Authenticate": 'Basic realm="seatrial", charset="UTF-8"'}
            return _error(401, "A token is required. Enter the server's token as the password.", asked)
        if request.method not in ("GET", "HEAD") and not (request.method == "POST" and self._site.review_token):
            return _error(405, _REASONS[405], {"Allow": "GET, HEAD"})
        if len(request.raw_path) > _MOST_PATH or "\0" in request.path:
            return _error(404, _REASONS[404])
        return None

    def _page(self, make: Callable[..., Page]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            loop = asyncio.get_running_loop()
            options = {name: request.query.get(name, "")[:_MOST_WORDS] for name in _QUERIES.get(make, ())}
            made = await loop.run_in_executor(self._pool, partial(make, self._site, **request.match_info, **options))
            return _response(made)

        return handler

    async def _review(self, request: web.Request) -> web.StreamResponse:
        """Records a review, if the form is of this server: other sites cannot read its token."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        known = hmac.compare_digest(form.pop("token", "").encode("utf-8", "replace"), self._site.review_token.encode())
        if not known or request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return _error(403, "This form has expired. Reload the page and try again.")
        review = partial(pages.review, self._site, **request.match_info, form=form)
        if wrong := await asyncio.get_running_loop().run_in_executor(self._pool, review):
            return _error(400, wrong)
        return web.Response(status=303, headers={"Location": request.rel_url.raw_path})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        run, path = request.match_info["name"], request.match_info["path"]
        log = await loop.run_in_executor(self._pool, partial(pages.beside_log, self._site, run, path))
        if log is not None:
            return _response(log)
        file = await loop.run_in_executor(self._pool, partial(files.open_file, self._site.runs, run, path))
        return await files.send_file(request, file, path, dict(_SAFE))

    async def _run_events(self, request: web.Request) -> web.StreamResponse:
        folder = await asyncio.to_thread(run_folder, self._site.runs, request.match_info["name"])
        events = run_events(self._site, self.followers, folder, last_seen(request))
        return await stream(request, events, self._streams, _SAFE)

    async def _log_events(self, request: web.Request) -> web.StreamResponse:
        check_attempt(request.match_info["hash_"], "1")
        folder = await asyncio.to_thread(run_folder, self._site.runs, request.match_info["name"])
        if self._site.follow_log is None:
            raise NotThere("Logs of running cells are not available.")
        events = log_events(self._site, folder, request.match_info["hash_"])
        return await stream(request, events, self._streams, _SAFE)

    async def _site_events(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, site_events(self._site_feed), self._streams, _SAFE)

    async def _end_streams(self, _: web.Application) -> None:
        for task in list(self._streams):
            task.cancel()

    async def _close(self, _: web.Application) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


_MOST_WORDS = 300  # characters of a value in the query of a URL
_QUERIES: dict[Callable[..., Page], tuple[str, ...]] = {
    pages.home: ("before", "range", "suite", "verdict", "target"),
    pages.search: ("q",),
    pages.suite: ("before",),
    pages.cell: ("before",),
}
_REASONS = {404: "Page not found.", 405: "The dashboard is read-only."}


def _error(status: int, message: str, headers: Mapping[str, str] = {}) -> web.Response:
    return _response(error_page(status, message), headers)


def _response(page: Page, headers: Mapping[str, str] = {}) -> web.Response:
    headers = {"Content-Security-Policy": f"{page.policy}; frame-ancestors 'none'", **headers}
    return web.Response(status=page.status, text=page.html, content_type="text/html", charset="utf-8", headers=headers)


# Serves the dashboard until it is stopped.


_PATIENCE_S = 3.0  # for open responses at shutdown
_GARBAGE = 100_000  # new objects between garbage collections; a large page creates as many
_MOST_LINE_BYTES = 8_190  # of the request line and of each header
_IDLE_S = 30.0  # until a connection without a complete request is closed
_MOST_CONNECTIONS = 1_000
_BACKLOG = 32  # connections that are accepted at once
_SPARE_FILES = 64 + _BACKLOG  # file descriptors for everything else
_LOG_AGAIN_S = 60.0


class Connections:
    """Makes the handlers of connections. Idle connections need no token and must not keep users out: if there are too
    many, the address that has the most loses its oldest idle one."""

    def __init__(self, server: web.Server, busy: set[object]) -> None:
        self._server = server
        self._busy = busy
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(8, min(_MOST_CONNECTIONS, files - _SPARE_FILES if files > 0 else _MOST_CONNECTIONS))
        self._most_of_address = self._most * 3 // 4
        self._logged_s = -_LOG_AGAIN_S

    def __call__(self) -> web.RequestHandler:
        self._make_room()
        return self._server()

    def _make_room(self, full: bool = False) -> None:
        by_address: dict[str, list[web.RequestHandler]] = defaultdict(list)
        for one in self._server.connections:  # the oldest first
            if one.transport is not None:
                by_address[str((one.peername or ("",))[0])].append(one)
        largest = max(by_address.values(), key=len, default=[])
        full = full or len(largest) >= self._most_of_address or sum(map(len, by_address.values())) >= self._most
        if full and largest:
            next((one for one in largest if one not in self._busy), largest[0]).force_close()

    def log_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without file descriptors, asyncio reports an error for each connection that it could not accept."""
        error = context.get("exception")
        if "accept" not in context.get("message", "") or not isinstance(error, OSError):
            return loop.default_exception_handler(context)
        self._make_room(full=True)
        if time.monotonic() - self._logged_s >= _LOG_AGAIN_S:
            self._logged_s = time.monotonic()
            print(f"cannot accept connections: {error.strerror}; trying again", file=sys.stderr, flush=True)


async def serve(site: Site, access: WebAccess, port: int, ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. Calls `ready` with the URL once it is listening. Raises CannotServe."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # bad requests are the client's fault
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    dashboard = Dashboard(site, access)
    runner = web.AppRunner(
        dashboard.application(),
        access_log=None,
        shutdown_timeout=_PATIENCE_S,
        keepalive_timeout=_IDLE_S,
        max_line_size=_MOST_LINE_BYTES,
        max_field_size=_MOST_LINE_BYTES,
    )
    await runner.setup()
    assert runner.server is not None
    connections = Connections(runner.server, dashboard.busy)
    loop.set_exception_handler(connections.log_error)
    await asyncio.to_thread(_prepare, site)
    try:
        try:
            listening = await loop.create_server(connections, access.host, port, backlog=_BACKLOG)
        except OSError as error:
            raise CannotServe(_why(error, access.host, port)) from error
        shown = f"[{access.host}]" if is_ip_address(access.host) and ":" in access.host else access.host
        ready(f"http://{shown}:{listening.sockets[0].getsockname()[1]}/")
        await stop.wait()
        listening.close()
    finally:
        await runner.cleanup()


def _prepare(site: Site) -> None:
    """Loads modules, runs and templates in advance, so that the first pages are fast."""
    import seatrial.stats.compare  # noqa: F401

    site.catalogue.list()
    for name in web_templates().list_templates(["j2"]):
        web_templates().get_template(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another with --port (0: any free port)"
    if error.errno == errno.EACCES:
        return f"no permission to use port {port}; choose one above 1023 with --port"
    return f"cannot listen on {host}:{port}: {error.strerror or error}"
