"""The comparison of two runs for a terminal: one sentence, then metrics, causes, verdicts and other differences."""

from seatrial.job import differences_text
from seatrial.job.units import count
from seatrial.report.terminal.lines import Line, glyph, section
from seatrial.report.view.compare import (
    Movement,
    OtherCause,
    OtherConditions,
    OtherUnderTest,
    OtherVerdict,
    RunComparison,
)
from seatrial.report.view.sentences import comparison_sentence, levels_text
from seatrial.report.view.words import (
    commit_text,
    confidence_text,
    fit,
    grouped,
    listed,
    one_line,
    percent_text,
    shorten,
)

_MOST = 30  # of each kind
MANY_METRICS = 50  # from this number on, some changes look certain by chance


def compare_lines(found: RunComparison) -> list[Line]:
    moved = [one for one in found.metrics if one.moved]
    sides = [
        f"{one_line(run)}{f' (commit {commit_text(commit)})' if commit else ''}"
        for run, commit in ((found.before, found.commit_before), (found.after, found.commit_after))
    ]
    about = f"{sides[0]} → {sides[1]}, {count(found.cells, 'cell')} in both"
    lines: list[Line] = [[(comparison_sentence(found), "bold")], [(about, "dim")], []]
    lines += section("changed metrics", map(_movement, moved), _MOST)
    lines += section("possible changes", [_movement(one) for one in found.metrics if one.maybe], _MOST)
    if len(found.metrics) >= MANY_METRICS and moved:
        chance = max(1, round(len(found.metrics) / 100))
        text = f"of {len(found.metrics):,} metrics, about {chance} would look changed by chance"
        lines += [[(text, "dim")], []]
    lines += section("causes", map(_cause, found.causes), _MOST)
    verdicts = grouped(found.verdicts, lambda one: (one.before, one.after, one.why)).values()
    lines += section("changed verdicts", map(_verdict, verdicts), _MOST)
    lines += section("changes under test", map(_under_test, found.under_test), _MOST)
    conditions = grouped(found.fingerprints, lambda one: differences_text(one.differences)).values()
    lines += section("different conditions: metrics are not compared", map(_conditions, conditions), _MOST)
    for run, ids in ((found.before, found.only_before), (found.after, found.only_after)):
        lines += section(f"only in {one_line(run)}", [[[(f"  {one_line(id_)}", "")]] for id_ in ids], _MOST)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _movement(one: Movement) -> list[Line]:
    size = one.way
    if one.size is not None:
        ends = [percent_text(end) for end in (one.low, one.high) if end is not None]
        span = f" ({' to '.join(ends)})" if len(ends) == 2 else ""
        size = f"{percent_text(one.size)}{span} {one.way}".rstrip()
    how = one.why
    if one.sure or not one.why:
        noise = f", noise {one.noise * 100:.2g} % from {one.noise_runs} earlier runs" if one.noise is not None else ""
        how = f"{confidence_text(one.sure)}, {one.n_before} vs. {count(one.n_after, 'value')}{noise}"
    style = {"worse": "yellow", "better": "green"}.get(one.way, "")
    return [
        [(f"  {one_line(one.benchmark)}  ", ""), (one_line(one.metric), "bold")],
        [(f"    {levels_text(one)}  {size}", style), (f"  {how}", "dim")],
    ]


def _cause(one: OtherCause) -> list[Line]:
    """A cause of either run: new, gone or known, with the number of cells in both."""
    mark, colour = glyph(one.verdict)
    change = "new" if not one.before else "gone" if not one.after else "known"
    cells = f"{one.before} → {count(one.after, 'cell')}"
    head = (f"  {mark} {change}  ", colour if one.after else "green")
    return [[head, (f"{cells}  ", "dim"), (fit(one_line(one.text), 200), "")]]


def _verdict(group: list[OtherVerdict]) -> list[Line]:
    one = group[0]
    mark, colour = glyph(one.after)
    why: list[Line] = [[(f"      {one_line(shorten(one.why, 300))}", "dim")]] if one.why else []
    return [
        [(f"  {mark} {one.before} → {one.after}  ", colour), (listed([each.id for each in group], 3, "cell"), "")],
        *why,
    ]


def _under_test(group: OtherUnderTest) -> list[Line]:
    names = group.benchmarks
    where = one_line(names[0]) if len(names) == 1 else count(len(names), "benchmark")
    return [[(f"  {one_line(differences_text(group.differences))}  ", ""), (f"in {where}", "dim")]]


def _conditions(group: list[OtherConditions]) -> list[Line]:
    why = differences_text(group[0].differences) or "unknown: recorded by an older Seatrial"
    names = listed([one.benchmark for one in group], 3, "benchmark")
    return [[(f"  {names}  ", ""), (one_line(why), "dim")]]
