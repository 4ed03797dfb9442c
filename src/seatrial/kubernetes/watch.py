"""Watches all objects of a kind: first those that exist, then every change, without loss or repetition.

1. Yields `added` for every existing object (from a paged list), then `synced` once, then the changes.
2. A stream that ends, breaks or is silent for `SILENCE_S`, without even a bookmark, continues from the last
   resourceVersion: no event is lost or repeated. After several empty streams everything is listed again.
3. If the server cannot continue from there (410), everything is listed again and the differences are yielded as
   `added`, `modified` and `deleted`, with `relisted` set. States in between are lost, but not the last ones.
4. `deleted` has the object in its last state. `at_s` is the monotonic clock when its bytes arrived, before decoding.
5. `objects` keeps only the fields of the caller's struct, by uid. With `keep=False` it keeps nothing: after a 410 all
   existing objects are yielded as `added` again, with `relisted` set, and then `synced`; objects that the caller knows
   and that were not yielded are gone.
6. An unreachable server is retried for `patience_s`, then the last error is raised. Permanent errors (a missing
   permission, an unknown kind) are raised at once.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Generic, NamedTuple

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import ApiError, Closed, KubernetesError, backoff_s, status_error
from seatrial.kubernetes.objects import UNDECODABLE, O, Object, Status
from seatrial.kubernetes.queries import ObjectSelection, RawWatchLine, WatchLine, accept, beginning, decoder, pages

ADDED, MODIFIED, DELETED, SYNCED = "added", "modified", "deleted", "synced"
_KINDS = {"ADDED": ADDED, "MODIFIED": MODIFIED, "DELETED": DELETED}
WATCH_PATIENCE_S = 300.0
# Requested duration of a watch, random so that watches do not end at the same time.
LEAST_S, MOST_S = 240, 480
SILENCE_S = 120.0  # a server sends a bookmark about every minute
MOST_EMPTY = 3  # consecutive streams without data
SHORT_S = 1.0
REFUSAL_S = 10.0
_LINE_BYTES = 16 << 20  # longer than any object that etcd can hold
TOO_LARGE = "ResourceVersionTooLarge"


class WatchEvent(NamedTuple, Generic[O]):
    kind: str  # added, modified, deleted, or synced, which has no object
    object: O | None
    at_s: float
    relisted: bool = False


class Watch(Generic[O]):
    """Iterate over it once. `objects` has the current objects; `gaps` counts how often states in between were lost."""

    def __init__(
        self,
        connection: Connection,
        selection: ObjectSelection,
        form: type[O],
        patience_s: float = WATCH_PATIENCE_S,
        keep: bool = True,
    ) -> None:
        self.objects: dict[str, O] = {}
        self.resource_version = ""
        self.gaps = 0
        self.reconnects = 0
        self._connection, self._selection, self._form = connection, selection, form
        self._patience_s, self._keep = patience_s, keep
        self._request = selection.request("watch")
        self._lines = decoder(WatchLine[form])  # type: ignore[valid-type]
        self._allowed = False  # whether the server has ever allowed the watch
        self._failures = self._empty = 0
        self._failing_since: float | None = None

    async def __aiter__(self) -> AsyncIterator[WatchEvent[O]]:
        synced = False
        while True:
            begun = time.monotonic()
            try:
                if not self.resource_version:
                    for event in await self._relist(synced):
                        yield event
                    if not synced or not self._keep:
                        yield WatchEvent(SYNCED, None, time.monotonic(), relisted=synced)
                        synced = True
                async for event in self._stream():
                    yield event
            except Closed:
                raise
            except KubernetesError as error:
                expired = isinstance(error, ApiError) and error.expired
                # The resourceVersion is newer than the server's: its store was restored from a backup.
                if expired or (isinstance(error, ApiError) and TOO_LARGE in error.causes):
                    self._forget_place()
                await self._wait(None if expired else error)
            else:
                self.reconnects += 1
                if self._empty >= MOST_EMPTY:
                    self._forget_place()
                if time.monotonic() - begun < SHORT_S:  # the server accepts watches and drops them at once
                    await self._wait(None)
                else:
                    self._failures, self._failing_since = 0, None

    def _forget_place(self) -> None:
        """List everything next."""
        self.resource_version, self._empty = "", 0
        self.gaps += 1

    async def _relist(self, again: bool) -> list[WatchEvent[O]]:
        """The differences between the last known and the current objects."""
        there: dict[str, O] = {}
        version = ""
        async for page in pages(self._connection, self._selection, self._form):
            if page is None:
                there = {}
                continue
            version = page.metadata.resource_version
            there.update((found.metadata.uid, found) for found in page.items or ())
        at_s, before = time.monotonic(), self.objects.copy()
        # Deleted objects first: a new one may have the same name.
        events = [WatchEvent(DELETED, found, at_s, again) for uid, found in before.items() if uid not in there]
        for uid, found in there.items():
            old = before.get(uid)
            if old is None:
                events.append(WatchEvent(ADDED, found, at_s, again))
            elif old.metadata.resource_version != found.metadata.resource_version:
                events.append(WatchEvent(MODIFIED, found, at_s, again))
        self.objects.clear()
        if self._keep:
            self.objects.update(there)
        self.resource_version = version
        return events

    async def _stream(self) -> AsyncIterator[WatchEvent[O]]:
        """The changes of one connection, until it ends."""
        limit_s = random.randint(LEAST_S, MOST_S)
        query = {
            **self._selection.query(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(limit_s),
        }
        response = await self._connection.stream(self._request, query.items(), accept(self._form))
        self._allowed = True
        self._empty += 1
        rest = b""
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        block = await self._connection.read(self._request, response)
                except TimeoutError:  # the connection may be dead
                    return
                if not block:
                    return  # the rest is an incomplete line, which comes again
                self._empty = 0
                at_s = time.monotonic()
                whole, newline, tail = block.rpartition(b"\n")
                if not newline:
                    rest += block
                    if len(rest) > _LINE_BYTES:
                        raise KubernetesError(f"cannot {self._request}: a line exceeds {_LINE_BYTES} bytes")
                    continue
                whole, rest = (rest + whole if rest else whole), tail
                for event in self._events(whole, at_s):
                    yield event
                self._failures, self._failing_since = 0, None
        finally:
            self._connection.hang_up(response)

    def _events(self, lines: bytes, at_s: float) -> Iterator[WatchEvent[O]]:
        """Decodes all lines together if they are of the watched kind, else one by one (bookmarks, errors)."""
        decoded: Iterable[WatchLine[Any]]
        try:
            other = b'"BOOKMARK"' in lines or b'"ERROR"' in lines
            decoded = self._one_by_one(lines) if other else self._lines.decode_lines(lines)
        except UNDECODABLE:
            decoded = self._one_by_one(lines)
        objects = self.objects
        for line in decoded:
            kind, found = _KINDS.get(line.type), line.object
            if kind is None:
                if line.type != "BOOKMARK":
                    raise KubernetesError(f"cannot {self._request}: unknown event type {line.type!r}")
                self.resource_version = found.metadata.resource_version
                continue
            meta = found.metadata
            # State before event, so that both agree if the caller stops here.
            self.resource_version = meta.resource_version
            if kind is DELETED:
                objects.pop(meta.uid, None)
            elif self._keep:
                objects[meta.uid] = found
            yield WatchEvent(kind, found, at_s)

    def _one_by_one(self, lines: bytes) -> Iterator[WatchLine[Any]]:
        for text in lines.split(b"\n"):
            if not text.strip():
                continue
            try:
                raw = decoder(RawWatchLine).decode(text)
                if raw.type == "ERROR":
                    raise status_error(self._request, decoder(Status).decode(raw.object))
                form = Object if raw.type == "BOOKMARK" else self._form
                yield WatchLine(raw.type, decoder(form).decode(raw.object))
            except UNDECODABLE as error:
                raise KubernetesError(f"cannot {self._request}: invalid event ({error}){beginning(text)}") from None

    async def _wait(self, error: KubernetesError | None) -> None:
        """Waits before the next attempt; raises `error` if it is permanent, or nothing arrived for too long.

        A server that has just started may briefly refuse what it allowed before.
        """
        self._failures += 1
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if error is not None:
            refusal_s = (REFUSAL_S if self._allowed else 0.0) if error.lasting else self._patience_s
            if now - self._failing_since >= min(self._patience_s, refusal_s):
                raise error
            self.reconnects += 1
        await asyncio.sleep(backoff_s(self._failures))
