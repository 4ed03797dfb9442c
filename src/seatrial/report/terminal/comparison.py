"""The comparison of two runs for a terminal: a plain sentence first, then what moved, what else changed."""

from collections import Counter

from seatrial.job import Change, differences_text, pair_text
from seatrial.job.units import count
from seatrial.report.terminal.lines import Line, glyph, more_lines
from seatrial.report.view.compare import Movement, RunComparison
from seatrial.report.view.words import commit_text, confidence_text, fit, one_line, percent_text, shorten

_MOST_LINES = 30  # lines of each kind
MANY_METRICS = 50  # metrics, of which some are sure by chance


_CHANGES = {
    Change.NEW: "newly failing",
    Change.SLOWER: "newly slower",
    Change.FASTER: "newly faster",
    Change.FIXED: "fixed",
}


def compare_lines(found: RunComparison) -> list[Line]:
    moved = [one for one in found.metrics if one.moved]
    maybe = [one for one in found.metrics if one.maybe]
    lines: list[Line] = [[(_headline(found), "bold")], [(_runs(found), "dim")], []]
    lines += _section("moved", moved)
    lines += _section("perhaps moved", maybe)
    if len(found.metrics) >= MANY_METRICS and moved:
        chance = max(1, round(len(found.metrics) / 100))
        lines += [
            [(f"of {len(found.metrics):,} metrics that did not move about {chance} would look sure by chance", "dim")],
            [],
        ]
    lines += _causes(found)
    lines += _verdicts(found)
    lines += _settings(found)
    for run, ids in ((found.before, found.only_before), (found.after, found.only_after)):
        if ids:
            lines.append([(f"only in {one_line(run)}", "bold")])
            lines += [[(f"  {one_line(name)}", "")] for name in ids[:_MOST_LINES]]
            lines += [*more_lines(len(ids) - _MOST_LINES), []]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _headline(found: RunComparison) -> str:
    moved = [one for one in found.metrics if one.moved]
    if not found.cells and not found.metrics:
        return "The two runs have no cell in common."
    if not found.metrics:
        metrics = "No judged metric is in both runs" if not found.fingerprints else "No metric can be compared"
    elif not moved:
        maybe = sum(one.maybe for one in found.metrics)
        metrics = f"None of {count(len(found.metrics), 'metric')} surely moved{f', {maybe} perhaps' if maybe else ''}"
    else:
        worst = next((one for one in moved if one.way == "worse"), moved[0])
        ways = [
            f"{sum(one.way == way for one in moved)} {way}"
            for way in ("worse", "better")
            if any(one.way == way for one in moved)
        ]
        directions = f" ({', '.join(ways)})" if ways else ""
        some = f"{len(moved)} of {count(len(found.metrics), 'metric')}"
        metrics = f"{some} moved{directions}, first of all {_movement_text(worst)}"
    verdicts = count(len(found.verdicts), "verdict is another", "verdicts are others")
    changes = Counter(one.change for one in found.verdicts)
    ways = [f"{changes[change]} {text}" for change, text in _CHANGES.items() if changes[change]]
    verdicts += f" ({', '.join(ways)})" if ways else ""
    rest = f"; {verdicts}" if found.verdicts else "; every verdict is the same"
    return f"{metrics}{rest}."


def _movement_text(one: Movement) -> str:
    size = percent_text(one.size) if one.size is not None else _levels(one)
    return f"{one_line(one.metric)} of {one_line(one.benchmark)}: {size}"


def _levels(one: Movement) -> str:
    return pair_text(one.before, one.after, one_line(one.unit), none="open")


def _runs(found: RunComparison) -> str:
    sides = [
        f"{one_line(run)}{f' (commit {commit_text(commit)})' if commit else ''}"
        for run, commit in ((found.before, found.commit_before), (found.after, found.commit_after))
    ]
    return f"{sides[0]} → {sides[1]}, {count(found.cells, 'cell')} in both"


def _section(title: str, movements: list[Movement]) -> list[Line]:
    if not movements:
        return []
    lines: list[Line] = [[(title, "bold")]]
    for one in movements[:_MOST_LINES]:
        style = {"worse": "yellow", "better": "green"}.get(one.way, "")
        lines.append([(f"  {one_line(one.benchmark)}  ", ""), (one_line(one.metric), "bold")])
        lines.append([(f"    {_levels(one)}  {_size(one)}", style), (f"  {_how(one)}", "dim")])
    return [*lines, *more_lines(len(movements) - _MOST_LINES), []]


def _size(one: Movement) -> str:
    if one.size is None:
        return one.way
    ends = [percent_text(end) for end in (one.low, one.high) if end is not None]
    span = f" ({' to '.join(ends)})" if len(ends) == 2 else ""
    return f"{percent_text(one.size)}{span} {one.way}".rstrip()


def _how(one: Movement) -> str:
    if one.why and not one.sure:
        return one.why
    noise = f", noise {one.noise * 100:.2g} % from {one.noise_runs} earlier runs" if one.noise is not None else ""
    return f"{confidence_text(one.sure)}, {one.n_before} against {count(one.n_after, 'value')}{noise}"


def _causes(found: RunComparison) -> list[Line]:
    """What the failures of both runs come down to: new, gone, or in how many cells then and now."""
    if not found.causes:
        return []
    lines: list[Line] = [[("causes", "bold")]]
    for one in found.causes[:_MOST_LINES]:
        mark, colour = glyph(one.verdict)
        change = "new" if not one.before else "gone" if not one.after else "known"
        cells = f"{one.before} → {count(one.after, 'cell')}"
        lines.append(
            [
                (f"  {mark} {change}  ", colour if one.after else "green"),
                (f"{cells}  ", "dim"),
                (fit(one_line(one.text), 200), ""),
            ]
        )
    return [*lines, *more_lines(len(found.causes) - _MOST_LINES), []]


def _verdicts(found: RunComparison) -> list[Line]:
    if not found.verdicts:
        return []
    lines: list[Line] = [[("another verdict", "bold")]]
    for one in found.verdicts[:_MOST_LINES]:
        mark, colour = glyph(one.after)
        lines.append([(f"  {mark} {one.before} → {one.after}  ", colour), (one_line(one.id), "")])
        if one.why:
            lines.append([(f"      {one_line(shorten(one.why, 300))}", "dim")])
    return [*lines, *more_lines(len(found.verdicts) - _MOST_LINES), []]


def _settings(found: RunComparison) -> list[Line]:
    lines: list[Line] = []
    if found.under_test:
        lines.append([("under test", "bold")])
        for group in found.under_test[:_MOST_LINES]:
            names = group.benchmarks
            where = one_line(names[0]) if len(names) == 1 else count(len(names), "benchmark")
            lines.append([(f"  {one_line(differences_text(group.differences))}  ", ""), (f"in {where}", "dim")])
        lines += [*more_lines(len(found.under_test) - _MOST_LINES), []]
    if found.fingerprints:
        lines.append([("other conditions: metrics are not compared", "bold")])
        for one in found.fingerprints[:_MOST_LINES]:
            why = differences_text(one.differences) or "which ones, an older Seatrial did not write"
            lines.append([(f"  {one_line(one.benchmark)}  ", ""), (one_line(why), "dim")])
        lines += [*more_lines(len(found.fingerprints) - _MOST_LINES), []]
    return lines
