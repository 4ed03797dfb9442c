"""Expands a suite: each combination of axis values is a cell, or excluded with a reason."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

from pydantic import BaseModel

from seatrial.job import Bound, Excluded
from seatrial.job.conditions import WrittenFields
from seatrial.job.units import format_size
from seatrial.plan.pairwise import REPEAT, covering_ids, prove
from seatrial.plan.plan import Cost, Plan, PlanError, cell_id
from seatrial.plan.resolve import Resolver, fill
from seatrial.plan.select import Selection, select
from seatrial.suite import (
    HERE,
    Axis,
    AxisValue,
    Cell,
    Group,
    Machine,
    Requirement,
    Runtime,
    Suite,
    Xfail,
    compile_rule,
    has_placeholder,
)
from seatrial.suite.conditions import axis_fields, place_fields, runtime_fields, trial_fields
from seatrial.suite.names import NEVER_FILLED
from seatrial.suite.suite import axes_of

_HEX = 8  # digits of a cell's hash
# Axes that do not identify the work: repeats, and names whose contents are hashed instead.
_APART = (REPEAT, "machine", "runtime")
# Fields of a trial and of a runtime that are not in `spec`: where cells run, and values of each cell.
TRIAL_APART = NEVER_FILLED | {"xfail", "env", "benchmark"}
RUNTIME_APART = frozenset({"env", "needs", "tags"})


def unmet(who: str, needs: Mapping[str, Requirement], machine_name: str, machine: Machine) -> str:
    """The unmet need: `runtime pytorch needs gpu.count >=1, machine cpu has 0`; empty if all are met."""
    for name, need in needs.items():
        have = machine.capability(name)
        if have is None:
            return f"{who} needs {name} {need.text}, machine {machine_name} does not declare {name}"
        if not need.met_by(have):
            return f"{who} needs {name} {need.text}, machine {machine_name} has {_has(name, have)}"
    return ""


def _has(name: str, have: str | float) -> str:
    if isinstance(have, str):
        return have
    group, _, field = name.partition(".")
    if not have and field in ("model", "memory", "type", "topology", "resource"):
        return f"no {group.upper() if group in ('gpu', 'tpu') else group}"
    return format_size(have) if name.endswith("memory") else f"{have:g}"


def expand(suite: Suite, selection: Selection | None = None, history: Mapping[str, float] | None = None) -> Plan:
    """Returns the plan. `history`: seconds by cell hash. Raises PlanError if there are too many cells or none match."""
    selection = selection or Selection()
    counts = {
        name: prod((len(group.axes[0].values) for group in suite.axes[name]), start=trial.repeat)
        for name, trial in suite.trials.items()
    }
    if sum(counts.values()) > suite.max_cells:
        most = ", ".join(f"{name}: {count:,}" for name, count in Counter(counts).most_common(3))
        raise PlanError(
            f"the suite expands to {sum(counts.values()):,} combinations ({most}; limit {suite.max_cells:,}); "
            "remove axis values, or raise `max_cells`"
        )
    hashes: set[str] = set()
    found = [one for name in suite.trials for one in _Trial(suite, name, hashes, history or {}).combinations()]
    valid = [one for one in found if isinstance(one, Cell)]
    excluded = [one for one in found if isinstance(one, Excluded)]
    sections: tuple[Mapping[str, Any], ...] = (suite.trials, suite.runtimes, suite.machines)
    tags = [tag for entries in sections for entry in entries.values() for tag in entry.tags]
    wanted, others = select(valid, excluded, selection, tags)
    excluded += others
    coverage = None
    if selection.pairwise:
        kept = covering_ids(wanted)
        excluded += [
            Excluded(cell.trial, cell.axes, "other cells cover each of its pairs of values", "pairwise")
            for cell in wanted
            if cell.id not in kept
        ]
        selected, wanted = wanted, [cell for cell in wanted if cell.id in kept]
        coverage = prove(selected, wanted, valid, suite.axes)
    labels = {
        trial: {name: tuple(value.label for value in axis.values) for name, axis in axes_of(groups).items()}
        for trial, groups in suite.axes.items()
    }
    return Plan(suite.name, tuple(wanted), tuple(excluded), Cost.of(wanted), labels, coverage)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=lambda v: v.model_dump() if isinstance(v, BaseModel) else str(v))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Picked(NamedTuple):
    """An axis value in a combination."""

    axis: str
    value: AxisValue
    digest: str
    fields: dict[str, str]  # for conditions


class _Trial:
    """One trial, with what its cells share computed once."""

    def __init__(self, suite: Suite, name: str, hashes: set[str], history: Mapping[str, float]) -> None:
        self._suite = suite
        self._name = name
        self._hashes = hashes  # hashes in the plan so far
        self._history = history
        self._model = model = suite.trials[name]
        self._estimate_s = model.estimate_s if model.estimate_s is not None else suite.estimate_s
        self._groups = [*suite.axes[name]]
        if model.repeat > 1:
            numbers = tuple(AxisValue(str(number), number, {}) for number in range(1, model.repeat + 1))
            self._groups.append(Group((Axis(REPEAT, numbers),)))
        axes = axes_of(self._groups)
        self._excludes = [(compile_rule(rule, axes), rule.why) for rule in model.exclude]
        self._xfails = [(compile_rule(rule, axes), rule) for rule in model.xfail]
        self._content = _sha256(_json([name, model.content(), suite.env]))
        self._work = _sha256(_json(model.work()))
        self._baseline_files = self._model.baseline_files()
        self._resolver = Resolver(f"trials.{name}", model, suite.data["trials"][name], TRIAL_APART)
        runtime = cache(partial(_RuntimeOf, suite, name))
        self._place = cache(partial(_Place, suite, name, trial_fields(model), runtime))

    def combinations(self) -> Iterator[Cell | Excluded]:
        implicit = HERE if self._model.target is None else ""
        rows = []
        for group in self._groups:
            columns = [[_pick(axis.name, value) for value in axis.values] for axis in group.axes]
            rows.append(list(zip(*columns, strict=True)))
        for row in product(*rows):
            picked = [one for part in row for one in part]
            labels = {one.axis: one.value.label for one in picked}
            place = self._place(labels.get("machine", implicit), labels.get("runtime"))
            why, cause = self._reason(labels, picked, place)
            yield Excluded(self._name, labels, why, cause) if why else self._cell(labels, picked, place)

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
        short = self._short_hash(_sha256(content))
        given = {REPEAT: "1", **labels}, {REPEAT: 1, **values}  # --repeat 1 removes the axis, not its placeholders
        spec, runtime = self._resolver.resolve(*given), place.runtime.resolver.resolve(*given)
        env = place.runtime.env
        if place.runtime.has_placeholders:
            env = {name: fill(one, *given) if isinstance(one, str) else one for name, one in env.items()}
        fields = dict(place.fields)
        for one in picked:
            fields.update(one.fields)
        if self._model.benchmark is not None:
            benchmark = fill(self._model.benchmark, *given)
        else:
            benchmark = cell_id(self._name, {axis: label for axis, label in labels.items() if axis != REPEAT})
        bounds, unbounded = self._bounds(benchmark)
        return Cell(
            id=cell_id(self._name, labels),
            hash=short,
            benchmark=benchmark,
            work=_sha256(work),
            bounds=bounds,
            unbounded=unbounded,
            trial=self._name,
            kind=self._model.kind,
            spec=spec.model,
            filled=spec.filled,
            fields=fields,
            axes=labels,
            values=values,
            machine_name=place.machine_name,
            machine=place.machine,
            runtime_name=place.runtime.name,
            runtime=runtime.model,
            runtime_filled=runtime.filled,
            target=place.machine.target,
            directory=self._suite.directory,
            tags=place.tags,
            xfails=tuple(_filled(rule, *given) for meant, rule in self._xfails if _holds(meant, labels)),
            env=env,
            estimate_s=self._history.get(short, self._estimate_s),
            gathered=self._model.GATHERED(),
        )

    def _short_hash(self, digest: str) -> str:
        """Eight digits that are unique in the whole plan, before selection."""
        for start in range(len(digest) - _HEX):  # on a collision, use the next digits
            short = digest[start : start + _HEX]
            if short not in self._hashes:
                self._hashes.add(short)
                return short
        raise ValueError(f"no part of {digest} is unique in the plan")

    def _bounds(self, benchmark: str) -> tuple[tuple[Bound, ...], str]:
        """The bounds of a cell's metrics; and if a named baseline has none, why."""
        bounds: list[Bound] = []
        unbounded = []
        for path, metrics in self._baseline_files.items():
            baselines = self._suite.baselines.get(path)
            of_cell = baselines.bounds(benchmark) if baselines is not None else ()
            found = [bound for bound in of_cell if bound.metric.startswith(metrics)]
            bounds += found
            if not found:
                what = "does not exist yet" if baselines is None else f"has no entry {benchmark!r}"
                unbounded.append(f"{path} {what}; run `seatrial baseline update` to create it from past runs")
        return tuple(bounds), "; ".join(unbounded)


