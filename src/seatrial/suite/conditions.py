"""Splits the fields of a suite into conditions of a cell's metrics and fields under test."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seatrial.job import COUNTED, Settings, flat_fields
from seatrial.job.conditions import WrittenFields
from seatrial.suite.models import EnvValue, Machine, Runtime, Workspace
from seatrial.suite.suite import Axis
from seatrial.suite.trial import Cell, TrialModel

AXES, ENV, HARDWARE, MACHINE, WORKSPACE = "axes", "env", "hardware", "machine", "workspace"
# Axes about where and how often a cell runs; machines and runtimes have their own fields.
_APART = ("repeat", "machine", "runtime")
OF_RUNTIME = ("python", "packages", "interpreter", "image")
OTHERS = "others"  # different hardware of other hosts


def settings_of(cell: Cell, hardware: Mapping[str, Any], former: str = "") -> Settings:
    """Everything that a cell's metrics depend on, with the hardware that it ran on."""
    conditions: dict[str, str] = {}
    under_test: dict[str, str] = {}
    seen = flat_fields({key: hardware[key] for key in (*COUNTED, OTHERS) if key in hardware}, HARDWARE)
    for name, value in sorted([*cell.fields.items(), *seen]):
        (under_test if is_under_test(cell.spec, name) else conditions)[name] = value
    return Settings(conditions, under_test, former)


def is_under_test(trial: TrialModel, name: str) -> bool:
    """The longest name that covers the field decides; the trial takes precedence over its kind's defaults."""
    defaults = dict.fromkeys((*OF_RUNTIME, *trial.UNDER_TEST), True)
    moved = dict.fromkeys(trial.conditions, False) | dict.fromkeys(trial.under_test, True)
    for names in (moved, defaults):
        covering = [one for one in names if covers(one, name)]
        if covering:
            return names[max(covering, key=len)]
    return False


def covers(name: str, field: str) -> bool:
    return field == name or field.startswith(f"{name}.")


def known_fields(trial: TrialModel, axes: Iterable[Axis], variables: Iterable[str]) -> list[str]:
    """The names that a trial may use in `conditions` and `under_test`: fields and groups of fields."""
    measured = [axis for axis in axes if axis.name not in _APART]
    inside = {name for axis in measured for value in axis.values for name, _ in flat_fields(value.value, axis.name)}
    own = {name for name, _ in _of_trial(trial)}
    own |= {
        field.serialization_alias or name
        for name, field in type(trial).model_fields.items()
        if name not in {"kind", *trial.APART, *trial.JUDGING}
    }
    groups = {
        AXES: [*inside, *(axis.name for axis in measured)],
        ENV: [*variables],
        HARDWARE: [*COUNTED, OTHERS],
        MACHINE: [field.alias or name for name, field in Machine.model_fields.items()],
        WORKSPACE: [*Workspace.model_fields],
    }
    known = own | {*OF_RUNTIME, *groups} | {f"{group}.{one}" for group, names in groups.items() for one in names}
    return sorted(known)


def trial_fields(trial: TrialModel) -> WrittenFields:
    workspace = _of_workspace(getattr(trial, "workspace", None))
    return WrittenFields(dict(_of_trial(trial)), workspace, _of_env(trial.env))


def runtime_fields(runtime: Runtime | None, env: Mapping[str, EnvValue]) -> WrittenFields:
    """`env` is the suite's; the runtime's overrides it."""
    if runtime is None:
        return WrittenFields(env=_of_env(env))
    own = {key: value for key, value in runtime.work().items() if key in OF_RUNTIME}
    variables = _of_env({**env, **runtime.env})
    return WrittenFields(dict(flat_fields(own, "")), _of_workspace(runtime.workspace), variables)


def place_fields(trial: WrittenFields, runtime: WrittenFields, machine: Machine) -> dict[str, str]:
    """The fields of a trial with this runtime on this machine."""
    workspace, env = trial.workspace or runtime.workspace, {**runtime.env, **trial.env}
    return {**trial.own, **workspace, **runtime.own, **env, **dict(flat_fields(machine.content(), MACHINE))}


def axis_fields(axis: str, value: Any) -> dict[str, str]:
    return {} if axis in _APART else dict(flat_fields({axis: value}, AXES))


def _of_trial(trial: TrialModel) -> Iterator[tuple[str, str]]:
    """The trial's own fields, without `env` and `workspace`, which are merged with the runtime's and suite's. Switches
    under test are named even if they have their default, so that bounds that had them as conditions still apply."""
    switches = {name: value for name in trial.UNDER_TEST if isinstance(value := getattr(trial, name, None), bool)}
    found = switches | trial.work()
    return flat_fields({key: value for key, value in found.items() if key not in (ENV, WORKSPACE)}, "")


def _of_workspace(workspace: Workspace | None) -> dict[str, str]:
    return dict(flat_fields(workspace.model_dump(exclude_none=True), WORKSPACE)) if workspace else {}


def _of_env(env: Mapping[str, EnvValue]) -> dict[str, str]:
    texts = {name: value if isinstance(value, str) else f"secret {value.secret}" for name, value in env.items()}
    return dict(flat_fields(texts, ENV))
