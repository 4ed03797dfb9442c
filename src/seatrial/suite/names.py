"""Checks that every name in a suite exists: targets, capabilities, axes and their values, steps, `${names}`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seatrial.job import METRICS
from seatrial.suite.axes import listed, matching_labels
from seatrial.suite.conditions import known_fields
from seatrial.suite.models import Machine, Runtime
from seatrial.suite.placeholders import as_glob, filled_texts, look_up, placeholders
from seatrial.suite.suite import Group, SuiteModel, axes_of
from seatrial.suite.trial import Rule, TrialModel, Xfail
from seatrial.suite.values import Requirement, glob_matches
from seatrial.suite.yaml.problem import KeyPath, Report, nearest
from seatrial.suite.yaml.source import YamlMap

IsBroken = Callable[..., bool]  # takes the parts of a path
# Trial fields in which placeholders are not filled.
NEVER_FILLED = frozenset(
    {"runtime", "machine", "matrix", "zip", "needs", "exclude", "tags", "repeat", "estimate", "disabled"}
)
_MAKES_AXES = ("runtime", "machine", "matrix", "zip", "repeat")

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_ORDERED = (">=", "<=", ">", "<")
_NUMBERS = ("cpu", "gpu.count", "tpu.slices", "accelerator.count")
_MEANT = {"gpus": "gpu.count", "gpu_count": "gpu.count", "gpu_memory": "gpu.memory", "vram": "gpu.memory"}
_MEANT |= {"gpu_model": "gpu.model", "cpus": "cpu", "cores": "cpu", "ram": "memory", "mem": "memory"}


class Capabilities:
    """The capabilities that machines can have: the fixed ones, and the features that the suite's machines declare."""

    def __init__(self, machines: Mapping[str, Machine], broken: bool = False) -> None:
        """`broken`: some machine's features could not be read."""
        self._broken = broken
        features = dict.fromkeys(feature for machine in machines.values() for feature in machine.features)
        self._known = (*Machine.CAPABILITIES, *(f"features.{feature}" for feature in features))

    def check(self, path: KeyPath, needs: Mapping[str, Requirement], report: Report) -> None:
        for name, need in needs.items():
            inside = [known for known in self._known if known.startswith(f"{name}.")]
            if inside:
                report((*path, name), f"{name!r} is a group of capabilities; use one of {', '.join(inside)}", True)
            elif name not in self._known:
                if not (self._broken and name.startswith("features.")):
                    near = f"; did you mean {_MEANT[name]!r}?" if name in _MEANT else nearest(name, self._known)
                    report((*path, name), f"unknown capability {name!r}{near}", True)
            elif name == "gpu.model" and need.operator in _ORDERED:
                report((*path, name), f"invalid gpu.model {need.text!r}: a model cannot be ordered; use its name: A100")
            elif name.endswith("memory") and any(isinstance(size, str) or size < 1024 for size in need.operands):
                report((*path, name), f"invalid memory size {need.text!r}; use a unit: >=16Gi")
            elif name in _NUMBERS and any(isinstance(number, str) for number in need.operands):
                report((*path, name), f"invalid {name} {need.text!r}; use >=4 or 4")


def used_runtimes(groups: Iterable[Group], runtimes: Mapping[str, Runtime]) -> dict[str, Runtime]:
    """The runtimes that are values of the trial's `runtime` axis."""
    values = [value for group in groups for axis in group.axes if axis.name == "runtime" for value in axis.values]
    return {value.label: runtimes[value.label] for value in values if value.label in runtimes}


