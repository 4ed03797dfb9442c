"""Reads runs of other tools: CSV, a JSON list, JSON lines or a YAML list, one row per run."""

import contextlib
import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial.baseline.edit import Refused
from seatrial.baseline.models import STEP_TIME, seconds_of
from seatrial.suite import Problem, SourceMark, SuiteError, nearest
from seatrial.suite.yaml.source import FileLimits, Source, read_text

_LIMITS = FileLimits("list of runs", 64 << 20, 5_000_000, "import it in parts", "import it in parts")

# Accepted names of each field: ours first, then the columns of torchprime's table.
TABLE_STEP_TIME = "metrics_step_time"  # column of torchprime's table, s
_NAMES = {
    "run": ("run", "run_id"),
    "time": ("time", "at", "timestamp", "update_timestamp"),
    "value": ("value", STEP_TIME, TABLE_STEP_TIME),
    "benchmark": ("benchmark",),
    "metric": ("metric",),
    "commit": ("commit",),
    "good": ("good", "result_success"),
}


_NOTHING = ("", "null", "none", "nan", "n/a", "na")


@dataclass(frozen=True)
class PastRun:
    run: str
    at_s: float
    value: float
    benchmark: str = ""
    metric: str = ""
    unit: str = ""
    better: str = ""
    commit: str = ""
    good: bool = True


@dataclass(frozen=True)
class PastRuns:
    runs: list[PastRun]  # oldest first
    without_value: tuple[SourceMark, ...] = ()  # rows without a value (such as failed runs), left out


def read_runs(path: Path) -> PastRuns:
    """Raises SuiteError with all problems and their positions."""
    problems: list[Problem] = []
    found: list[PastRun] = []
    without_value: list[SourceMark] = []
    for mark, row in _rows(path):
        columns = [row[name] for name in _NAMES["value"] if name in row] if isinstance(row, dict) else []
        # A file without a value column is not a list of runs: an error below.
        if columns and all(str("" if value is None else value).strip().lower() in _NOTHING for value in columns):
            without_value.append(mark)
            continue
        made = _past_run(row, mark, problems)
        if made is not None:
            found.append(made)
    if not found and not problems:
        what = f"none of the {len(without_value)} rows has a value" if without_value else "the file has no runs"
        problems.append(Problem(what, without_value[0] if without_value else SourceMark(str(path), 1, 1)))
    if problems:
        raise SuiteError(problems)
    return PastRuns(sorted(found, key=lambda one: one.at_s), tuple(without_value))


def _past_run(row: Any, mark: SourceMark, problems: list[Problem]) -> PastRun | None:
    if not isinstance(row, dict):
        problems.append(Problem("expected a map with `run`, `time` and `value`", mark))
        return None
    fields = {
        field: next((row[name] for name in names if row.get(name) is not None), None) for field, names in _NAMES.items()
    }
    wrong = []
    run, value, at_s = fields["run"], _number(fields["value"]), _time(fields["time"])
    if run in (None, ""):
        there = next((name for name in _NAMES["run"] if name in row), None)
        wrong.append(f"`{there}` is empty" if there else f"`run` is missing{nearest('run', map(str, row))}")
    if value is None:
        wrong.append(f"invalid `value`: expected a finite number, got {fields['value']!r}")
    if at_s is None:
        wrong.append(f"invalid `time` {fields['time']!r}; use 2026-10-03T12:00:00Z or seconds since 1970")
    problems += [Problem(message, mark) for message in wrong]
    if value is None or at_s is None or wrong:
        return None
    texts = {field: str(fields[field] or "") for field in ("benchmark", "metric", "commit")}
    column = next(name for name in _NAMES["value"] if row.get(name) is not None)
    if column in (STEP_TIME, TABLE_STEP_TIME):
        texts["metric"] = texts["metric"] or STEP_TIME
    if column == TABLE_STEP_TIME:
        texts |= {"unit": "s", "better": "lower"}
    good = str(fields["good"]).strip().lower() not in ("false", "0", "no", "failed")
    return PastRun(str(run), at_s, value, **texts, good=good)


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        number = float(value) if not isinstance(value, bool) else math.nan
        return number if math.isfinite(number) else None
    return None


