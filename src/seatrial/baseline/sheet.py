"""Validates a baseline file while it is read, and collects problems and warnings with their positions."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel

from seatrial.baseline.models import CAP, FLOOR, Provenance, relative_half_width
from seatrial.job import Bound, BoundState
from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, describe
from seatrial.suite.yaml.source import Source

_M = TypeVar("_M", bound=BaseModel)
_MOST_WIDTH = 10.0  # half-width as a share of the center; wider is a warning even if the cap allows it


class Sheet:
    """A source with its warnings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._warnings: list[Problem] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        ordered = sorted(self._warnings, key=lambda one: (one.mark.line, one.mark.column) if one.mark else (0, 0))
        return tuple(dict.fromkeys(str(one).splitlines()[0] for one in ordered))

    def line(self, path: KeyPath) -> int:
        return self.source.find(path, key=True)[0].line

    def warn(self, path: KeyPath, message: str, key: bool = False) -> None:
        self._warnings.append(Problem(message, self.source.find(path, key)[0]))

    def warn_at(self, line: int, column: int, message: str) -> None:
        self._warnings.append(Problem(message, SourceMark(self.source.file, line, column)))

    def map(self, path: KeyPath, what: str) -> dict[str, Any]:
        """The map at `path`; empty if there is none."""
        value = self.source.data
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            self.source.report_path(path, f"expected a map {what}, got {describe(value)}")
        return value if isinstance(value, dict) else {}

    def validated(self, model: type[_M], written: Any, path: KeyPath) -> _M | None:
        """The entry at `path`; None if it has errors. Likely typos in keys are warnings."""
        data = written if written is not None else {}
        if isinstance(data, dict):
            self.warn_of_slips(path, data, model.model_fields)
        return self.source.validated(model, data, path)

    def check_shares(self, path: KeyPath, keys: Provenance, bound: Bound) -> None:
        """Checks `floor` and `cap` in the map at `path`: shares of the center, floor below cap."""
        floor, cap = keys.floor, keys.cap
        # Only --force makes bounds this wide, and it raises both; otherwise 5 was meant as 5 %.
        forced = (relative_half_width(bound) or 0.0) >= 1
        if floor is not None and (floor < 0 or (floor >= 1 and not forced)):
            share = "a share of the center, from 0 to less than 1 (0.015 is 1.5 %)"
            self.source.report_path((*path, "floor"), f"invalid `floor`: expected {share}, got {floor:g}")
        elif cap is not None and cap > 1 and not forced:
            share = "a share of the center, at most 1 (0.2 is 20 %)"
            self.source.report_path((*path, "cap"), f"invalid `cap`: expected {share}, got {cap:g}")
        elif floor is not None and floor > (CAP if cap is None else cap):
            which = f"the default cap of {CAP:g}" if cap is None else f"`cap` {cap:g}"
            self.source.report_path((*path, "floor"), f"`floor` {floor:g} is above {which}; lower it, or raise `cap`")
        elif floor is None and cap is not None and cap < FLOOR:
            which = f"the default floor of {FLOOR:g}"
            self.source.report_path((*path, "cap"), f"`cap` {cap:g} is below {which}; raise it, or set `floor`")

    def check_sides(self, path: KeyPath, bound: Bound, lower: str, center: str, cap: float) -> None:
        """Checks the order and width of the bounds; `lower` and `center` are the keys in the file."""
        low, high, middle = bound.lower, bound.upper, bound.center
        if low is not None and high is not None and low > high:
            self.source.report_path((*path, lower), f"the lower bound {low:g} is above the upper bound {high:g}")
            return
        if middle is not None and ((low is not None and middle < low) or (high is not None and middle > high)):
            self.warn((*path, center), f"`{center}` {middle:g} is outside its bounds {low} to {high}")
        half = relative_half_width(bound)
        if half is None and middle:  # one side is open
            half = max((abs(side - middle) / abs(middle) for side in (low, high) if side is not None), default=0.0)
        if half is None or bound.state is not BoundState.USABLE:
            return
        if half > _MOST_WIDTH:
            advice = "narrow the bounds, or run `seatrial baseline update`"
            self.warn((*path, lower), f"±{half:,.0%} accepts almost any value; {advice}", low is None)
        elif half > cap and low is not None and high is not None:
            self.warn((*path, lower), f"±{half:.1%} exceeds the cap of ±{cap:.0%} and would miss most regressions")

    def warn_of_slips(self, path: KeyPath, values: Mapping[str, Any], known: Iterable[str]) -> None:
        """Warns of unknown keys that resemble a known one. Other unknown keys are kept silently."""
        names = list(known)
        for key in values:
            close = get_close_matches(key.lower()[:100], names, n=1, cutoff=0.8)
            if key not in names and close and close[0] not in values:
                message = f"unknown key {key!r} has no effect; did you mean {close[0]!r}?"
                self.warn((*path, key), message, True)
