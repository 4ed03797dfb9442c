"""A recorded loss curve (step to loss), read from JSON or CSV."""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

from seatrial.job import Observation, Unreadable
from seatrial.readers.log import hosts_text, log_values

_MOST_BYTES = 4 << 20  # the curve is stored in the plan
_NO_NUMBER = re.compile(r"\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


def read_curve(path: Path) -> dict[int, float]:
    """JSON: `{"0": 5.5, "10": 4.2}`, `[[0, 5.5], [10, 4.2]]` or `[5.5, 4.2]`, a value for each step from 0.
    CSV: step and loss in the first two columns, or in columns of those names."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Unreadable(f"{path} is too large for a curve (limit {_MOST_BYTES >> 20} MiB)")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise Unreadable(f"cannot read curve {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unreadable(f"cannot read curve {path}: not UTF-8 text; use JSON or CSV") from None
    try:
        pairs = _from_json(text, path) if text.lstrip()[:1] in ("{", "[") else _from_csv(text, path)
    except csv.Error as error:
        raise Unreadable(f"invalid curve {path} ({error}); use one step and loss per line") from None
    if wild := next((pair for pair in pairs if not math.isfinite(pair[1])), None):
        message = f"the loss at step {wild[0]} is {wild[1]} (expected a number); remove it"
        raise Unreadable(f"{path}:{_line_of_no_number(text)} {message}")
    curve = dict(pairs)
    if not curve:
        raise Unreadable(f"{path} has no pairs of step and loss")
    return curve


def curve_of(observation: Observation, host: int | None = None) -> dict[int, float]:
    """The losses in the log of a run by step, the last one of each step. Of several hosts, those of `host`, or of the
    first that reports any. Raises Unreadable."""
    losses = [log_values(step, "loss") for step in observation.steps if step.kind == "command"]
    hosts = losses[0].hosts if losses else []
    if not hosts:
        raise Unreadable("the log reports no loss; add `loss: {}` to the trial")
    if host is not None and host not in hosts:
        raise Unreadable(f"host {host} reports no loss; {hosts_text(hosts)} did")
    taken = losses[0].of(hosts[0] if host is None else host)
    curve = {one.step: one.value for one in taken if one.step is not None and math.isfinite(one.value)}
    if not curve:
        raise Unreadable("the losses in the log have no step number; set `steps: {pattern: ...}`")
    return curve


def curve_text(curve: dict[int, float], as_csv: bool = False) -> str:
    """The curve as `read_curve` reads it, one step per line."""
    if as_csv:
        return "step,loss\n" + "".join(f"{step},{curve[step]!r}\n" for step in sorted(curve))
    return "[\n" + ",\n".join(f" [{step}, {curve[step]!r}]" for step in sorted(curve)) + "\n]\n"


def _line_of_no_number(text: str) -> str:
    """`12:`; empty if the value is a number that is too large."""
    found = _NO_NUMBER.search(text)
    return f"{text.count(chr(10), 0, found.start()) + 1}:" if found else ""


def _from_json(text: str, path: Path) -> list[tuple[int, float]]:
    try:
        data = json.loads(text)
        if isinstance(data, dict):
            data = data.items()
        elif not all(isinstance(item, list) for item in data):
            data = enumerate(data)
        return [(_step(step), float(value)) for step, value in data if value is not None]
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Unreadable(f'invalid curve {path} ({error}); use {{"0": 5.5, "10": 4.2}} or [[0, 5.5], …]') from None


def _from_csv(text: str, path: Path) -> list[tuple[int, float]]:
    pairs: list[tuple[int, float]] = []
    columns = (0, 1)
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or not "".join(row).strip():
            continue
        names = [name.strip().lower() for name in row]
        if not pairs and "step" in names:
            others = [index for index, name in enumerate(names) if name != "step"]
            columns = names.index("step"), names.index("loss") if "loss" in names else (others or [1])[0]
            continue
        try:
            pairs.append((_step(row[columns[0]]), float(row[columns[1]])))
        except (ValueError, IndexError, OverflowError):
            raise Unreadable(f"{path}:{number}: expected a step and a loss, got {','.join(row)[:80]!r}") from None
    return pairs


def _step(value: Any) -> int:
    step = float(value)
    if step != int(step):
        raise ValueError(f"invalid step {value!r}")
    return int(step)
