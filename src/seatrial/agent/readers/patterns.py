"""Regular expressions for logs: line by line, fast on blocks of lines, with a limit on CPU time.

They are compiled for bytes: `\\w`, `\\d` and `(?i)` cover ASCII, and other characters are their bytes in UTF-8. `^` and
`$` are the ends of a line, and no match spans lines. Every match contains one of the pattern's literals; blocks without
them are skipped, which makes ten patterns cheap.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..masking.escapes import tidy
from .lines import Block, LogPart, Window

GUARD_S = 0.5  # CPU time for one pattern on one block
SLOW_S = 0.2  # above which the time on a block counts against the pattern
MOST_SLOW_S = 5.0  # total above which the pattern is dropped
LOOK_BACK = 20  # lines to search backwards for a related metric
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()]")
_BEFORE = r"(?:\\b|\\B|\^|\(\?<[!=](?:\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^()\[\]\\|])+\))+"
_LEADING = re.compile(_BEFORE)
_ANY_DIGIT = re.compile(r"\\d|0-9|\{\d*,?\d*\}")
_NAMES_DIGITS = re.compile(r"\d|\(\?P=")  # a literal digit, a character code, a backreference
_ANYTHING = re.compile(r"\A\^?\.\*\??(?![+*?{])")  # a leading `.*`, which restricts nothing
_TEXT_CHARACTERS = 500
_SAFE_SPACE = " \\t\\r\\f\\v"


class TooSlow(Exception):
    pass


class Guard:
    """Interrupts a search that takes too long: `re` handles signals while it searches. One per process."""

    def __init__(self) -> None:
        self._armed = False
        signal.signal(signal.SIGVTALRM, self._ring)

    def __enter__(self) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, GUARD_S)

    def __exit__(self, *exception: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _ring(self, number: int, frame: object) -> None:
        if self._armed:
            raise TooSlow


Match = Tuple[Optional[bytes], int]  # text and offset of a metric in a block


class Pattern:
    """`text` is the user's pattern. Raises re.error if it is invalid."""

    def __init__(self, text: str, literal: str = "") -> None:
        self.text = text
        self.slow_s = 0.0
        self.literals = [literal.encode("utf-8")] if literal else _branches(text)
        self._rare: List[bytes] = []  # for each literal, its rarest byte in this log
        bound = _line_bound(text)
        self._by_line = bound is None  # in a block it could match across lines
        self._line = re.compile(text.encode("utf-8"), re.MULTILINE)
        self._block = self._line
        if bound is not None:
            self._block = re.compile(_literal_first(bound, literal).encode("utf-8"), re.MULTILINE)
        self.digits_alike = not _NAMES_DIGITS.search(_ANY_DIGIT.sub("", text))
        self._group = 1 if self._line.groups else 0
        self._window: Optional["re.Pattern[bytes]"] = None  # for a part of a line, where `^.*` would not match

    def may_match(self, data: bytes) -> bool:
        """Quick test for every block: a missing byte is found ten times as fast as a missing word."""
        if len(self._rare) < len(self.literals):
            self._rare = [min((bytes([char]) for char in set(word)), key=data.count) for word in self.literals]
        for number, word in enumerate(self.literals):
            if self._rare[number] in data and word in data:
                return True
        return not self.literals

    def lines(self, block: Block) -> Iterator[int]:
        """Yields the start of each matching line."""
        data, position = block.data, 0
        while position < len(data):
            at = self._next(data, position)
            if at < 0:
                return
            start, end = block.bounds(at)
            if self._line.search(data[start:end]):
                yield start
            position = end + 1

    def on_line(self, line: bytes) -> Optional[bytes]:
        """Returns the first metric of a line."""
        found = self._line.search(line)
        return None if found is None else found.group(self._group)

    def on_line_all(self, line: bytes) -> List[bytes]:
        return [found.group(self._group) or b"" for found in self._line.finditer(line)]

    def tokens(self, block: Block) -> List[bytes]:
        """Returns the texts of all metrics without offsets, as fast as possible; empty if a group did not match."""
        if not self._by_line and self._block.groups <= 1:
            found: List[bytes] = self._block.findall(block.data)
            return found
        return [token or b"" for token, _ in self.matches(block)]

    def matches(self, block: Block) -> Iterator[Match]:
        group = self._group
        if not self._by_line:
            for found in self._block.finditer(block.data):
                at = found.start(group)
                yield found.group(group), at if at >= 0 else found.start()
            return
        for start in self.lines(block):
            for found in self._line.finditer(block.data[start : block.bounds(start)[1]]):
                yield found.group(group), start + max(found.start(), found.start(group))

    def is_in(self, window: Window) -> int:
        """Returns the offset of a match in a part of a long line, or -1. A match that reaches the end of the part is
        left to the next window, which has all of it unless it is longer than the overlap."""
        if self._window is None:
            self._window = re.compile(_ANYTHING.sub("", self.text).encode("utf-8"), re.MULTILINE)
        found = self._window.search(window.data, window.start)
        if found is None or (not window.last and found.end() == len(window.data) and found.start() >= window.end):
            return -1
        return found.start()

    def in_window(self, window: Window, again: bool = False) -> Iterator[Match]:
        """Yields the metrics in the window's own part that do not overlap one of the window before. `again`: the same
        window will be read again."""
        position = max(window.start, window.line.read_to.get(id(self), 0) - window.offset)
        for found in (self._line if self._by_line else self._block).finditer(window.data, position):
            if not window.last and found.start() >= window.end:
                return
            if not again:
                window.line.read_to[id(self)] = window.offset + found.end()
            yield found.group(self._group), max(found.start(), found.start(self._group))

    def last_before(self, block: Block, offset: int) -> Optional[Match]:
        """Returns the last metric that starts before `offset`, if one of the nearest candidate lines has it."""
        for _ in range(LOOK_BACK):
            at = max((block.data.rfind(literal, 0, offset) for literal in self.literals), default=-1)
            if at < 0:
                break
            start, end = block.bounds(at)
            found = [match for match in self._line.finditer(block.data[start:end]) if start + match.start() < offset]
            if found:
                group, last = self._group, found[-1]
                return last.group(group), start + max(last.start(), last.start(group))
            offset = start
        return None

    def _next(self, data: bytes, position: int) -> int:
        if self.literals:
            return min((at for at in (data.find(word, position) for word in self.literals) if at >= 0), default=-1)
        if self._by_line:
            return position
        found = self._block.search(data, position)
        return -1 if found is None else found.start()