def _time(value: Any) -> float | None:
    seconds = _number(value)
    if seconds is not None:
        return seconds if 0 <= seconds < 1e11 else None
    with contextlib.suppress(ValueError, OverflowError):
        return seconds_of(str(value).removesuffix(" UTC"))
    return None


def _rows(path: Path) -> Iterator[tuple[SourceMark, Any]]:
    text = read_text(path, limits=_LIMITS)
    if path.suffix.lower() == ".csv":
        return _csv(path, text)
    return _json(path, text) if text.lstrip()[:1] in ("{", "[") else _yaml(path, text)


def _csv(path: Path, text: str) -> Iterator[tuple[SourceMark, Any]]:
    names: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line[0] == "#":
            continue
        mark = SourceMark(str(path), number, 1, line)
        try:
            cells = next(csv.reader([line]), [])
        except csv.Error as error:
            raise SuiteError([Problem(f"not CSV: {error}", mark)]) from error
        if names is None:
            names = [name.strip() for name in cells]
        else:
            yield mark, dict(zip(names, cells, strict=False))


def _json(path: Path, text: str) -> Iterator[tuple[SourceMark, Any]]:
    """Rows of a JSON list, or of one object per line."""
    one_list = text.lstrip().startswith("[")
    for number, part in enumerate([text] if one_list else text.splitlines(), 1):
        if not part.strip():
            continue
        try:
            data = json.loads(part)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1) if one_list else number
            mark = SourceMark(str(path), line, getattr(error, "colno", 1))
            raise SuiteError([Problem(f"not JSON: {getattr(error, 'msg', error)}", mark)]) from error
        if one_list:
            yield from ((SourceMark(f"{path}[{index}]", 1, 1), row) for index, row in enumerate(data, 1))
        else:
            yield SourceMark(str(path), number, 1, part), data


def _yaml(path: Path, text: str) -> Iterator[tuple[SourceMark, Any]]:
    source = Source(str(path), text, limits=_LIMITS)
    if source.problems or not isinstance(source.data, list):
        shape = "expected a list of runs: CSV, JSON, or YAML with a `- {run, time, value}` for each"
        raise SuiteError(source.problems or [Problem(shape, path=str(path))])
    for number, row in enumerate(source.data):
        yield source.find((number,))[0], row


# torchprime names a run <benchmark>-<eight letters or digits>-<time>-<eight hex digits>.
_RUN = re.compile(r"(?P<job>.+?(?P<random>-[a-z0-9]{8})?)-\d{14}-[0-9a-f]{8}")


def assign_benchmarks(runs: Sequence[PastRun], benchmarks: Collection[str]) -> list[PastRun]:
    """Sets the benchmark of each run from its name. Raises Refused if the runs are of several jobs that do not match
    the suite's benchmarks.

    Runs of a single job, and runs with other names, may have no benchmark; then the user chooses it."""
    jobs: Counter[str] = Counter()
    unknown, found = set[str](), []
    for one in runs:
        job, benchmark = _job(one.run, benchmarks)
        if one.benchmark or not job:
            found.append(one)
            continue
        jobs[job] += 1
        found.append(replace(one, benchmark=benchmark))
        if not benchmark:
            unknown.add(job)
    if unknown and len(jobs) > 1:
        counts = ", ".join(f"{job} ({count})" for job, count in sorted(jobs.items()))
        known = ", ".join(sorted(benchmarks))
        raise Refused(
            f"cannot tell which benchmark the runs of {', '.join(sorted(unknown))} belong to (selected: {known}; jobs: "
            f"{counts}); add `benchmark` to each row, or import one job at a time"
        )
    return found


def _job(run: str, benchmarks: Collection[str]) -> tuple[str, str]:
    """The job name without its random part, and the only benchmark of that name."""
    match = _RUN.fullmatch(run)
    if match is None:
        return "", ""
    whole, random = match["job"], match["random"] or ""
    for job in (whole, whole.removesuffix(random)):
        same = [benchmark for benchmark in benchmarks if plain_name(benchmark) == plain_name(job)]
        if len(same) == 1:
            return job, same[0]
    return whole.removesuffix(random), ""


def plain_name(name: str) -> str:
    """Normalises names: jobs have no dots or underscores, so `3.1` and `3_1` are `3dot1` there."""
    return re.sub(r"(?<=\d)(?:dot|_|\.)(?=\d)", ".", name)
