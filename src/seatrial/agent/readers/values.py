"""Reads metrics from blocks of a log: value, line and step; and the steps themselves."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import AbstractSet, Any, Callable, Dict, List, Optional, Set, Tuple

from ..masking.mask import Mask
from .lines import Block, LogPart, Window, rank_of
from .patterns import Match, Pattern
from .series import Metric, StepProgress, ValueSeries, all_plain, number, to_json, whole

# Counts metrics by line shape: lines that differ only in digits have their metrics at the same positions.
#
# A training log has a few line shapes with thousands of lines each. A pattern that treats all digits alike (most do) is
# applied once per shape instead of once per line, and the counts are still exact.


MOST_KNOWN = 5_000  # cached shapes per pattern
FEWER = 8  # lines per shape, below which searching all lines is faster
SKIP_BLOCKS = 20  # blocks before the next try
_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")


class Shapes:
    def __init__(self) -> None:
        self._known: Dict[str, Dict[bytes, Optional[int]]] = {}
        self._block: Optional[Block] = None  # the current block and its shapes
        self._of_block: Optional[Dict[bytes, int]] = None
        self._skip = 0

    def count(self, pattern: Pattern, block: Block) -> Optional[int]:
        """Returns the number of metrics; None if shapes cannot tell, or some may not be finite numbers."""
        shapes = self._shapes(block) if pattern.digits_alike else None
        if shapes is None:
            return None
        known = self._known.setdefault(pattern.text, {})
        total = 0
        for shape, lines in shapes.items():
            if shape not in known:
                if len(known) >= MOST_KNOWN:
                    known.clear()
                tokens = pattern.on_line_all(shape)
                known[shape] = len(tokens) if all_plain(tokens) else None
            each = known[shape]
            if each is None:
                return None
            total += each * lines
        return total

    def _shapes(self, block: Block) -> Optional[Dict[bytes, int]]:
        """Returns the shapes of the current block, computed once for all patterns."""
        if self._block is not block:
            self._block, self._of_block = block, None
            if self._skip:
                self._skip -= 1
                return None
            lines = block.data.translate(_ONE_DIGIT).split(b"\n")
            found = Counter(lines)
            if len(found) * FEWER <= len(lines):
                self._of_block = found
            else:
                self._skip = SKIP_BLOCKS
        return self._of_block


_STEP = "step"
_LOSS = "loss"
MANY = 64  # values of a metric in one block; fewer are read one by one
MANY_BYTES = 4 << 10  # size of a block that may have that many
Stop = Callable[[str, Dict[str, Any], Optional[float]], None]


class Values:
    """`stop` is called for values that must be finite and are not. All losses at `wanted` steps are kept."""

    def __init__(
        self,
        patterns: Dict[str, Pattern],
        finite: Set[str],
        progress: StepProgress,
        begun_s: Optional[float],
        stop: Stop,
        mask: Mask,
        wanted: AbstractSet[int] = frozenset(),
    ) -> None:
        # Steps first: other metrics belong to them.
        self.patterns = {name: patterns[name] for name in sorted(patterns, key=lambda name: name != _STEP)}
        self.series: Dict[Tuple[str, int], ValueSeries] = {}
        self._finite = finite
        self._progress = progress
        self._begun_s = begun_s
        self._stop = stop
        self._mask = mask
        self._wanted = wanted
        # Without a step pattern, other metrics count steps.
        self._counts_steps = next((name for name in (_STEP, "step_time", _LOSS) if name in patterns), None)
        self._steps_of: Dict[int, Optional[int]] = {}  # by the start of a line of the current block
        self._steps_in: Tuple[List[int], List[Optional[int]]] = ([], [])  # offsets and steps in a window
        self._shapes = Shapes()
        self._standing = False  # the step number does not change
        self._step_before: Optional[int] = None  # last step of the earlier blocks

    def next_block(self, host: int) -> None:
        steps = self.series.get((_STEP, host))
        self._step_before = steps.last.step if steps is not None else None
        self._steps_of, self._steps_in = {}, ([], [])

    def read(self, name: str, block: LogPart, host: int, now_s: Optional[float]) -> None:
        self._now_s = now_s
        self._at_s = None if now_s is None or self._begun_s is None else now_s - self._begun_s
        pattern = self.patterns[name]
        series = self.series.get((name, host))
        if series is None:
            wanted = self._wanted if name == _LOSS else frozenset()
            series = self.series[name, host] = ValueSeries(name, host, wanted)
        if isinstance(block, Window):
            for token, offset in pattern.in_window(block):
                self._value(series, token, block, offset)
            return
        many = series.stride > 1 and pattern.literals and len(block.data) > MANY_BYTES
        if many and not self._has_wanted(series, block):
            total = self._shapes.count(pattern, block)
            if total is None:
                tokens = pattern.tokens(block)
                total = len(tokens) if all_plain(tokens) else 0
            last = pattern.last_before(block, len(block.data)) if total > MANY else None
            if last is not None:
                self._sample(series, pattern, block, total, last)
                return
        for token, offset in pattern.matches(block):
            self._value(series, token, block, offset)

    def _sample(self, series: ValueSeries, pattern: Pattern, block: Block, total: int, last: Match) -> None:
        """Keeps an even sample of thousands of plain numbers, and the last one."""
        taken = offset = 0
        self._standing = series.name == _STEP and whole(number(last[0])) == series.last.step
        while taken + series.until_due() < total - 1:
            skip = series.until_due()
            at = max(offset, len(block.data) * (taken + skip + 1) // total)
            found = pattern.last_before(block, at)
            if found is None or not offset <= found[1] < last[1]:
                self._pass_over(series, skip + 1)
            else:
                self._pass_over(series, skip)
                self._value(series, found[0], block, found[1])
                offset = found[1] + 1
            taken += skip + 1
        self._pass_over(series, total - 1 - taken)
        self._value(series, last[0], block, last[1])

    def _has_wanted(self, series: ValueSeries, block: Block) -> bool:
        """Whether some values may be of wanted steps: then all are read, one by one."""
        steps = self.patterns.get(_STEP)
        if steps is None or not series.wanted:
            return False
        return not series.wanted.isdisjoint([self._step_before, *map(number, steps.tokens(block))])

    def _pass_over(self, series: ValueSeries, count: int) -> None:
        series.count += count  # certainly finite, and not kept
        if series.name == self._counts_steps and not self._standing:
            self._progress.of(series.host).passed(count, self._now_s)

    def _value(self, series: ValueSeries, token: Optional[bytes], block: LogPart, offset: int) -> None:
        value = number(token)
        if series.name == _STEP:
            step = whole(value)
            if isinstance(block, Window):
                self._steps_in[0].append(offset)
                self._steps_in[1].append(step)
            else:
                self._steps_of[block.data.rfind(b"\n", 0, offset) + 1] = step
            if step is not None:
                self._progress.saw(series.host, step, self._now_s)
        else:
            step = self._step_at(block, offset)
            if series.name == self._counts_steps:
                self._progress.saw(series.host, None, self._now_s)
        line = block.line_at(offset)
        rank = None if isinstance(block, Window) else rank_of(block.data[slice(*block.bounds(offset))])
        series.add(Metric(value, line, step, self._at_s, rank))
        if series.name in self._finite and value is not None and not math.isfinite(value):
            reading = {"name": series.name, "host": series.host, "line": line, "step": step, "value": to_json(value)}
            self._stop("value", dict(reading, text=block.text_at(offset, self._mask)), self._now_s)

    def _step_at(self, block: LogPart, offset: int) -> Optional[int]:
        """Returns the step of a metric: that of its own line, else the last one before it. In a long line, which may
        have many steps, the last one before it takes precedence."""
        pattern = self.patterns.get(_STEP)
        if pattern is None:
            return None
        if isinstance(block, Window):
            offsets, steps = self._steps_in
            index = bisect_right(offsets, offset) - 1
            return steps[max(index, 0)] if steps and (index >= 0 or block.start == 0) else self._step_before
        start = block.data.rfind(b"\n", 0, offset) + 1
        if start in self._steps_of:
            return self._steps_of[start]
        line = block.data[start : block.bounds(offset)[1]]
        token = pattern.on_line(line) if pattern.may_match(line) else None
        if token is None:
            before = pattern.last_before(block, start)
            token = before[0] if before else None
        self._steps_of[start] = self._step_before if token is None else whole(number(token))
        return self._steps_of[start]

    def find_not_finite(self, name: str, block: LogPart, host: int, now_s: float) -> None:
        """Searches only for values that are not finite; the block will be read again."""
        if name not in self._finite:
            return
        pattern = self.patterns[name]
        found = pattern.in_window(block, again=True) if isinstance(block, Window) else pattern.matches(block)
        for token, offset in found:
            value = number(token)
            if value is not None and not math.isfinite(value):
                reading = {"name": name, "host": host, "line": block.line_at(offset), "value": to_json(value)}
                self._stop("value", dict(reading, text=block.text_at(offset, self._mask)), now_s)

    def result(self) -> Dict[str, Any]:
        values: Dict[str, Dict[str, Any]] = {name: {} for name in self.patterns}
        for (name, host), series in sorted(self.series.items()):
            values[name][str(host)] = series.result()
        return values

    def text(self) -> str:
        """Returns the progress as text."""
        parts = []
        for name in (_STEP, _LOSS, "step_time"):
            series = next((self.series[key] for key in sorted(self.series) if key[0] == name), None)
            if series is not None and series.last.value is not None:
                parts.append("%s %s" % (name, to_json(series.last.value)))
        return ", ".join(parts)
