"""How series read: figures with their units, dates, bounds, changes and alarms as plain words."""

import time

from seatrial.job import Bound, BoundState
from seatrial.report.series import Moved, Precision, SeriesView, Together
from seatrial.report.text import count, one_line

MOST_NAMES = 4


def figure(value: float | None, unit: str = "") -> str:
    if value is None:
        return "open"
    text = f"{value:.4g}"
    if "e" in text and 1e-3 <= abs(value) < 1e15:
        text = f"{value:,.0f}"
    return f"{text} {one_line(unit)}".rstrip()


def day(at_s: float | None) -> str:
    if at_s is None:
        return ""
    try:
        date = time.gmtime(at_s)
    except (OverflowError, OSError, ValueError):
        return "at no known time"
    return f"{date.tm_mday} {time.strftime('%b %Y', date)}"


def percent(share: float) -> str:
    if abs(share) >= 10:
        return f"{share + 1:,.4g} times" if share > 0 else f"{share:+.0%}"
    return f"{share * 100:+.1f} %" if abs(share) < 0.0995 else f"{share * 100:+.0f} %"


def sure(confidence: float) -> str:
    """Never more than it is: 100 % does not exist."""
    return "> 99.9 % sure" if confidence > 0.999 else f"{int(confidence * 1000) / 10:g} % sure"


def commit_text(commit: str) -> str:
    word = one_line(commit)
    return word[:10] if len(word) >= 20 and all(char in "0123456789abcdef" for char in word) else word[:60]


def bound_text(bound: Bound) -> str:
    whence = f"{count(bound.runs, 'run')}{f' since {day(bound.since_s)}' if bound.since_s else ''}"
    where = one_line(bound.source.rpartition("/")[2])  # a report is read elsewhere, too
    if bound.state is not BoundState.USABLE:
        return f"no bound yet from {where}: {one_line(bound.why) or bound.state.value} ({whence})"
    alarms = f", one in {1 / bound.false_alarm:,.0f} good runs would be out of it" if bound.false_alarm else ""
    made = f"{whence}{alarms}; " if bound.runs else ""
    return f"bound {figure(bound.lower)} to {figure(bound.upper, bound.unit)} ({made}from {where})"


def change_text(moved: Moved, unit: str) -> str:
    parts = [
        day(moved.at_s),
        f"{figure(moved.before)} → {figure(moved.after, unit)}",
        f"{percent(moved.size)}{f' {moved.way}' if moved.way else ''}",
        sure(moved.confidence),
        f"run {one_line(moved.run)}",
        f"commit {commit_text(moved.commit)}" if moved.commit else "",
    ]
    return ", ".join(part for part in parts if part)


def together_text(group: Together) -> str:
    """One sentence: where, how many, and which way."""
    where = f"At commit {commit_text(group.commit)}" if group.commit else f"At run {one_line(group.run)}"
    sentence = (
        f"{where} ({day(group.at_s)}) {count(len({name for name, _ in group.moved}), 'series', 'series')} moved: "
    )
    parts = []
    for way in ("worse", "better", ""):
        moves = [(name, moved.size) for name, moved in group.moved if moved.way == way]
        if moves:
            sizes = sorted(abs(size) for _, size in moves)
            ends = list(dict.fromkeys(percent(size).removeprefix("+") for size in (sizes[0], sizes[-1])))
            span = " to ".join(ends)
            parts.append(f"{len(moves)} {way or 'moved'} by {span} ({_names([name for name, _ in moves])})")
    return sentence + "; ".join(parts)


def _names(names: list[str]) -> str:
    shown = [one_line(name) for name in sorted(set(names))]
    more = len(shown) - MOST_NAMES
    return ", ".join(shown[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def precision_text(found: Precision) -> str:
    if not found.alarms:
        return "no alarm was ever raised here"
    told = count(found.alarms, "alarm")
    if found.share is None:
        return f"{told}, none judged yet: `seatrial history mark RUN --regression` or `--false-alarm` keeps your word"
    words = f"{told}: {found.confirmed} confirmed, {found.false} false"
    rest = f", {found.unjudged} not judged" if found.unjudged else ""
    return f"{words}{rest}; precision {found.share * 100:.0f} % of those judged"


def title(view: SeriesView) -> str:
    better = f", {view.better} is better" if view.better else ""
    unit = one_line(view.unit) or "no unit"
    return f"{one_line(view.metric)} ({unit}{better})"


def left_out_text(view: SeriesView) -> str:
    return "; ".join(f"{number} {reason}" for reason, number in view.left_out.items())
