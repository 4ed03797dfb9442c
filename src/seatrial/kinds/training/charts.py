"""What reports show of a training job: its loss and the time of a step, by step, beside what was recorded."""

import math
from collections.abc import Mapping

from seatrial.job import AnyChart, ObservedStep, Series
from seatrial.readers.log import log_values

MOST_HOSTS = 4  # columns; the findings are about all
_MOST_ROWS = 500

_Column = Mapping[int, float]


def training_charts(train: ObservedStep, recorded: _Column, step_unit: str) -> list[AnyChart]:
    losses = _by_host(train, "loss")
    if losses and recorded:
        losses |= {"recorded": recorded}
    made = [
        _series("The loss by step", losses, ""),
        _series("The time of a step", _by_host(train, "step_time"), step_unit),
    ]
    return [chart for chart in made if chart]


def _by_host(train: ObservedStep, name: str) -> dict[str, _Column]:
    """By step; of several values of one step the last, of those that name no step their number."""
    values = log_values(train, name)
    found: dict[str, _Column] = {}
    for host in values.hosts[:MOST_HOSTS]:
        title = name if len(values.hosts) == 1 else f"{name}, host {host}"
        column = {
            number if one.step is None else one.step: one.value
            for number, one in enumerate(values.of(host), 1)
            if math.isfinite(one.value)
        }
        if column:
            found[title] = column
    return found


def _series(title: str, columns: Mapping[str, _Column], unit: str) -> Series | None:
    """None where there is not even a line to draw."""
    steps = sorted({step for column in columns.values() for step in column})
    if len(steps) < 2:
        return None
    every = math.ceil(len(steps) / _MOST_ROWS)
    kept = sorted({*steps[::every], steps[-1]})
    rows = [[step, *(column.get(step) for column in columns.values())] for step in kept]
    units = dict.fromkeys(columns, unit) if unit else {}
    return Series(title, ["step", *columns], rows, units)
