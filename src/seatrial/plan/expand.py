"""Every combination of a suite's axes: a cell, or an excluded combination with its reason."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from seatrial.job import Bound, Excluded
from seatrial.job.conditions import WrittenFields
from seatrial.job.units import format_size
from seatrial.plan.pairwise import REPEAT, cut, prove
from seatrial.plan.plan import Cost, Plan, TooManyCells
from seatrial.plan.resolve import Resolved, Resolver, fill
from seatrial.plan.select import Selection, unselected_reasons
from seatrial.suite import (
    HERE,
    Axis,
    AxisValue,
    Cell,
    EnvValue,
    Group,
    Machine,
    Policy,
    Requirement,
    Runtime,
    Suite,
    Xfail,
    compile_rule,
    has_placeholder,
)
from seatrial.suite.conditions import axis_fields, place_fields, runtime_fields, trial_fields

# Whether a machine has what is needed, and in plain words what it lacks.


def unmet(who: str, needs: Mapping[str, Requirement], machine_name: str, machine: Machine) -> str:
    """`runtime pytorch needs gpu.count >=1, machine cpu has 0`; empty when nothing is lacking."""
    for name, need in needs.items():
        have = machine.capability(name)
        if have is None:
            return f"{who} needs {name} {need.text}, machine {machine_name} does not say its {name}"
        if not need.met_by(have):
            return f"{who} needs {name} {need.text}, machine {machine_name} has {_has(name, have)}"
    return ""


def short_need(why: str) -> str:
    """What such a reason has in common with those of other machines and runtimes: `needs gpu.count >=1`."""
    _, _, need = why.partition(" needs ")
    return f"needs {need.partition(', machine ')[0]}"


def _has(name: str, have: str | float) -> str:
    if isinstance(have, str):
        return have
    if not have and name in ("gpu.model", "gpu.memory"):
        return "no GPU"
    return format_size(have) if name.endswith("memory") else f"{have:g}"


_HEX = 8
# Axes that are no part of what is measured: the same work once more, and names whose content counts by itself.
_APART = (REPEAT, "machine", "runtime")


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
    excluded: list[Excluded] = []
    hashes = _ShortHashes()
    for name in suite.trials:
        for found in _Trial(suite, name, hashes, history or {}).combinations():
            if isinstance(found, Cell):
                valid.append(found)
            else:
                excluded.append(found)
    wanted = []
    for cell, why in zip(valid, unselected_reasons(valid, excluded, selection, _tags(suite)), strict=True):
        cause, _, text = why.partition(": ")
        if why:
            excluded.append(Excluded(cell.trial, cell.axes, text, cause))
        else:
            wanted.append(cell)
    coverage = None
    if selection.pairwise:
        kept = cut(wanted)
        ids = {cell.id for cell in kept}
        excluded += [
            Excluded(cell.trial, cell.axes, "each of its pairs of values is in another cell", "pairwise")
            for cell in wanted
            if cell.id not in ids
        ]
        coverage = prove(wanted, kept, valid, suite.axes)
        wanted = list(kept)
    return Plan(suite.name, tuple(wanted), tuple(excluded), Cost.of(wanted), _labels(suite), coverage)


def _labels(suite: Suite) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        trial: {axis.name: tuple(value.label for value in axis.values) for group in groups for axis in group.axes}
        for trial, groups in suite.axes.items()
    }


def _tags(suite: Suite) -> Iterator[str]:
    for entries in (suite.trials, suite.runtimes, suite.machines):
        for entry in entries.values():
            yield from entry.tags


class _ShortHashes:
    """Hashes of eight digits that are unique in the plan, whatever is selected of it."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def shorten(self, digest: str) -> str:
        for start in range(len(digest) - _HEX):  # two that begin alike: the later one goes on to its next digits
            short = digest[start : start + _HEX]
            if short not in self._used:
                self._used.add(short)
                return short
        raise ValueError(f"no part of {digest} is unique in the plan")


