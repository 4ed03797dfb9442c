"""Writes and reads `plan.json`."""

import hashlib
from functools import cache
from pathlib import Path

import msgspec
from pydantic import TypeAdapter

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
    EnvValue,
    Machine,
    Runtime,
    SecretSource,
    Suite,
    TargetEntry,
    TrialModel,
)
from seatrial.suite.conditions import axis_fields, place_fields, runtime_fields, trial_fields
from seatrial.suite.load import Kinds
from seatrial.suite.overrides import TargetModels
from seatrial.suite.suite import RunSuite, axes_of, own_fields
from seatrial.suite.trial import Xfail

# Fields of a cell that its plan file has as they are.
_SAME = ("id", "hash", "axes", "trial", "tags", "estimate_s", "target", "work", "bounds", "unbounded")
_ENV: TypeAdapter[dict[str, EnvValue]] = TypeAdapter(Env)


def to_file(plan: Plan, suite: Suite, run: str, options: RunOptions) -> PlanFile:
    written = _Writer(suite)
    directory, path = str(suite.directory.resolve()), str(suite.path) if suite.path else None
    return PlanFile(
        cells=[written.cell(cell) for cell in plan.cells],  # first: this fills `written`
        excluded=list(plan.excluded),
        axes={trial: {axis: [*labels] for axis, labels in axes.items()} for trial, axes in plan.labels.items()},
        options=options,
        seatrial=__version__,
        run=run,
        suite=PlannedSuite(suite.name, directory, path, suite.target_override, suite.overrides),
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
        suite = self._suite
        if cell.trial not in self.trials:
            data, axes = suite.data["trials"][cell.trial], axes_of(suite.axes[cell.trial])
            # Which fields have placeholders is the same for all cells.
            self.trials[cell.trial] = PlannedTrial(
                kind=cell.kind,
                spec={key: value for key, value in data.items() if key not in TRIAL_APART and key not in cell.filled},
                env=data.get("env") or {},
                fields=trial_fields(suite.trials[cell.trial]),
                axes={name: [(value.label, value.value) for value in axis.values] for name, axis in axes.items()},
            )
        runtime_env = suite.runtimes[cell.runtime_name].env if cell.runtime_name else {}
        as_written = {**suite.env, **runtime_env, **suite.trials[cell.trial].env}
        gathered = ""
        if cell.gathered != type(cell.gathered)():
            encoded = msgspec.json.encode(cell.gathered)
            gathered = _digest(encoded)
            self.data[gathered] = msgspec.Raw(encoded)
        return PlannedCell(
            **{name: getattr(cell, name) for name in _SAME},
            machine=cell.machine_name,
            runtime=self._runtime(cell),
            spec=cell.filled,
            env={name: text for name, text in cell.env.items() if isinstance(text, str) and text != as_written[name]},
            benchmark="" if cell.benchmark == cell.id else cell.benchmark,
            xfails=tuple(PlannedXfail(one.why, one.step) for one in cell.xfails),
            gathered=gathered,
        )

    def _runtime(self, cell: Cell) -> str:
        suite, name = self._suite, cell.runtime_name
        key = name or ""
        if cell.runtime_filled:
            key += f"@{_digest(msgspec.json.encode(cell.runtime_filled, order='sorted'))}"
        if key not in self.runtimes:
            data = suite.data["runtimes"][name] if name else {}
            spec = {field: one for field, one in data.items() if field not in RUNTIME_APART} | cell.runtime_filled
            env = {**(suite.data.get("env") or {}), **(data.get("env") or {})}
            fields = runtime_fields(suite.runtimes[name] if name else None, suite.env)
            self.runtimes[key] = PlannedRuntime(spec if name else None, env, fields)
        return key


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def read_suite(file: PlanFile, models: TargetModels) -> RunSuite:
    """Raises PlanError for a plan of another version, ValueError and KeyError for a malformed one."""
    if file.version != PLAN_VERSION:
        raise PlanError(f"{file.run} was planned by Seatrial {file.seatrial}; finish it with that version")
    targets = {}
    for name, entry in file.targets.items():
        model = models[entry["kind"]]
        targets[name] = TargetEntry(entry["kind"], model.model_validate(own_fields(entry, model)))
    if HERE not in targets and LOCAL in models:
        targets[HERE] = TargetEntry(LOCAL, models[LOCAL]())
    path = Path(file.suite.path) if file.suite.path is not None else None
    secrets = {name: SecretSource.model_validate(source) for name, source in file.secrets.items()}
    made = file.suite
    return RunSuite(made.name, Path(made.directory), path, targets, secrets, made.target, made.overrides)


def read_cells(file: PlanFile, kinds: Kinds) -> Plan:
    """Raises ValueError and KeyError for a malformed plan."""
    reader = _Reader(file, kinds)
    cells = tuple(reader.cell(cell) for cell in file.cells)
    labels = {trial: {axis: tuple(found) for axis, found in axes.items()} for trial, axes in file.axes.items()}
    return Plan(file.suite.name, cells, tuple(file.excluded), Cost.of(cells), labels)


class _Reader:
    """Builds what cells share only once."""

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
        self._env = cache(self._read_env)
        self._fields = cache(self._read_fields)
        self._gathered = cache(lambda kind, key: decode(bytes(file.data[key]), kinds[kind].GATHERED))

    def cell(self, cell: PlannedCell) -> Cell:
        trial = self._file.trials[cell.trial]
        key = cell.trial, msgspec.json.encode(cell.spec)
        if key not in self._specs:
            self._specs[key] = self._kinds[trial.kind].model_validate({**trial.spec, **cell.spec})
        spec = self._specs[key]
        machine = self._machine(cell.machine, cell.target)
        values = {
            axis: int(label) if axis == REPEAT else self._values[cell.trial][axis][label]
            for axis, label in cell.axes.items()
        }
        fields = dict(self._fields(cell.trial, cell.runtime, cell.machine, cell.target))
        for axis, value in values.items():
            fields.update(axis_fields(axis, value))
        return Cell(
            **{name: getattr(cell, name) for name in _SAME},
            kind=trial.kind,
            spec=spec,
            values=values,
            machine_name=cell.machine,
            machine=machine,
            runtime_name=cell.runtime.partition("@")[0] or None,
            runtime=self._runtimes[cell.runtime],
            directory=self._directory,
            xfails=tuple(Xfail(why=one.why, step=one.step) for one in cell.xfails),
            env={**self._env(cell.trial, cell.runtime), **cell.env},
            fields=fields,
            filled=cell.spec,
            benchmark=cell.benchmark or cell.id,
            gathered=self._gathered(trial.kind, cell.gathered) if cell.gathered else type(spec).GATHERED(),
        )

    def _machine(self, name: str, target: str) -> Machine:
        return self._machines.get(name) or Machine(target=target)

    def _read_env(self, trial: str, runtime: str) -> dict[str, EnvValue]:
        return _ENV.validate_python({**self._file.runtimes[runtime].env, **self._file.trials[trial].env})

    def _read_fields(self, trial: str, runtime: str, machine: str, target: str) -> dict[str, str]:
        written = self._file.trials[trial].fields, self._file.runtimes[runtime].fields
        return place_fields(*written, self._machine(machine, target))
