"""Reads PyTorch profiler traces (`*.pt.trace.json`, also compressed) event by event: a trace may be larger than
memory."""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import IO, Any, Dict, Iterator, List, Optional, Set

from .json_file import DECODER, UnreadableFile
from .xplane import _TEXT_CHARACTERS, MOST_PLANES, MOST_STEPS, profile

READ_BYTES = 1 << 20
MOST_ITEM_CHARACTERS = 8 << 20  # of one event, or of one of the trace's other fields
_MOST_NAMES = 10_000  # of threads and devices
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonWindow:
    """A window over a JSON file that forgets what has been read."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._read_bytes = 0
        self._ended = False

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            data = self._file.read(READ_BYTES)
        except EOFError:
            raise UnreadableFile("the compressed file ends early") from None
        self._read_bytes += len(data)
        if self._read_bytes > self._most_bytes:
            raise UnreadableFile("larger than %d bytes when unpacked" % self._most_bytes)
        self._ended = not data
        self._text = self._text[self._at :] + self._decoder.decode(data, self._ended)
        self._at = 0
        return not self._ended

    def peek(self) -> str:
        """Returns the next character that is not a space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def expect(self, characters: str) -> str:
        found = self.peek()
        if not found or found not in characters:
            what = repr(found) if found else "the end of the file"
            raise UnreadableFile("not a JSON trace: expected one of %r, got %s" % (characters, what))
        self._at += 1
        return found

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Yields at the start of each item of a list or object; the caller reads the item."""
        self.expect(opening)
        if self.peek() == closing:
            self.expect(closing)
            return
        yield
        while self.expect("," + closing) == ",":
            yield

    def item(self) -> Any:
        """Reads one complete value."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or self._ended:  # a number may continue
                    self._at = end
                    return value
            except RecursionError:
                raise UnreadableFile("nested too deeply") from None
            except json.JSONDecodeError as error:
                if self._ended:
                    raise UnreadableFile("not a JSON trace, or cut off: %s" % error.msg) from None
            if len(self._text) - self._at > MOST_ITEM_CHARACTERS:
                raise UnreadableFile("a JSON value is longer than %d characters" % MOST_ITEM_CHARACTERS)
            self._more()


class KinetoTrace:
    def __init__(self) -> None:
        self.events = 0
        self.steps: List[Dict[str, Any]] = []
        self._by_category: Dict[str, int] = {}
        self._threads: Dict[str, Set[str]] = {}
        self._devices: Set[str] = set()
        self._device_events = 0

    def take(self, event: Any) -> None:
        if not isinstance(event, dict):
            raise UnreadableFile("a trace event is not an object")
        if event.get("ph") in (None, "M"):  # an empty last event of some writers; names of processes and threads
            return
        self.events += 1
        category = str(event.get("cat") or "")[:_TEXT_CHARACTERS]
        if category in self._by_category or len(self._by_category) < MOST_PLANES:
            self._by_category[category] = self._by_category.get(category, 0) + 1
            threads = self._threads.setdefault(category, set())
            if len(threads) < _MOST_NAMES:
                threads.add("%.40s/%.40s" % (event.get("pid"), event.get("tid")))
        if category in DEVICE_WORK:
            self._device_events += 1
            arguments = event.get("args")
            if isinstance(arguments, dict) and len(self._devices) < _MOST_NAMES:
                self._devices.add("%.40s" % (arguments.get("device"),))
        elif category == "user_annotation" and event.get("ph") == "X":
            step = _STEP.match(str(event.get("name")))
            lasted, began = _number(event.get("dur")), _number(event.get("ts"))
            if step and lasted is not None and began is not None and len(self.steps) < MOST_STEPS:
                self.steps.append({"number": int(step.group(1)), "seconds": lasted / 1e6, "start_s": began / 1e6})

    def done(self) -> Dict[str, Any]:
        planes = [
            {"name": category, "lines": len(self._threads[category]), "events": count}
            for category, count in sorted(self._by_category.items())
        ]
        devices = {"GPU": {"count": len(self._devices), "events": self._device_events}} if self._device_events else {}
        steps = sorted(self.steps, key=lambda step: float(step["start_s"]))
        return profile(planes, self.events, devices, steps, "ProfilerStep" if steps else "")


def _number(value: Any) -> Optional[float]:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def read_kineto(file: IO[bytes], most_bytes: int) -> Dict[str, Any]:
    """Raises UnreadableFile if the file is not a trace, zlib.error and OSError if it cannot be decompressed."""
    text, trace = JsonWindow(file, most_bytes), KinetoTrace()
    seen = False
    if not text.peek():
        raise UnreadableFile("the file is empty")
    for _ in text.items("{", "}"):
        key = text.item()
        text.expect(":")
        if key == "traceEvents":
            seen = True
            for _ in text.items("[", "]"):
                trace.take(text.item())
        else:
            text.item()
    if text.peek():
        raise UnreadableFile("extra data after the end of the trace")
    if not seen:
        raise UnreadableFile("`traceEvents` is missing")
    return trace.done()
