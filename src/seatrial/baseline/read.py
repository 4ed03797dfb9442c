"""Reads a file of bounds, whichever of the two forms it has."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.baseline.entry import CAP, OURS, THEIRS, BaselineEntry, Baselines
from seatrial.baseline.models import Disabled, FigureKeys, Keys, describe_value, state_of
from seatrial.baseline.sheet import Sheet
from seatrial.baseline.torchprime import read_torchprime
from seatrial.job import Better, Bound, BoundState
from seatrial.suite.yaml.document import Document
from seatrial.suite.yaml.problem import KeyPath, Problem, SuiteError, nearest
from seatrial.suite.yaml.source import FileLimits, Source, read_source

# Each entry lists its runs, so a file may be much longer than a suite.
BASELINE_LIMITS = FileLimits(
    "baseline", 32 << 20, 2_000_000, "give every suite a file of its own", "give every suite its own file"
)
_VERSION = 1
TOP = {"baselines": OURS, "benchmarks": THEIRS}
_INVENTED = re.compile(r"#.*\b(dummy|copye?d from|copied from|made up|placeholder)\b", re.IGNORECASE)


def read_baselines(path: Path, better: Mapping[str, Better] | None = None) -> Baselines:
    """Raises SuiteError with every problem, each with file:line:column. What is only odd is in `.warnings`.

    `better` is what the trials say of their figures: their word counts, and an entry with another is a warning."""
    return baselines_of(read_source(path, limits=BASELINE_LIMITS), better or {})


def read_for_trials(path: Path, trials: Sequence[object]) -> Baselines:
    """The same for the trials that name the file; what `seatrial.suite.load` reads baselines with."""
    return read_baselines(path, agreed_better(trials))


def agreed_better(trials: Iterable[object]) -> dict[str, Better]:
    """Figure -> which way is better, where all of these trials that say so say the same."""
    directions: dict[str, set[Better]] = {}
    for trial in trials:
        for name, metric in (getattr(trial, "metrics", None) or {}).items():
            direction = getattr(metric, "better", None)
            if direction is not None:
                directions.setdefault(name, set()).add(direction)
    return {name: words.pop() for name, words in directions.items() if len(words) == 1}


def baselines_of(source: Source, better: Mapping[str, Better] | None = None) -> Baselines:
    sheet = Sheet(source)
    form = _form(sheet)
    found = read_torchprime(sheet) if form == THEIRS else _read_ours(sheet, better or {})
    if sheet.problems:
        raise SuiteError(sheet.problems)
    if _INVENTED.search(source.text):
        found = _with_comments(sheet, found, form)
    return Baselines(source.file, form, found, sheet.warnings)


def _form_of(data: Any) -> str | None:
    """Whose file of bounds this is, by its top-level keys; None: neither's."""
    forms = [form for key, form in TOP.items() if isinstance(data, dict) and key in data]
    return forms[0] if len(forms) == 1 else None


def _form(sheet: Sheet) -> str:
    data = sheet.source.data
    form = _form_of(data)
    if form is None and not (sheet.problems and data is None):
        keys = list(data) if isinstance(data, dict) else []
        both = all(key in keys for key in TOP)
        why = "both are here" if both else f"neither is here{nearest(keys[0], TOP) if keys else ''}"
        sheet.problems.append(
            Problem(
                f"a file of bounds has `baselines:` (Seatrial's) or `benchmarks:` (torchprime's) at its top; {why}",
                sheet.source.mark(1, 1),
            )
        )
    return form or OURS


