"""A plan to the data of `plan.json`, and back."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter

from seatrial import __version__
from seatrial.job import decode
from seatrial.job.plan import (
    PLAN_VERSION,
    PlanFile,
    PlannedCell,
    PlannedRuntime,
    PlannedSuite,
    PlannedTrial,
    PlannedXfail,
    RunOptions,
)
from seatrial.plan.expand import RUNTIME_APART, TRIAL_APART
from seatrial.plan.pairwise import REPEAT
from seatrial.plan.plan import Cost, Plan, PlanError
from seatrial.suite import (
    HERE,
    LOCAL,
    Cell,
    Env,
    Machine,
    Policy,
    Runtime,
    SecretSource,
    Suite,
    TargetEntry,
    TrialModel,
)
from seatrial.suite.conditions import axis_fields, place_fields, runtime_fields, trial_fields
from seatrial.suite.suite import RunSuite
from seatrial.suite.trial import Xfail

Kinds = Mapping[str, type[TrialModel]]
TargetModels = Mapping[str, type[BaseModel]]
_ENV: TypeAdapter[dict[str, Any]] = TypeAdapter(Env)


def to_file(plan: Plan, suite: Suite, run: str, options: RunOptions) -> PlanFile:
    written = _Writer(suite)
    cells = [written.cell(cell) for cell in plan.cells]
    return PlanFile(
        cells=cells,
        excluded=list(plan.excluded),
        axes={trial: {axis: [*labels] for axis, labels in axes.items()} for trial, axes in plan.labels.items()},
        options=options,
        seatrial=__version__,
        run=run,
        suite=PlannedSuite(
            suite.name, str(suite.directory.resolve()), str(suite.path) if suite.path else None, suite.target_override
        ),
        targets={name: entry for name, entry in (suite.data.get("targets") or {}).items() if name in suite.targets},
        secrets=suite.data.get("secrets") or {},
        machines={name: entry or {} for name, entry in (suite.data.get("machines") or {}).items()},
        runtimes=written.runtimes,
        trials=written.trials,
        data=written.data,
        counts=plan.counts,
        hours=round(plan.hours, 6),
        price=round(plan.price, 6),
    )


class _Writer:
    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.trials: dict[str, PlannedTrial] = {}
        self.runtimes: dict[str, PlannedRuntime] = {}
        self.data: dict[str, msgspec.Raw] = {}

    def cell(self, cell: Cell) -> PlannedCell:
        if cell.trial not in self.trials:
            self.trials[cell.trial] = self._trial(cell)
        runtime = self._suite.runtimes[cell.runtime_name].env if cell.runtime_name else {}
        as_written = {**self._suite.env, **runtime, **self._suite.trials[cell.trial].env}
        return PlannedCell(
            id=cell.id,
            hash=cell.hash,
            axes=cell.axes,
            trial=cell.trial,
            tags=cell.tags,
            estimate_s=cell.estimate_s,
            target=cell.target,
            machine=cell.machine_name,
            runtime=self._runtime(cell),
            spec=cell.filled,
            env={name: text for name, text in cell.env.items() if isinstance(text, str) and text != as_written[name]},
            benchmark="" if cell.benchmark == cell.id else cell.benchmark,
            work=cell.work,
            bounds=cell.bounds,
            unbounded=cell.unbounded,
            xfails=tuple(PlannedXfail(one.why, one.step) for one in cell.xfails),
            gathered=self._gathered(cell),
        )

    def _trial(self, cell: Cell) -> PlannedTrial:
        """The fields that a placeholder is in are the same for all cells."""
        data, model = self._suite.data["trials"][cell.trial], self._suite.trials[cell.trial]
        axes = [axis for group in self._suite.axes[cell.trial] for axis in group.axes]
        return PlannedTrial(
            kind=cell.kind,
            spec={key: value for key, value in data.items() if key not in TRIAL_APART and key not in cell.filled},
            env=data.get("env") or {},
            fields=trial_fields(model),
            axes={axis.name: [(value.label, value.value) for value in axis.values] for axis in axes},
        )

    def _runtime(self, cell: Cell) -> str:
        key = cell.runtime_name or ""
        if cell.runtime_filled:
            key += f"@{_digest(msgspec.json.encode(cell.runtime_filled, order='sorted'))}"
        if key not in self.runtimes:
            data = self._suite.data["runtimes"][cell.runtime_name] if cell.runtime_name else None
            written = self._suite.runtimes[cell.runtime_name] if cell.runtime_name else None
            spec = None
            if data is not None:
                spec = {name: one for name, one in data.items() if name not in RUNTIME_APART} | cell.runtime_filled
            env = {**(self._suite.data.get("env") or {}), **((data or {}).get("env") or {})}
            self.runtimes[key] = PlannedRuntime(spec, env, runtime_fields(written, self._suite.env))
        return key

    def _gathered(self, cell: Cell) -> str:
        if not cell.gathered:
            return ""
        data = msgspec.json.encode(cell.gathered)
        key = _digest(data)
        self.data[key] = msgspec.Raw(data)
        return key


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def read_suite(file: PlanFile, models: TargetModels) -> RunSuite:
    """Raises PlanError for a plan of another version, ValueError and KeyError for one that was not written so."""
    if file.version != PLAN_VERSION:
        raise PlanError(f"{file.run} was planned by Seatrial {file.seatrial}; finish it with that version")
    targets = {}
    for name, entry in file.targets.items():
        model = models[entry["kind"]]
        own = "kind" in model.model_fields
        options = {key: value for key, value in entry.items() if own or key != "kind"}
        targets[name] = TargetEntry(entry["kind"], model.model_validate(options))
    if HERE not in targets and LOCAL in models:
        targets[HERE] = TargetEntry(LOCAL, models[LOCAL]())
    path = Path(file.suite.path) if file.suite.path is not None else None
    secrets = {name: SecretSource.model_validate(source) for name, source in file.secrets.items()}
    return RunSuite(file.suite.name, Path(file.suite.directory), path, targets, secrets, file.suite.target)


def read_cells(file: PlanFile, kinds: Kinds) -> Plan:
    """Raises ValueError and KeyError for a plan that was not written so."""
    reader = _Reader(file, kinds)
    cells = tuple(reader.cell(cell) for cell in file.cells)
    labels = {trial: {axis: tuple(found) for axis, found in axes.items()} for trial, axes in file.axes.items()}
    return Plan(file.suite.name, cells, tuple(file.excluded), Cost.of(cells), labels)


class _Reader:
    """What cells share is made once."""

    def __init__(self, file: PlanFile, kinds: Kinds) -> None:
        self._file = file
        self._kinds = kinds
        self._directory = Path(file.suite.directory)
        self._machines = {name: Machine.model_validate(data) for name, data in file.machines.items()}
        self._runtimes = {
            name: None if one.spec is None else Runtime.model_validate(one.spec) for name, one in file.runtimes.items()
        }
        self._values = {
            trial: {axis: dict(pairs) for axis, pairs in one.axes.items()} for trial, one in file.trials.items()
        }
        self._specs: dict[tuple[str, bytes], TrialModel] = {}
        self._policies: dict[str, Policy] = {}
        self._envs: dict[tuple[str, str], dict[str, Any]] = {}
        self._fields: dict[tuple[str, str, str, str], dict[str, str]] = {}
        self._gathered: dict[str, Any] = {}

    def cell(self, cell: PlannedCell) -> Cell:
        trial, runtime = self._file.trials[cell.trial], self._file.runtimes[cell.runtime]
        spec = self._spec(cell, trial)
        machine = self._machines.get(cell.machine) or Machine(target=cell.target)
        values = {
            axis: int(label) if axis == REPEAT else self._values[cell.trial][axis][label]
            for axis, label in cell.axes.items()
        }
        place = cell.trial, cell.runtime
        if place not in self._envs:
            self._envs[place] = _ENV.validate_python({**runtime.env, **trial.env})
        if (key := (*place, cell.machine, cell.target)) not in self._fields:
            self._fields[key] = place_fields(trial.fields, runtime.fields, machine)
        fields = dict(self._fields[key])
        for axis, value in values.items():
            fields.update(axis_fields(axis, value))
        return Cell(
            id=cell.id,
            hash=cell.hash,
            trial=cell.trial,
            kind=trial.kind,
            spec=spec,
            policy=self._policies[cell.trial],
            axes=cell.axes,
            values=values,
            machine_name=cell.machine,
            machine=machine,
            runtime_name=cell.runtime.partition("@")[0] or None,
            runtime=self._runtimes[cell.runtime],
            target=cell.target,
            directory=self._directory,
            tags=cell.tags,
            xfails=tuple(Xfail(why=one.why, step=one.step) for one in cell.xfails),
            env={**self._envs[place], **cell.env},
            fields=fields,
            filled=cell.spec,
            benchmark=cell.benchmark or cell.id,
            work=cell.work,
            bounds=cell.bounds,
            unbounded=cell.unbounded,
            estimate_s=cell.estimate_s,
            price_per_hour=machine.price,
            gathered=self._data(cell),
        )

    def _spec(self, cell: PlannedCell, trial: PlannedTrial) -> TrialModel:
        key = cell.trial, msgspec.json.encode(cell.spec)
        if key not in self._specs:
            self._specs[key] = self._kinds[trial.kind].model_validate({**trial.spec, **cell.spec})
            self._policies.setdefault(cell.trial, Policy.of(self._specs[key]))
        return self._specs[key]

    def _data(self, cell: PlannedCell) -> Any:
        if not cell.gathered:
            return {}
        if cell.gathered not in self._gathered:
            self._gathered[cell.gathered] = decode(bytes(self._file.data[cell.gathered]), dict[str, Any])
        return self._gathered[cell.gathered]