class Patterns:
    """Compiled patterns. Invalid and slow ones are dropped and reported."""

    def __init__(self) -> None:
        self._guard = Guard()
        self.dropped: Dict[str, str] = {}

    def compiled(self, spec: Dict[str, Any]) -> Optional[Pattern]:
        text = str(spec.get("pattern", ""))
        try:
            return Pattern(text, str(spec.get("literal") or ""))
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            self.dropped[text] = "invalid regular expression for bytes: %s" % error
        return None

    @contextlib.contextmanager
    def guarded(self, pattern: Pattern, block: LogPart) -> Iterator[bool]:
        """Use as `with patterns.guarded(pattern, block) as active:`, and search only if active."""
        if pattern.text in self.dropped or not pattern.may_match(block.data):
            yield False
            return
        began_s, over = time.process_time(), False
        try:
            with self._guard:
                yield True
        except TooSlow:
            over = True
        took_s = time.process_time() - began_s
        if took_s > SLOW_S:
            pattern.slow_s += took_s
        if over or pattern.slow_s > MOST_SLOW_S:
            first = block.data[:200].decode("utf-8", "replace").strip()
            text = "timed out after %.1f s of CPU time on %d bytes of the log, from %r"
            self.dropped[pattern.text] = text % (max(took_s, GUARD_S), len(block.data), first)


def search_output(output: str, must: List[Dict[str, Any]], never: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Searches the kept output as one text. Returns the same structure as `Reading.result`."""
    text, guard = tidy(output), Guard()
    found: Dict[str, Any] = {"must": {}, "never": {}, "dropped": []}
    for kind, specs in (("must", must), ("never", never)):
        for spec in specs:
            pattern = str(spec["pattern"])
            try:
                with guard:
                    match = re.search(pattern, text, re.MULTILINE)
            except TooSlow:
                why = "timed out after %.1f s of CPU time on %d characters" % (GUARD_S, len(text))
            except (re.error, OverflowError, RecursionError) as error:
                why = "invalid regular expression: %s" % error
            else:
                line = None if match is None else text.count("\n", 0, match.start()) + 1
                shown = "" if match is None else match.group()[:_TEXT_CHARACTERS]
                found[kind][pattern] = {"count": int(match is not None), "line": line, "text": shown, "kept": True}
                continue
            found["dropped"].append({"pattern": pattern, "why": why})
    return found


def _branches(text: str) -> List[bytes]:
    """Returns the alternatives of a pattern that consists only of words separated by `|`."""
    words = [] if _SPECIAL.search(text) else text.split("|")
    return [word.encode("utf-8") for word in words] if all(words) else []


def _literal_first(text: str, literal: str) -> str:
    """Moves a lookbehind from before the literal to after it, because searching for a literal first is ten times as
    fast."""
    before = _LEADING.match(text)
    if before is None or not literal or _SPECIAL.search(literal) or _alternates(text):
        return text
    rest = text[before.end() :]
    if not rest.startswith(literal) or rest[len(literal) : len(literal) + 1] in ("*", "+", "?", "{"):
        return text
    moved = "%s(?<=%s%s)%s" % (literal, before.group(), literal, rest[len(literal) :])
    try:
        re.compile(moved.encode("utf-8"))
    except re.error:  # a lookbehind that cannot be nested
        return text
    return moved


def _alternates(text: str) -> bool:
    """Whether the pattern has alternatives outside parentheses."""
    bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "", text, flags=re.DOTALL)
    depth = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            return True
    return False


_ESCAPES = {"s": "[%s]" % _SAFE_SPACE, "W": "[^\\w\\n]", "D": "[^\\d\\n]"}
_OTHERS = "AZnxuUN0"  # ends of the text, line feeds, character codes


def _line_bound(text: str) -> Optional[str]:
    """Rewrites the pattern for a block of lines, so that it cannot match a line feed. None if that is not possible."""
    made: List[str] = []
    position = 0
    while position < len(text):
        piece, size = text[position], 1
        if piece == "\\":
            letter = text[position + 1 : position + 2]
            if letter and letter in _OTHERS:
                return None
            piece, size = _ESCAPES.get(letter, "\\" + letter), 2
        elif piece == "[":
            found = re.match(r"\[(\^?)(\]?(?:\\.|[^\]\\])*)\]", text[position:], re.DOTALL)
            if found is None:
                return None
            negated, inside = found.groups()
            feeds = not negated and re.search(r"(?:[\x00-\x0a]|\\[tabfrv])-|\n", inside)
            if feeds or re.search(r"\\[nxWD0-7]", inside):
                return None
            inside = inside + "\\n" if negated else inside.replace("\\s", _SAFE_SPACE)
            piece, size = "[%s%s]" % (negated, inside), found.end()
        elif piece == "(" and re.match(r"\(\?[a-zA-Z]*[xsaLu]", text[position:]):
            return None
        made.append(piece)
        position += size
    return "".join(made)
