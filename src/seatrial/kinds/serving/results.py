"""Reads the results of other load generators: vllm bench serve, guidellm, AIPerf and inference-perf. Pure, except for
reading the file."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from seatrial import SeatrialError
from seatrial.job import Unreadable, convert, decode, read_regular
from seatrial.kinds.search import Try, limits_of
from seatrial.kinds.serving.load_work import LoadNote, LoadStage, LoadSummary, LoadWork

_MOST_BYTES = 1 << 30
_PART = r"(mean|avg|median|max|count|p\d+(?:\.\d+)?)"
_PARTS = {"avg": "mean", "median": "p50"}
_SECONDS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class _Format(msgspec.Struct, frozen=True):
    """Where a tool writes each metric: keys are joined by dots, `*` is a quantile, the mean, the maximum or the count.
    Only metrics with the same definition as in a load are listed."""

    name: str
    known_by: str  # a key that only this format has
    latencies: Mapping[str, str]
    answered: str
    failed: str
    rate: str
    tokens_per_s: str
    offered_rate: str = ""
    total: str = ""  # of all requests, if `failed` may be missing
    good_rate: str = ""  # requests per second within the tool's own bounds


@lru_cache
def _formats() -> tuple[_Format, ...]:
    data = tomllib.loads(Path(__file__).with_name("results.toml").read_text())
    return convert(data["formats"], tuple[_Format, ...])


def read_results(path: Path, load: LoadWork) -> tuple[str, LoadNote]:
    """The tool, and its results; several loads in one file are the points of a sweep. Raises SeatrialError."""
    try:
        data = decode(read_regular(path, _MOST_BYTES, follow=True), dict[str, msgspec.Raw])
        several = decode(bytes(data["benchmarks"]), list[dict[str, msgspec.Raw]]) if "benchmarks" in data else [data]
        found = [_summary(dict(_numbers(one))) for one in several]
    except (OSError, Unreadable) as error:
        raise SeatrialError(f"cannot read {path}: {error}") from error
    if not found:
        raise SeatrialError(f"{path} has no results")
    name = found[0][0]
    summaries = [summary for _, summary in found]
    if len(summaries) == 1:
        return name, LoadNote(summaries[0])
    tries = [Try(one.offered_rate or one.rate, load.broken_bounds(one), "", one) for one in summaries]
    tries.sort(key=lambda one: one.rate)
    limits = limits_of(tries)
    stages = [LoadStage(one.rate, one.broken, one.doubt, one.result) for one in tries]
    return name, LoadNote(limits.holds, stages, limits.low, limits.high)


def _numbers(data: Mapping[str, msgspec.Raw], before: str = "") -> Iterator[tuple[str, float]]:
    """All numbers by their keys, in seconds if their unit is known. Lists of requests are not decoded."""
    unit = decode(bytes(data["unit"]), object) if "unit" in data else None
    for key, part in data.items():
        raw, name = bytes(part), before + key
        first = raw[:1]
        if first == b"{":
            # guidellm's quantiles are one level below the mean.
            yield from _numbers(decode(raw, dict[str, msgspec.Raw]), before if key == "percentiles" else f"{name}.")
        elif first and first in b"-0123456789":
            yield name, decode(raw, float) * (1.0 if key == "count" else _SECONDS.get(str(unit), 1.0))


def _summary(numbers: Mapping[str, float]) -> tuple[str, LoadSummary]:
    form = next((one for one in _formats() if one.known_by in numbers), None)
    if form is None:
        known = ", ".join(one.name for one in _formats())
        raise Unreadable(f"unknown format; use a result file (JSON) of {known}")
    answered, failed = numbers.get(form.answered), numbers.get(form.failed)
    if failed is None and answered is not None and form.total in numbers:
        failed = numbers[form.total] - answered
    if failed is None and form.name == "AIPerf":
        failed = 0.0  # written only if there are any
    rate = numbers.get(form.rate)
    if answered is None or failed is None or rate is None:
        raise Unreadable(f"this file of {form.name} lacks the number of answered or failed requests, or the rate")
    requests = int(answered + failed)
    latencies: dict[str, dict[str, float]] = {}
    for metric, place in form.latencies.items():
        pattern = re.compile(re.escape(place).replace(r"\*", _PART))
        factor = 1e-3 if "_ms" in place else 1.0
        parts = {match[1]: value for name, value in numbers.items() if (match := pattern.fullmatch(name))}
        own = {_part_name(part): value * (1.0 if part == "count" else factor) for part, value in parts.items()}
        if own:
            latencies[metric] = {"count": answered, **own}
    good = numbers.get(form.good_rate)
    return form.name, LoadSummary(
        requests,
        errors=int(failed),
        error_kinds={"failed": int(failed)} if failed else {},
        offered_rate=numbers.get(form.offered_rate, 0.0),
        rate=rate,
        tokens_per_s=numbers.get(form.tokens_per_s, 0.0),
        goodput=None if good is None else good / rate * answered / requests if rate and requests else 0.0,
        latencies=latencies,
    )


def _part_name(part: str) -> str:
    """`median` is p50; p999 is p99.9, and p01 is p1, as guidellm writes them."""
    digits = part[1:]
    if not digits.isdigit():
        return _PARTS.get(part, part)
    return f"p{float(f'{digits[:2]}.{digits[2]}' if len(digits) == 3 else digits):g}"