class TrialNames:
    """Checks the names in one trial against its axes."""

    def __init__(
        self, name: str, trial: TrialModel, groups: tuple[Group, ...], report: Report, is_broken: IsBroken
    ) -> None:
        """`is_broken` says what was already reported, to avoid follow-up errors."""
        self._path: KeyPath = ("trials", name)
        self._trial = trial
        self._groups = groups
        self._sound = not is_broken(*self._path)
        self._is_broken = is_broken
        self._axes_are_known = not any(is_broken(*self._path, field) for field in _MAKES_AXES)
        self._axes = axes_of(groups)
        self._names = [*self._axes, *(("repeat",) if trial.repeat > 1 else ())]  # of all axes
        self._report = report

    def check(self, written: YamlMap, suite: SuiteModel, capabilities: Capabilities) -> None:
        capabilities.check((*self._path, "needs"), self._trial.needs, self._report)
        for axis in self._axes.values():
            for index, value in enumerate(axis.values):
                capabilities.check((*axis.path, index, "needs"), value.needs, self._report)
        for index, exclude in enumerate(self._trial.exclude):
            path = (*self._path, "exclude", index)
            self._check_rule(path, exclude)
            if not exclude.axes:
                message = "`exclude` needs at least one axis; to turn off a whole trial, use `disabled: REASON`"
                self._report(path, message, True)
        used = used_runtimes(self._groups, suite.runtimes)
        sound = self._sound and not any(self._is_broken("runtimes", name) for name in used)
        if sound and not any(self._trial.checks_anything(runtime) for runtime in used.values() or [None]):
            message = f"trial {self._path[1]!r} has no checks, so it cannot fail; add at least one"
            self._report(self._path, message, True)
        for index, xfail in enumerate(self._trial.xfail):
            self._check_rule((*self._path, "xfail", index), xfail)
            if sound:
                self._check_step((*self._path, "xfail", index, "step"), xfail, used)
        if self._axes_are_known:
            self._check_placeholders(written, used)
            self._check_benchmark()
        if self._trial.conditions or self._trial.under_test:
            self._check_fields({*suite.env, *(name for runtime in suite.runtimes.values() for name in runtime.env)})

    def _check_fields(self, variables: set[str]) -> None:
        """Checks `conditions` and `under_test`; `variables` are those of the suite and its runtimes."""
        trial = self._trial
        known = known_fields(trial, self._axes.values(), {*variables, *trial.env})
        for key, names in (("conditions", trial.conditions), ("under_test", trial.under_test)):
            for index, name in enumerate(names):
                if name not in known:
                    self._report((*self._path, key, index), f"unknown field {name!r}{nearest(name, known)}")
        for name in set(trial.conditions) & set(trial.under_test):
            message = f"{name!r} cannot be in both `conditions` and `under_test`"
            self._report((*self._path, "under_test", trial.under_test.index(name)), message)

    def _check_benchmark(self) -> None:
        """Each cell has its own entry in a baseline, so their names must differ."""
        if self._trial.benchmark is None:
            return
        named = {name.split(".")[0] for name in placeholders(self._trial.benchmark)}
        # A named axis of a zip tells its values apart, and so those of the other axes of that zip.
        labels = {name: [one.label for one in axis.values] for name, axis in self._axes.items() if name in named}
        different = {name for name, found in labels.items() if len(set(found)) == len(found)}
        named |= {name for columns in self._trial.zip if different & columns.keys() for name in columns}
        shared = [name for name, axis in self._axes.items() if len(axis.values) > 1 and name not in named]
        if shared:
            message = f"cells that differ in {shared[0]!r} would share one entry; add ${{{shared[0]}}} to the name"
            self._report((*self._path, "benchmark"), message)

    def _check_rule(self, path: KeyPath, rule: Rule) -> None:
        fields = [*self._names, "why", *(("step",) if isinstance(rule, Xfail) else ())]
        for name, wanted in rule.axes.items() if self._axes_are_known else ():
            if name not in self._names:
                self._report((*path, name), f"unknown axis {name!r}{nearest(name, fields)}", True)
            elif name == "repeat":
                if not all(one in range(1, self._trial.repeat + 1) for one in listed(wanted)):
                    self._report((*path, name), f"`repeat` must be from 1 to {self._trial.repeat}")
            else:
                for index, one in enumerate(listed(wanted)):
                    at = (*path, name, index) if isinstance(wanted, list) else (*path, name)
                    if not matching_labels(self._axes[name], one):
                        labels = [value.label for value in self._axes[name].values]
                        self._report(at, f"unknown value {one!r} of axis {name!r}{nearest(one, labels)}")

    def _check_step(self, path: KeyPath, xfail: Xfail, runtimes: Mapping[str, Runtime]) -> None:
        if xfail.step is None:
            return
        steps = [step for runtime in runtimes.values() or [None] for step in self._trial.step_names(runtime)]
        if self._trial.baseline_files():
            steps.append(METRICS)
        wanted = as_glob(xfail.step)
        if not any(
            xfail.covers(step) or glob_matches(wanted, step) or glob_matches(as_glob(step), wanted) for step in steps
        ):
            self._report(path, f"unknown step {xfail.step!r}{nearest(xfail.step, steps)}")

    def _check_placeholders(self, written: Mapping[str, Any], runtimes: Mapping[str, Runtime]) -> None:
        own = {key: value for key, value in written.items() if key not in NEVER_FILLED}
        for path, text, _ in filled_texts(own, path=self._path):
            if path[-1] != "why":
                self._check_text(path, text)
        for name, runtime in runtimes.items():
            inside = runtime.model_dump(by_alias=True, exclude={"needs", "tags"})
            for path, text, _ in filled_texts(inside, path=("runtimes", name)):
                self._check_text(path, text, f" in trial {self._path[1]!r}, which uses this runtime")

    def _check_text(self, path: KeyPath, text: str, owner: str = "") -> None:
        for name in placeholders(text):
            axis = self._axes.get(name.split(".")[0])
            if axis is None:
                if name not in self._names:
                    shell = f" (for a shell variable, write $${{{name}}})"
                    self._report(path, f"unknown name ${{{name}}}{owner}{shell}{nearest(name, self._names)}")
                continue
            for value in axis.values:
                try:
                    look_up(name, {axis.name: value.value})
                except KeyError:
                    fields = [f"{axis.name}.{field}" for field in value.value] if isinstance(value.value, dict) else []
                    lack = f"unknown field ${{{name}}} of value {value.label!r} of axis {axis.name!r}"
                    self._report(path, lack + (nearest(name, fields) if fields else "; the value is not a map"))
                    break