class _RuntimeOf:
    """A runtime (or none) in a trial."""

    def __init__(self, suite: Suite, trial: str, name: str | None) -> None:
        model, runtime = suite.trials[trial], suite.runtimes[name] if name is not None else None
        own = runtime or Runtime.model_construct()
        self.name = name
        self.needs = own.needs
        self.tags = (*model.tags, *own.tags)
        self.env = {**suite.env, **own.env, **model.env}
        self.has_placeholders = any(isinstance(value, str) and "${" in value for value in self.env.values())
        self.fields = runtime_fields(runtime, suite.env)
        self.content = _json(runtime and runtime.content())
        self.work = _json(runtime and runtime.work())
        self.env_content = _json(self.env)
        written = suite.data["runtimes"][name] if name is not None else None
        self.resolver = Resolver(f"runtimes.{name}", runtime, written or {}, RUNTIME_APART)


class _Place:
    """A trial on one machine with one runtime."""

    def __init__(
        self,
        suite: Suite,
        trial: str,
        fields: WrittenFields,
        runtime: Callable[[str | None], _RuntimeOf],
        machine_name: str,
        runtime_name: str | None,
    ) -> None:
        model = suite.trials[trial]
        self.machine_name = machine_name
        self.runtime = runtime(runtime_name)
        if model.target is None:
            self.machine = suite.machine(machine_name)
        else:  # only the target of the machine is known
            self.machine = Machine(target=suite.override_name or model.target)
        self.tags = frozenset((*self.runtime.tags, *self.machine.tags))
        self.fields = place_fields(fields, self.runtime.fields, self.machine)
        content = _json(self.machine.content())
        self.digest = _sha256(f"[{self.runtime.content}, {content}]")
        self.work = _sha256(f"[{self.runtime.work}, {content}, {self.runtime.env_content}]")
        self.unmet = unmet(f"runtime {runtime_name}", self.runtime.needs, machine_name, self.machine) or unmet(
            f"trial {trial}", model.needs, machine_name, self.machine
        )


def _pick(axis: str, value: AxisValue) -> _Picked:
    digest = _sha256(_json([axis, value.label, value.value]))
    return _Picked(axis, value, digest, axis_fields(axis, value.value))


def _holds(rule: Mapping[str, frozenset[str]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(axis, "1") in meant for axis, meant in rule.items())  # without an axis: `repeat` is 1


def _filled(rule: Xfail, labels: Mapping[str, str], values: Mapping[str, Any]) -> Xfail:
    if rule.step is None or not has_placeholder(rule.step):
        return rule
    return rule.model_copy(update={"step": fill(rule.step, labels, values)})
