"""Reads values of a file of bounds by their kind, and collects what is wrong with them, each at its place."""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from seatrial.baseline.entry import CAP, FLOOR, relative_half_width, seconds_of
from seatrial.job import Bound, BoundState, Level
from seatrial.suite.problem import Mark, Problem
from seatrial.suite.source import Source

Path = tuple[str | int, ...]


class Sheet:
    """A source, with its problems and warnings. A value that is not there is None and no problem, unless said."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = list(source.problems)
        self._warnings: list[Problem] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        ordered = sorted(self._warnings, key=lambda one: (one.mark.line, one.mark.column) if one.mark else (0, 0))
        return tuple(dict.fromkeys(str(one).splitlines()[0] for one in ordered))

    def line(self, path: Path) -> int:
        return self.source.find(path, key=True)[0].line

    def error(self, path: Path, message: str, key: bool = False) -> None:
        self.problems.append(Problem(message, self.source.find(path, key)[0]))

    def warn(self, path: Path, message: str, key: bool = False) -> None:
        self._warnings.append(Problem(message, self.source.find(path, key)[0]))

    def warn_at(self, line: int, column: int, message: str) -> None:
        self._warnings.append(Problem(message, Mark(self.source.file, line, column)))

    def map(self, path: Path, value: Any, what: str) -> dict[str, Any]:
        """The map at `path`; nothing there is an empty one."""
        if value is not None and not isinstance(value, dict):
            self.error(path, f"expected a map {what}, got {shown(value)}")
        return value if isinstance(value, dict) else {}

    def number(self, path: Path, values: dict[str, Any], above: float | None = None) -> float | None:
        value = values.get(str(path[-1]))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.error(path, f"`{path[-1]}` is a number, not {shown(value)}{_advice(value)}")
            return None
        if above is not None and value <= above:
            self.error(path, f"`{path[-1]}` is more than {above:g}, not {value:g}")
            return None
        return float(value)

    def count(self, path: Path, values: dict[str, Any]) -> int:
        number = self.number(path, values)
        if number is not None and (number < 0 or number != math.floor(number)):
            self.error(path, f"`{path[-1]}` is a whole number of runs, not {number:g}")
            return 0
        return int(number or 0)

    def text(self, path: Path, values: dict[str, Any]) -> str:
        value = values.get(str(path[-1]))
        if value is None or isinstance(value, str):
            return value or ""
        # Hex digits without a letter, say: YAML makes a number of what was meant as a name.
        raw = self.source.find(path)[1]
        if raw is not None:
            return raw
        self.error(path, f"`{path[-1]}` is text, not {shown(value)}")
        return ""

    def reason(self, path: Path, values: dict[str, Any]) -> str:
        """The text of `disabled`: never empty, for a switch without a reason is forgotten on."""
        if path[-1] not in values:
            return ""
        value = values[str(path[-1])]
        if not isinstance(value, str) or not value.strip():
            self.error(path, f"`{path[-1]}` is the reason, as text, not {shown(value)}")
            return "no reason is given"
        return value

    def choice(self, path: Path, values: dict[str, Any], known: Iterable[str], default: str) -> str:
        value, names = values.get(str(path[-1])), list(known)
        if value is None or value in names:
            return value or default
        self.error(path, f"`{path[-1]}` is one of {', '.join(names)}, not {shown(value)}")
        return default

    def time(self, path: Path, values: dict[str, Any]) -> float | None:
        text = self.text(path, values)
        if not text:
            return None
        try:
            return seconds_of(text)
        except (ValueError, OverflowError):
            self.error(path, f"`{path[-1]}` is a time like 2026-10-03T12:00:00Z, not {shown(text)}")
            return None

    def level(self, path: Path, value: Any) -> Level | None:
        values = self.map(path, value, "with `run`, `at`, `before` and `after`")
        before, after = self.number((*path, "before"), values), self.number((*path, "after"), values)
        if before is None or after is None:
            return None
        return Level(self.text((*path, "run"), values), self.time((*path, "at"), values) or 0.0, before, after)

    def false_alarm(self, path: Path, values: dict[str, Any]) -> float | None:
        share = self.number(path, values, above=0)
        if share is not None and share >= 1:
            self.error(path, f"`{path[-1]}` is a share of all good runs, less than 1, not {share:g}")
        return share

    def check_shares(self, path: Path, floor: float | None, cap: float | None, bound: Bound) -> None:
        """`floor` and `cap` of the map at `path`: shares of the center, in their order, as `update` needs them."""
        # Only --force makes bounds this wide, and it raises both with them; else 5 was meant as 5 %.
        forced = (relative_half_width(bound) or 0.0) >= 1
        if floor is not None and (floor < 0 or (floor >= 1 and not forced)):
            told = "a share of the center, from 0 to less than 1 (0.015 is 1.5 %)"
            self.error((*path, "floor"), f"`floor` is {told}, not {floor:g}")
        elif cap is not None and cap > 1 and not forced:
            self.error((*path, "cap"), f"`cap` is a share of the center, at most 1 (0.2 is 20 %), not {cap:g}")
        elif floor is not None and floor > (CAP if cap is None else cap):
            which = f"the cap of {CAP:g} that holds without a `cap`" if cap is None else f"`cap` {cap:g}"
            self.error((*path, "floor"), f"`floor` {floor:g} is above {which}: no bounds could be made")
        elif floor is None and cap is not None and cap < FLOOR:
            which = f"the floor of {FLOOR:g} that holds without a `floor`"
            self.error((*path, "cap"), f"`cap` {cap:g} is below {which}: no bounds could be made")

    def width_runs(self, path: Path, values: dict[str, Any]) -> int | None:
        """Of `width: {runs: 8}`: how many runs before those of the center the width is of."""
        width = self.map((*path, "width"), values.get("width"), "with `runs`")
        return self.count((*path, "width", "runs"), width) if width else None

    def check_sides(self, path: Path, bound: Bound, lower: str, center: str, cap: float) -> None:
        """What is wrong or odd about two bounds and their center; `lower` and `center` are how the file calls them."""
        low, high, middle = bound.lower, bound.upper, bound.center
        if low is not None and high is not None and low > high:
            self.error((*path, lower), f"the lower bound {low:g} is above the upper bound {high:g}")
            return
        if middle is not None and ((low is not None and middle < low) or (high is not None and middle > high)):
            self.warn((*path, center), f"`{center}` {middle:g} is not inside its own bounds, {low} to {high}")
        half = relative_half_width(bound)
        if half is not None and half > cap and bound.state is BoundState.USABLE:
            wide = f"the bounds are {half:.1%} to each side, more than the cap of {cap:.0%}"
            self.warn((*path, lower), f"{wide}: they find next to nothing")

    def provenance(self, path: Path, values: dict[str, Any]) -> dict[str, Any]:
        """The fields of an Entry that say where its bound comes from; all of them are optional."""
        accepted = self.map((*path, "accepted"), values.get("accepted"), "with `run` and `at`")
        reasons = self._list((*path, "reasons"), values)
        return {
            "method": self.text((*path, "method"), values),
            "floor": self.number((*path, "floor"), values),
            "cap": self.number((*path, "cap"), values, above=0),
            "hardware": self.text((*path, "hardware"), values),
            "used": tuple(map(str, self._list((*path, "used"), values))),
            "left_out": self._left_out((*path, "left_out"), values.get("left_out")),
            "accepted": self.text((*path, "accepted", "run"), accepted),
            "accepted_s": self.time((*path, "accepted", "at"), accepted),
            "accepted_until_s": self.time((*path, "accepted", "until"), accepted),
            "reasons": tuple({k: str(v) for k, v in one.items()} for one in reasons if isinstance(one, dict)),
        }

    def _left_out(self, path: Path, value: Any) -> dict[str, str]:
        """Run -> why. Written the other way round, so that a reason stands there once: {why: [run, run]}."""
        found: dict[str, str] = {}
        for why, runs in self.map(path, value, "of reasons, each with a list of runs").items():
            found |= dict.fromkeys(map(str, runs), why) if isinstance(runs, list) else {why: str(runs)}
        return found

    def _list(self, path: Path, values: dict[str, Any]) -> list[Any]:
        value = values.get(str(path[-1]))
        if value is not None and not isinstance(value, list):
            self.error(path, f"`{path[-1]}` is a list, not {shown(value)}")
        return value if isinstance(value, list) else []

    def near_misses(self, path: Path, values: dict[str, Any], known: Iterable[str]) -> None:
        """A further key is the user's own, and kept; one that is nearly a known one is probably a slip."""
        names = list(known)
        for key in values:
            close = get_close_matches(key.lower()[:100], names, n=1, cutoff=0.8)
            if key not in names and close and close[0] not in values:
                self.warn(
                    (*path, key), f"unknown key {key!r} is kept and does nothing; did you mean {close[0]!r}?", True
                )


def shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else repr(value if not isinstance(value, str) else value[:60])


def _advice(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    word = value.strip().lstrip("+-.").lower()
    if word in ("nan", "inf", "infinity"):
        return "; nothing is inside such a bound. Take the line out, or `seatrial baseline update` it"
    try:
        return "; write it without quotes" if math.isfinite(float(value)) else ""
    except ValueError:
        return ""
