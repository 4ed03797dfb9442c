"""Every combination of a suite's axes: a cell, or a hole with its reason."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from seatrial.job import Hole
from seatrial.plan.needs import unmet
from seatrial.plan.pairwise import REPEAT, cut, prove
from seatrial.plan.plan import Cost, Plan, TooManyCells
from seatrial.plan.select import Selection, choose
from seatrial.suite import (
    HERE,
    Axis,
    AxisValue,
    Cell,
    EnvValue,
    Group,
    Machine,
    Runtime,
    Suite,
    Xfail,
    compile_rule,
    fill,
    has_placeholder,
)

_HEX = 8
# Axes that are no part of what is measured: the same work once more, and names whose content counts by itself.
APART = (REPEAT, "machine", "runtime")


def count_combinations(suite: Suite) -> dict[str, int]:
    """Combinations of each trial, without making any of them."""
    return {
        name: prod((group.rows for group in suite.axes[name]), start=trial.repeat)
        for name, trial in suite.trials.items()
    }


def expand(suite: Suite, selection: Selection | None = None, history: Mapping[str, float] | None = None) -> Plan:
    """The plan. `history`: seconds by cell hash. Raises PlanError for too many cells or a selection of nothing."""
    selection = selection or Selection()
    counts = count_combinations(suite)
    if sum(counts.values()) > suite.max_cells:
        raise TooManyCells(counts, suite.max_cells)
    valid: list[Cell] = []
    holes: list[Hole] = []
    for name in suite.trials:
        for found in _Trial(suite, name).combinations():
            if isinstance(found, Cell):
                valid.append(found)
            else:
                holes.append(found)
    valid = _finished(valid, history or {})
    wanted = []
    for cell, why in zip(valid, choose(valid, holes, selection, _tags(suite)), strict=True):
        cause, _, text = why.partition(": ")
        if why:
            holes.append(Hole(cell.trial, cell.axes, text, cause))
        else:
            wanted.append(cell)
    coverage = None
    if selection.pairwise:
        kept = cut(wanted)
        ids = {cell.id for cell in kept}
        holes += [
            Hole(cell.trial, cell.axes, "each of its pairs of values is in another cell", "pairwise")
            for cell in wanted
            if cell.id not in ids
        ]
        coverage = prove(wanted, kept, valid, suite.axes)
        wanted = list(kept)
    return Plan(suite.name, tuple(wanted), tuple(holes), Cost.of(wanted), _labels(suite), coverage)


def _labels(suite: Suite) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        trial: {axis.name: tuple(value.label for value in axis.values) for group in groups for axis in group.axes}
        for trial, groups in suite.axes.items()
    }


def _tags(suite: Suite) -> Iterator[str]:
    for entries in (suite.trials, suite.runtimes, suite.machines):
        for entry in entries.values():
            yield from entry.tags


def _finished(cells: list[Cell], history: Mapping[str, float]) -> list[Cell]:
    """Short hashes that are unique in the plan, whatever is selected of it, and estimates by them."""
    used: set[str] = set()
    finished = []
    for cell in cells:
        # Two digests that begin alike: the later one goes on to its next digits.
        short = next(cell.hash[at : at + _HEX] for at in range(0, 56) if cell.hash[at : at + _HEX] not in used)
        used.add(short)
        finished.append(replace(cell, hash=short, estimate_s=history.get(short, cell.estimate_s)))
    return finished


def _digest(value: Any) -> str:
    return _sha256(json.dumps(value, sort_keys=True, default=str))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Trial:
    """One trial with all that its cells share, worked out once."""

    def __init__(self, suite: Suite, name: str) -> None:
        self._suite = suite
        self._name = name
        self._model = model = suite.trials[name]
        self._groups = [*suite.axes[name]]
        if model.repeat > 1:
            numbers = tuple(AxisValue(str(number), number, {}) for number in range(1, model.repeat + 1))
            self._groups.append(Group((Axis(REPEAT, numbers),)))
        axes = {axis.name: axis for group in self._groups for axis in group.axes}
        self._excludes = [(compile_rule(rule, axes), rule.why) for rule in model.exclude]
        self._xfails = [(compile_rule(rule, axes), rule) for rule in model.xfail]
        self._content = _digest([name, model.content(), _plain(suite.env)])
        self._work = _digest(model.work())
        self._places: dict[tuple[str, str | None], _Place] = {}

    def combinations(self) -> Iterator[Cell | Hole]:
        rows = [list(_rows(group)) for group in self._groups]
        digests = {
            (axis.name, value.label): _digest([axis.name, value.label, value.value])
            for group in self._groups
            for axis in group.axes
            for value in axis.values
        }
        for row in product(*rows):
            picked = [pair for part in row for pair in part]
            labels = {axis: value.label for axis, value in picked}
            place = self._place(labels)
            why, cause = self._reason(labels, picked, place)
            if why:
                yield Hole(self._name, labels, why, cause)
            else:
                content = self._content + place.digest + "".join(digests[axis, label] for axis, label in labels.items())
                work = (
                    self._work
                    + place.work
                    + "".join(digests[axis, label] for axis, label in labels.items() if axis not in APART)
                )
                yield self._cell(labels, picked, place, _sha256(content), _sha256(work))

    def _place(self, labels: Mapping[str, str]) -> "_Place":
        key = labels.get("machine", HERE), labels.get("runtime")
        if key not in self._places:
            self._places[key] = _Place(self._suite, self._name, *key)
        return self._places[key]

    def _reason(
        self, labels: Mapping[str, str], picked: Iterable[tuple[str, AxisValue]], place: "_Place"
    ) -> tuple[str, str]:
        if self._model.disabled is not None:
            return self._model.disabled, "disabled"
        for rule, why in self._excludes:
            if _holds(rule, labels):
                return why, "exclude"
        if place.unmet:
            return place.unmet, "needs"
        for axis, value in picked:
            if value.needs:
                why = unmet(f"{axis} {value.label}", value.needs, place.machine_name, place.machine)
                if why:
                    return why, "needs"
        return "", ""

    def _cell(
        self, labels: dict[str, str], picked: Iterable[tuple[str, AxisValue]], place: "_Place", digest: str, work: str
    ) -> Cell:
        values = {axis: value.value for axis, value in picked}
        benchmark = self._id({axis: label for axis, label in labels.items() if axis != REPEAT})
        if self._model.benchmark is not None:
            benchmark = fill(self._model.benchmark, labels, values)
        return Cell(
            id=self._id(labels),
            hash=digest,
            benchmark=benchmark,
            work=work,
            **self._bounded(benchmark),
            trial=self._name,
            model=self._model,
            axes=labels,
            values=values,
            machine_name=place.machine_name,
            machine=place.machine,
            runtime_name=place.runtime_name,
            runtime=place.runtime,
            target=place.machine.target,
            directory=self._suite.directory,
            tags=place.tags,
            xfails=tuple(_filled(rule, labels, values) for meant, rule in self._xfails if _holds(meant, labels)),
            env=place.env,
            estimate_s=self._model.estimate_s if self._model.estimate_s is not None else self._suite.estimate_s,
            price_per_hour=place.machine.price,
        )

    def _id(self, labels: Mapping[str, str]) -> str:
        inside = ",".join(f"{axis}={label}" for axis, label in labels.items())
        return f"{self._name}[{inside}]" if inside else self._name

    def _bounded(self, benchmark: str) -> dict[str, Any]:
        """The bounds that a cell's figures are judged by; why there are none, where the trial names a baseline."""
        path = self._model.baseline
        if path is None:
            return {}
        baselines = self._suite.baselines.get(path)
        bounds = baselines.bounds(benchmark) if baselines is not None else ()
        if bounds:
            return {"bounds": bounds}
        what = "does not exist yet" if baselines is None else f"has no entry {benchmark!r}"
        return {"unbounded": f"{path} {what}; `seatrial baseline update` makes it from the runs so far"}


