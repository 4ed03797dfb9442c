"""Watches all objects of a kind: what is there first, then every change, without loss or double.

1. First an `added` for every object that is there (its list read in pages), then `synced` once, then the changes.
2. A stream that ends, breaks or gives nothing, not even a bookmark, for `SILENCE_S` is taken up from the last
   resourceVersion: no event is lost, none comes twice. After some that gave nothing at all everything is listed again.
3. When the server cannot go on from there (410), all is listed again and the differences are given: `added`,
   `modified` and `deleted`, with `relisted` set. States in between are lost; the last of each is given.
4. `deleted` has the object in its last state. `at_s` is the monotonic clock when its bytes arrived, before decoding.
5. Only what the caller's struct names is kept, in `objects`, by uid. With `keep=False` nothing is: after a 410 all that
   is there is given as `added` once more, with `relisted` set, and then `synced`: what the caller knows and was not
   given is gone.
6. While the server cannot be reached it is tried again for `patience_s`; then the last error is raised. What the server
   refuses for good (a right, a kind that is gone) is raised at once.
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
# The server ends a watch after a time of our choosing, spread so that many watches do not end at once.
LEAST_S, MOST_S = 240, 480
SILENCE_S = 120.0  # a server sends a bookmark every minute or so
MOST_EMPTY = 3  # streams one after the other that are answered and give nothing
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
    """Iterate over it, once. `objects` holds what is there now; `gaps` counts how often states in between were lost."""

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
        self._allowed = False  # once it was
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
                # A resourceVersion from a future that the server does not know: its store was put back.
                if expired or (isinstance(error, ApiError) and TOO_LARGE in error.causes):
                    self._forget_place()
                await self._wait(None if expired else error)
            else:
                self.reconnects += 1
                if self._empty >= MOST_EMPTY:
                    self._forget_place()
                if time.monotonic() - begun < SHORT_S:  # a server that takes watches and drops them at once
                    await self._wait(None)
                else:
                    self._failures, self._failing_since = 0, None

    def _forget_place(self) -> None:
        """What comes next is a list of all."""
        self.resource_version, self._empty = "", 0
        self.gaps += 1

    async def _relist(self, again: bool) -> list[WatchEvent[O]]:
        """The differences between what was there last and what is there now."""
        there: dict[str, O] = {}
        version = ""
        async for page in pages(self._connection, self._selection, self._form):
            if page is None:
                there = {}
                continue
            version = page.metadata.resource_version
            there.update((found.metadata.uid, found) for found in page.items or ())
        at_s, before = time.monotonic(), self.objects.copy()
        # What is gone comes first: its name may have been taken by one that is new.
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
                    return  # what is left is a cut line, which comes again
                self._empty = 0
                at_s = time.monotonic()
                whole, newline, tail = block.rpartition(b"\n")
                if not newline:
                    rest += block
                    if len(rest) > _LINE_BYTES:
                        raise KubernetesError(f"cannot {self._request}: a line of more than {_LINE_BYTES} bytes")
                    continue
                whole, rest = (rest + whole if rest else whole), tail
                for event in self._events(whole, at_s):
                    yield event
                self._failures, self._failing_since = 0, None
        finally:
            self._connection.hang_up(response)

    def _events(self, lines: bytes, at_s: float) -> Iterator[WatchEvent[O]]:
        """Decoded together where all are of the watched kind; one by one where a bookmark or an error is among them."""
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
                    raise KubernetesError(f"cannot {self._request}: an event of the unknown type {line.type!r}")
                self.resource_version = found.metadata.resource_version
                continue
            meta = found.metadata
            # First the state, then the event: a caller who stops in the middle must find both agree.
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
                raise KubernetesError(
                    f"cannot {self._request}: a line that is no event ({error}){beginning(text)}"
                ) from None

    async def _wait(self, error: KubernetesError | None) -> None:
        """Before the next try; raises `error` when it lasts, or when nothing has come for too long.

        A server that has just started can refuse for a moment what it allowed before.
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
