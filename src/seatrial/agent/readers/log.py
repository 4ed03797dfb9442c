"""Reads the output of a command while it is written: required and forbidden patterns, and metrics.

`Reading` is fed bytes and reports when the program must be stopped (`over`), what to note (`notes`), and at the end
what it found (`result`). The runner feeds it from a pipe, `read_existing.py` from existing files.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..masking.mask import Mask
from .lines import Lines, LogPart, Window
from .patterns import Pattern, Patterns
from .series import StepProgress
from .values import Values

BATCH = 500  # metrics per note
LINGER_S = 0.3  # after a line that stops the program: lines that explain it often follow
QUIET_S = 1.0  # after which an incomplete line is searched as it is
MOST_COUNTED = 1000  # matching lines per host for a required pattern; counting more only costs time
MOST_NOTED = 20  # reported lines per forbidden pattern


class Sought:
    """A required or forbidden pattern and its matches. `ends`: whether it stops the program."""

    def __init__(self, pattern: Pattern, spec: Dict[str, Any], ends: bool) -> None:
        self.pattern = pattern
        self.ends = ends
        lines = _one_break(str(spec.get("literal") or "").encode("utf-8"))
        self.lines = lines if b"\n" in lines else b""  # a text of several lines
        self.count = 0
        self.by_host: Dict[str, int] = {}
        self.line: Optional[int] = None
        self.text = ""

    def result(self) -> Dict[str, Any]:
        return {"count": self.count, "host": self.by_host, "line": self.line, "text": self.text}


class Reading:
    """`follow` is the argument of a `command` step. Times are monotonic; None if they are unknown because the log is
    not live. `host`: the host of all input, if each host has its own agent. `mask` applies to displayed lines; the
    input is unmasked."""

    def __init__(
        self,
        follow: Dict[str, Any],
        hosts: int = 1,
        begun_s: Optional[float] = None,
        host: Optional[int] = None,
        mask: Optional[Mask] = None,
    ) -> None:
        self._host = host
        self._mask = mask or Mask()
        self._patterns = Patterns()
        self._begun_s = begun_s
        self._must = self._sought(follow.get("must"), False)
        self._never = self._sought(follow.get("never"), True)
        self._texts = [sought for sought in [*self._must, *self._never] if sought.lines]
        self._ends: Dict[int, bytes] = {}  # by host: the end of its output so far, if there are texts of several lines
        compiled = {name: self._patterns.compiled(spec) for name, spec in (follow.get("values") or {}).items()}
        found = {name: pattern for name, pattern in compiled.items() if pattern is not None}
        self._progress = StepProgress(follow.get("stall"))
        finite, wanted = set(follow.get("finite") or ()), frozenset(follow.get("wanted") or ())
        self._values = Values(found, finite, self._progress, begun_s, self._stop, self._mask, wanted)
        self._several = int(hosts) > 1 or host is not None
        self._any = bool(follow.get("any"))  # one host is enough for `must`
        self._streams: Dict[Optional[int], Lines] = {}
        self._noted: List[Dict[str, Any]] = []
        self._next_batch_s = self._next_progress_s = 0.0
        self._shown_steps = 0
        self._fed_s: Optional[float] = None
        self._rest_searched = True
        self.stopped: Optional[Dict[str, Any]] = None
        self._stopped_s = 0.0

    def _sought(self, specs: Any, forbidden: bool) -> List[Sought]:
        """Compiles patterns. Expressions that span lines are searched later, in the kept output."""
        found = [(self._patterns.compiled(spec), spec) for spec in specs or () if not spec.get("across")]
        return [
            Sought(pattern, spec, forbidden and bool(spec.get("ends", True)))
            for pattern, spec in found
            if pattern is not None
        ]

    # ---- input

    def feed(self, data: bytes, now_s: Optional[float] = None, host: Optional[int] = None) -> None:
        """`host`: the host of this log, if each has its own."""
        host = self._host if host is None else host
        self._fed_s, self._rest_searched = now_s, False
        for part in self._streams.setdefault(host, Lines()).feed(data):
            self._take(part, host, now_s)

    def flush(self, now_s: Optional[float] = None, host: Optional[int] = None) -> None:
        """Handles the end of the input."""
        host = self._host if host is None else host
        for part in self._streams.setdefault(host, Lines()).flush():
            self._take(part, host, now_s)

    def ended(self, host: int) -> None:
        """One of several hosts has exited: expect no more steps from it."""
        self._progress.over(host)

    def gone(self, code: Optional[int]) -> List[Dict[str, Any]]:
        """Returns the note about the end of the one host that is read here."""
        return [] if self._host is None else [{"note": "host", "host": self._host, "code": code or 0}]

    def _take(self, block: LogPart, host: Optional[int], now_s: Optional[float]) -> None:
        for of_host, lines in self._apart(block, host):
            self._seek_texts(lines, of_host)
            for sought in [*self._must, *self._never]:
                self._seek(sought, lines, of_host, now_s)
            self._values.next_block(of_host)
            for name, pattern in self._values.patterns.items():
                with self._patterns.guarded(pattern, lines) as active:
                    if active:
                        self._values.read(name, lines, of_host, now_s)
            # A host that printed all required lines may take its time to save files.
            if self._must and all(sought.by_host.get(str(of_host)) for sought in self._must):
                self._progress.over(of_host)
        if self._any and self._must and all(sought.count for sought in self._must):
            self._progress.over(None)

    def _apart(self, block: LogPart, host: Optional[int]) -> Iterator[Tuple[int, LogPart]]:
        if host is None and self._several:
            yield from block.by_host().items()
        else:
            yield host or 0, block

    # ---- patterns

    def _seek(self, sought: Sought, block: LogPart, host: int, now_s: Optional[float]) -> None:
        if not sought.ends and sought.by_host.get(str(host), 0) >= MOST_COUNTED:
            return
        with self._patterns.guarded(sought.pattern, block) as active:
            for start in self._lines(sought, block) if active else ():
                sought.count += 1
                sought.by_host[str(host)] = sought.by_host.get(str(host), 0) + 1
                if sought.line is None:
                    sought.line, sought.text = block.line_at(start), block.text_at(start, self._mask)
                if sought.ends and sought.count <= MOST_NOTED:
                    match = self._match(sought, block, host, start)
                    self._noted.append(dict(match, note="never"))
                    self._stop("never", match, now_s)

    def _match(self, sought: Sought, block: LogPart, host: int, start: int) -> Dict[str, Any]:
        match = {"pattern": sought.pattern.text, "host": host, "line": block.line_at(start)}
        return dict(match, text=block.text_at(start, self._mask))

    def _seek_texts(self, block: LogPart, host: int) -> None:
        """Searches texts of several lines, also where they begin in an earlier block."""
        if self._texts:
            data = self._ends.get(host, b"") + block.written
            shown = _one_break(data)
            for sought in self._texts:
                if sought.lines in shown and str(host) not in sought.by_host:
                    sought.count, sought.text = sought.count + 1, sought.lines.decode("utf-8", "replace")
                    sought.by_host[str(host)] = 1
            self._ends[host] = data[-2 * max(len(sought.lines) for sought in self._texts) :]

    def _lines(self, sought: Sought, block: LogPart, again: bool = False) -> Iterator[int]:
        """Yields the start of each matching line, or the match in a window of a long line. A long line counts once;
        `again`: the window will be searched again, so do not mark it."""
        if not isinstance(block, Window):
            yield from sought.pattern.lines(block)
        elif id(sought) not in block.line.found:
            at = sought.pattern.is_in(block)
            if at >= 0:
                if not again:
                    block.line.found.add(id(sought))
                yield at

    def _stop(self, what: str, match: Dict[str, Any], now_s: Optional[float]) -> None:
        """Keeps the first reason."""
        if now_s is not None and self.stopped is None:
            self.stopped, self._stopped_s = dict(match, what=what), now_s

    # ---- while it runs

    def due_s(self) -> Optional[float]:
        """Returns when to call `over` and `notes` again if there is no input before."""
        due = self._progress.next()
        times = [None if due is None else due[0]]
        if self.stopped is not None:
            times.append(self._stopped_s + LINGER_S)
        if any(series.waiting for series in self._values.series.values()):
            times.append(self._next_batch_s)
        if not self._rest_searched and self._fed_s is not None:
            times.append(self._fed_s + QUIET_S)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def over(self, now_s: float) -> Optional[str]:
        """Returns the outcome if the program must be stopped."""
        if not self._rest_searched and self._fed_s is not None and now_s >= self._fed_s + QUIET_S:
            self._search_rest(now_s)
        if self.stopped is not None:
            return "stopped" if now_s >= self._stopped_s + LINGER_S else None
        due = self._progress.next()
        if due is None or now_s < due[0]:
            return None
        self.stopped, self._stopped_s = self._stall(due[1], now_s), now_s
        return "stall"

    def _stall(self, host: int, now_s: float) -> Dict[str, Any]:
        progress = self._progress.of(host)
        text = "no new step for %.1f s (limit %.1f s)" % (progress.idle_s(now_s), progress.limit_s)
        if self._several:
            last = "" if progress.last_step is None else "; last step %d" % progress.last_step
            text = "host %d: %s%s" % (host, text, last)
        host_or_none = host if self._several else None
        return {"what": "stall", "host": host_or_none, "line": None, "text": text, "step": progress.last_step}

    def _search_rest(self, now_s: float) -> None:
        """Searches an incomplete line, only for what stops the program: it may hang in it or redraw it."""
        self._rest_searched = True
        for host, stream in self._streams.items():
            rest = stream.unfinished()
            for of_host, block in self._apart(rest, host) if rest is not None else ():
                for sought in [one for one in self._never if one.ends]:
                    with self._patterns.guarded(sought.pattern, block) as active:
                        for start in self._lines(sought, block, again=True) if active else ():
                            self._stop("never", self._match(sought, block, of_host, start), now_s)
                for name, pattern in self._values.patterns.items():
                    with self._patterns.guarded(pattern, block) as active:
                        if active:
                            self._values.find_not_finite(name, block, of_host, now_s)

    def notes(self, now_s: Optional[float], last: bool = False) -> List[Dict[str, Any]]:
        """Returns the notes that are due: once a second at first, once a minute after an hour."""
        found, self._noted = self._noted, []
        waiting = [series for series in self._values.series.values() if series.waiting]
        running_s = 0.0 if now_s is None or self._begun_s is None else now_s - self._begun_s
        if waiting and (last or now_s is None or now_s >= self._next_batch_s):
            found += [series.note() for series in waiting]
            self._next_batch_s = (now_s or 0.0) + min(60.0, max(1.0, running_s / 60))
        elif waiting:
            found += [series.note() for series in waiting if len(series.waiting) >= BATCH]
        if now_s is not None and now_s >= self._next_progress_s and self._progress.steps != self._shown_steps:
            self._next_progress_s = now_s + max(1.0, running_s / 500)
            self._shown_steps = self._progress.steps
            text = self._values.text()
            found += [{"note": "progress", "text": text}] if text else []
        return found

    # ---- the end

    def result(self, now_s: Optional[float] = None) -> Dict[str, Any]:
        stopped = self.stopped
        if stopped is not None and now_s is not None:
            stopped = dict(stopped, seconds_after=round(now_s - self._stopped_s, 3))
        return {
            "lines": sum(stream.lines for stream in self._streams.values()),
            "long_lines": sum(stream.long_lines for stream in self._streams.values()),
            "steps": self._progress.steps,
            "must": {sought.pattern.text: sought.result() for sought in self._must},
            "never": {sought.pattern.text: sought.result() for sought in self._never},
            "values": self._values.result(),
            "stopped": stopped,
            "dropped": [{"pattern": text, "why": why} for text, why in self._patterns.dropped.items()],
        }


def _one_break(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