class _Place:
    """A trial on one machine with one runtime."""

    def __init__(self, suite: Suite, trial: str, machine_name: str, runtime_name: str | None) -> None:
        model = suite.trials[trial]
        self.machine_name = machine_name
        self.machine: Machine = suite.machine(machine_name)
        self.runtime_name = runtime_name
        self.runtime: Runtime | None = suite.runtimes[runtime_name] if runtime_name is not None else None
        runtime = self.runtime or Runtime()
        self.tags = frozenset((*model.tags, *runtime.tags, *self.machine.tags))
        self.env = {**suite.env, **runtime.env, **model.env}
        self.digest = _digest([runtime.content() if self.runtime else None, self.machine.content()])
        self.work = _digest([runtime.work() if self.runtime else None, self.machine.content(), _plain(self.env)])
        self.unmet = unmet(f"runtime {runtime_name}", runtime.needs, machine_name, self.machine) or unmet(
            f"trial {trial}", model.needs, machine_name, self.machine
        )


def _rows(group: Group) -> Iterator[list[tuple[str, AxisValue]]]:
    for row in range(group.rows):
        yield [(axis.name, axis.values[row]) for axis in group.axes]


def _plain(env: Mapping[str, EnvValue]) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else value.model_dump() for name, value in env.items()}


def _holds(rule: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> bool:
    return all(labels[axis] in meant for axis, meant in rule.items())


def _filled(rule: Xfail, labels: Mapping[str, str], values: Mapping[str, Any]) -> Xfail:
    if rule.step is None or not has_placeholder(rule.step):
        return rule
    return rule.model_copy(update={"step": fill(rule.step, labels, values)})