def _digest(value: Any) -> str:
    return _sha256(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Picked(NamedTuple):
    """A value of an axis, as one part of a combination."""

    axis: str
    value: AxisValue
    text: str  # axis=label, as it stands in ids
    digest: str
    fields: dict[str, str]  # for conditions


# Fields of a trial and of a runtime that say where cells run, or that are resolved with others: no part of `spec`.
TRIAL_APART = frozenset(
    {"runtime", "machine", "matrix", "zip", "needs", "exclude", "xfail", "tags", "env", "repeat"}
    | {"estimate", "disabled", "benchmark"}
)
RUNTIME_APART = frozenset({"env", "needs", "tags"})


class _Trial:
    """One trial with all that its cells share, worked out once."""

    def __init__(self, suite: Suite, name: str, hashes: _ShortHashes, history: Mapping[str, float]) -> None:
        self._suite = suite
        self._name = name
        self._hashes = hashes
        self._history = history
        self._model = model = suite.trials[name]
        self._estimate_s = model.estimate_s if model.estimate_s is not None else suite.estimate_s
        self._groups = [*suite.axes[name]]
        if model.repeat > 1:
            numbers = tuple(AxisValue(str(number), number, {}) for number in range(1, model.repeat + 1))
            self._groups.append(Group((Axis(REPEAT, numbers),)))
        axes = {axis.name: axis for group in self._groups for axis in group.axes}
        self._excludes = [(compile_rule(rule, axes), rule.why) for rule in model.exclude]
        self._xfails = [(compile_rule(rule, axes), rule) for rule in model.xfail]
        self._content = _digest([name, model.content(), _plain(suite.env)])
        self._work = _digest(model.work())
        self._policy = Policy.of(model)
        self._fields = trial_fields(model)
        self._resolver = Resolver(f"trials.{name}", model, suite.data["trials"][name], TRIAL_APART)
        self._machines: dict[str, tuple[Machine, str]] = {}
        self._runtimes: dict[str | None, _RuntimeOf] = {}
        self._places: dict[tuple[str, str | None], _Place] = {}

    def combinations(self) -> Iterator[Cell | Excluded]:
        for row in product(*(_rows(group) for group in self._groups)):
            picked = [one for part in row for one in part]
            labels = {one.axis: one.value.label for one in picked}
            place = self._place(labels)
            why, cause = self._reason(labels, picked, place)
            yield Excluded(self._name, labels, why, cause) if why else self._cell(labels, picked, place)

    def _place(self, labels: Mapping[str, str]) -> "_Place":
        key = machine_name, runtime_name = (
            labels.get("machine", HERE if self._model.target is None else ""),
            labels.get("runtime"),
        )
        if key not in self._places:
            if machine_name not in self._machines:
                machine = self._machine(machine_name)
                self._machines[machine_name] = machine, _json(machine.content())
            if runtime_name not in self._runtimes:
                self._runtimes[runtime_name] = _RuntimeOf(self._suite, self._name, runtime_name)
            runtime = self._runtimes[runtime_name]
            self._places[key] = _Place(
                self._suite, self._name, self._fields, runtime, machine_name, *self._machines[machine_name]
            )
        return self._places[key]

    def _machine(self, name: str) -> Machine:
        """Of a trial that names its target instead of machines, one of which nothing is known but that."""
        if self._model.target is None:
            return self._suite.machine(name)
        return Machine(target=self._suite.override_name or self._model.target)

    def _reason(self, labels: Mapping[str, str], picked: Iterable[_Picked], place: "_Place") -> tuple[str, str]:
        if self._model.disabled is not None:
            return self._model.disabled, "disabled"
        for rule, why in self._excludes:
            if _holds(rule, labels):
                return why, "exclude"
        if place.unmet:
            return place.unmet, "needs"
        for axis, value, *_ in picked:
            if value.needs:
                why = unmet(f"{axis} {value.label}", value.needs, place.machine_name, place.machine)
                if why:
                    return why, "needs"
        return "", ""

    def _cell(self, labels: dict[str, str], picked: Sequence[_Picked], place: "_Place") -> Cell:
        values = {one.axis: one.value.value for one in picked}
        content = self._content + place.digest + "".join([one.digest for one in picked])
        work = self._work + place.work + "".join([one.digest for one in picked if one.axis not in _APART])
        short = self._hashes.shorten(_sha256(content))
        benchmark = self._id(one.text for one in picked if one.axis != REPEAT)
        spec, runtime = self._resolver.resolve(labels, values), place.runtime.resolve(labels, values)
        env = place.runtime.env
        if place.runtime.has_placeholders:
            env = {name: fill(one, labels, values) if isinstance(one, str) else one for name, one in env.items()}
        fields = dict(place.fields)
        for one in picked:
            fields.update(one.fields)
        if self._model.benchmark is not None:
            benchmark = fill(self._model.benchmark, labels, values)
        return Cell(
            id=self._id(one.text for one in picked),
            hash=short,
            benchmark=benchmark,
            work=_sha256(work),
            **self._bounded(benchmark),
            trial=self._name,
            kind=self._model.kind,
            spec=spec.model,
            filled=spec.filled,
            policy=self._policy,
            fields=fields,
            axes=labels,
            values=values,
            machine_name=place.machine_name,
            machine=place.machine,
            runtime_name=place.runtime.name,
            runtime=runtime.model if runtime else None,
            runtime_filled=runtime.filled if runtime else {},
            target=place.machine.target,
            directory=self._suite.directory,
            tags=place.tags,
            xfails=tuple(_filled(rule, labels, values) for meant, rule in self._xfails if _holds(meant, labels)),
            env=env,
            estimate_s=self._history.get(short, self._estimate_s),
            price_per_hour=place.machine.price,
        )

    def _id(self, texts: Iterable[str]) -> str:
        inside = ",".join(texts)
        return f"{self._name}[{inside}]" if inside else self._name

    def _bounded(self, benchmark: str) -> dict[str, Any]:
        """The bounds that a cell's metrics are judged by; why there are none, where the trial names a baseline."""
        bounds: list[Bound] = []
        unbounded = []
        for path, metrics in self._model.baseline_files().items():
            baselines = self._suite.baselines.get(path)
            of_cell = baselines.bounds(benchmark) if baselines is not None else ()
            found = [bound for bound in of_cell if bound.metric.startswith(metrics)]
            bounds += found
            if not found:
                what = "does not exist yet" if baselines is None else f"has no entry {benchmark!r}"
                unbounded.append(f"{path} {what}; `seatrial baseline update` makes it from the runs so far")
        return {"bounds": tuple(bounds), "unbounded": "; ".join(unbounded)}


class _RuntimeOf:
    """A runtime, or none, in a trial."""

    def __init__(self, suite: Suite, trial: str, name: str | None) -> None:
        model = suite.trials[trial]
        self.name = name
        self.runtime = suite.runtimes[name] if name is not None else None
        runtime = self.runtime or Runtime.model_construct()
        self.needs = runtime.needs
        self.tags = (*model.tags, *runtime.tags)
        self.env = {**suite.env, **runtime.env, **model.env}
        self.has_placeholders = any(isinstance(value, str) and "${" in value for value in self.env.values())
        self.fields = runtime_fields(self.runtime, suite.env)
        self.content = _json(self.runtime and runtime.content())
        self.work = _json(self.runtime and runtime.work())
        self.env_content = _json(_plain(self.env))
        self._resolver = None
        if name is not None:
            self._resolver = Resolver(f"runtimes.{name}", runtime, suite.data["runtimes"][name] or {}, RUNTIME_APART)

    def resolve(self, labels: Mapping[str, str], values: Mapping[str, Any]) -> Resolved[Runtime] | None:
        return self._resolver.resolve(labels, values) if self._resolver else None


class _Place:
    """A trial on one machine with one runtime. `machine_content` is JSON, as that of the runtime is: each is made once,
    and put together here for every pair of them."""

    def __init__(
        self,
        suite: Suite,
        trial: str,
        fields: WrittenFields,
        runtime: _RuntimeOf,
        machine_name: str,
        machine: Machine,
        machine_content: str,
    ) -> None:
        self.machine_name = machine_name
        self.machine = machine
        self.runtime = runtime
        self.tags = frozenset((*runtime.tags, *machine.tags))
        self.fields = place_fields(fields, runtime.fields, machine)
        self.digest = _sha256(f"[{runtime.content}, {machine_content}]")
        self.work = _sha256(f"[{runtime.work}, {machine_content}, {runtime.env_content}]")
        self.unmet = unmet(f"runtime {runtime.name}", runtime.needs, machine_name, machine) or unmet(
            f"trial {trial}", suite.trials[trial].needs, machine_name, machine
        )


def _rows(group: Group) -> list[list[_Picked]]:
    columns = [[_pick(axis.name, value) for value in axis.values] for axis in group.axes]
    return [list(row) for row in zip(*columns, strict=True)]


def _pick(axis: str, value: AxisValue) -> _Picked:
    digest = _digest([axis, value.label, value.value])
    return _Picked(axis, value, f"{axis}={value.label}", digest, axis_fields(axis, value.value))


def _plain(env: Mapping[str, EnvValue]) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else value.model_dump() for name, value in env.items()}


def _holds(rule: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> bool:
    return all(labels[axis] in meant for axis, meant in rule.items())


def _filled(rule: Xfail, labels: Mapping[str, str], values: Mapping[str, Any]) -> Xfail:
    if rule.step is None or not has_placeholder(rule.step):
        return rule
    return rule.model_copy(update={"step": fill(rule.step, labels, values)})