def _read_ours(sheet: Sheet, better: Mapping[str, Better]) -> dict[str, dict[str, BaselineEntry]]:
    data = sheet.source.data if isinstance(sheet.source.data, dict) else {}
    version = data.get("version", _VERSION)
    if version != _VERSION:
        sheet.error(("version",), f"this Seatrial reads version {_VERSION} of this file, not {describe_value(version)}")
    sheet.warn_of_slips((), data, ("version", "baselines"))
    found: dict[str, dict[str, BaselineEntry]] = {}
    for benchmark in sheet.map(("baselines",), "of benchmarks"):
        path: KeyPath = ("baselines", benchmark)
        figures = sheet.map(path, "of figures, each a map with `lower` and `upper`")
        switch = sheet.validated(Switch, {key: figures[key] for key in figures if key == "disabled"}, path)
        for metric in figures:
            if metric != "disabled":
                keys = sheet.validated(FigureKeys, figures[metric], (*path, metric))
                if keys is not None:
                    off = keys.disabled or (switch.disabled if switch else "")
                    entry = _entry(sheet, (*path, metric), keys, off, better.get(metric))
                    found.setdefault(benchmark, {})[metric] = entry
    return found


class Switch(Keys):
    """What a benchmark of ours has beside its figures."""

    disabled: Disabled = ""


def _entry(sheet: Sheet, path: KeyPath, keys: FigureKeys, disabled: str, better: Better | None) -> BaselineEntry:
    bound = _bound(sheet, path, keys, disabled, better)
    sheet.check_shares(path, keys, bound)
    sheet.check_sides(path, bound, "lower", "center", CAP if keys.cap is None else keys.cap)
    return BaselineEntry(
        benchmark=str(path[1]), metric=str(path[2]), bound=bound, line=sheet.line(path), **keys.for_entry()
    )


def _bound(sheet: Sheet, path: KeyPath, keys: FigureKeys, disabled: str, better: Better | None) -> Bound:
    state = state_of(keys)
    if keys.lower is None and keys.upper is None and state is BoundState.USABLE and not disabled:
        sheet.warn(path, "neither `lower` nor `upper` is here, so nothing is judged by it", True)
    return Bound(
        metric=str(path[2]),
        lower=keys.lower,
        upper=keys.upper,
        better=_better(sheet, (*path, "better"), keys.better, better),
        unit=keys.unit,
        center=keys.center,
        runs=keys.runs or 0,
        figures=keys.figures or 0,
        since_s=keys.since,
        state=BoundState.DISABLED if disabled else state,
        why=disabled or keys.why,
        source=f"{sheet.source.file}:{sheet.line(path)}",
        **keys.for_bound(),
    )


def _better(sheet: Sheet, path: KeyPath, direction: Better | None, of_suite: Better | None) -> Better:
    if of_suite is not None and direction not in (None, of_suite):
        sheet.warn(
            path,
            f"`better: {direction}` contradicts the suite, which says {of_suite} of {path[-2]}; the suite counts",
        )
    return of_suite or direction or "lower"


def _with_comments(
    sheet: Sheet, found: dict[str, dict[str, BaselineEntry]], form: str
) -> dict[str, dict[str, BaselineEntry]]:
    """The entries with the lines of comments which say that their numbers are not measured; each is a warning."""
    import msgspec

    document = Document(sheet.source.text)
    marked: dict[str, dict[str, BaselineEntry]] = {}
    for benchmark, metrics in found.items():
        for metric, entry in metrics.items():
            path = ("benchmarks", benchmark) if form == THEIRS else ("baselines", benchmark, metric)
            lines = []
            for comment in document.comments(path):
                if _INVENTED.search(comment.text):
                    lines.append(comment.line)
                    message = (
                        f"{benchmark}: this says that its number is invented, not measured: {comment.text.strip()}"
                    )
                    sheet.warn_at(comment.line, comment.column, message)
            marked.setdefault(benchmark, {})[metric] = msgspec.structs.replace(entry, invented=tuple(lines))
    return marked


def is_bounds(path: Path) -> bool:
    """Whether it is a file of bounds at all, by its top-level keys. Raises SuiteError when it cannot be read."""
    if path.suffix.lower() == ".csv":
        return False
    source = read_source(path, limits=BASELINE_LIMITS)
    return isinstance(source.data, dict) and any(key in source.data for key in TOP)
