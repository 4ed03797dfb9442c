"""What each cell of a trial came to over its runs, for a terminal: a mark a run, how often it passed, how it failed."""

from collections import Counter
from collections.abc import Sequence

from seatrial.job.units import count
from seatrial.record.history import CellRow
from seatrial.report.symbols import SYMBOLS
from seatrial.report.terminal.lines import Line, glyph
from seatrial.report.text import fit, one_line, pad, width
from seatrial.report.trend.describe import date_text

RUNS_SHOWN = 30
_MOST_CELLS = 30  # with a line each
NOT_JUDGED = frozenset({"skipped"})  # was not run: neither for the cell nor against it


def cell_history_lines(trial: str, rows: Sequence[CellRow], columns: int) -> list[Line]:
    """Cells with a failure or a retry, the latest trouble first; those that always passed are counted together."""
    runs = list(dict.fromkeys(row.run for row in rows))
    cells: dict[str, dict[str, CellRow]] = {}
    for row in rows:
        cells.setdefault(row.id, {})[row.run] = row
    found = (id_ for id_, of in cells.items() if any(map(_trouble, of.values())))
    troubled = sorted(found, key=lambda id_: _latest_first(id_, cells[id_], runs))
    quiet = [id_ for id_ in cells if id_ not in set(troubled)]
    heading = f"  {count(len(cells), 'cell')} over {count(len(runs), 'run')}, the newest at the right"
    lines: list[Line] = [[(one_line(trial), "bold"), (heading, "dim")]]
    shown = [*troubled, *(quiet if len(cells) <= _MOST_CELLS else [])][:_MOST_CELLS]
    name = min(max(map(width, map(one_line, shown)), default=0), max(20, columns - len(runs) - 36))
    for id_ in shown:
        lines.append(_cell(id_, cells[id_], runs, name, columns))
        lines += _last_failure(cells[id_], columns)
    if hidden := len(troubled) - _MOST_CELLS:
        lines += [[(f"  … and {count(hidden, 'more cell')} with a failure", "dim")]] if hidden > 0 else []
    if quiet and len(cells) > _MOST_CELLS:
        lines.append([(f"  {count(len(quiet), 'cell')} passed in every run", "green")])
    return lines


def _trouble(row: CellRow) -> bool:
    return not row.good or row.flaky


def _latest_first(id_: str, of: dict[str, CellRow], runs: list[str]) -> tuple[int, str]:
    return -max(runs.index(row.run) for row in of.values() if _trouble(row)), id_


def _cell(id_: str, of: dict[str, CellRow], runs: list[str], name: int, columns: int) -> Line:
    line: Line = [(f"  {pad(fit(one_line(id_), name), name)}  ", "")]
    for run in runs:
        row = of.get(run)
        line.append(glyph("flaky" if row.flaky else row.verdict) if row else (" ", ""))
    used = sum(width(text) for text, _ in line)
    return [*line, (f"  {fit(_share(list(of.values())), max(10, columns - used - 2))}", "")]


def _share(rows: list[CellRow]) -> str:
    judged = [row for row in rows if row.verdict not in NOT_JUDGED]
    counted = Counter(row.verdict for row in judged)
    flaky = sum(row.flaky for row in judged)
    parts = [f"{counted.pop('passed', 0)} of {len(judged)} passed"]
    parts += [f"{number} {verdict}" for verdict, number in counted.most_common()]
    parts += [f"{flaky} flaky"] if flaky else []
    parts += [f"{len(rows) - len(judged)} not run"] if len(judged) < len(rows) else []
    return ", ".join(parts)


def _last_failure(of: dict[str, CellRow], columns: int) -> list[Line]:
    bad = [row for row in of.values() if not row.good]
    if not bad:
        return []
    last = bad[-1]
    why = one_line(last.why) or SYMBOLS[last.verdict].meaning
    text = f"last {last.verdict} {date_text(last.at_s, timed=True)}, run {one_line(last.run)}: {why}"
    return [[(f"      {fit(text, columns - 6)}", "dim")]]
