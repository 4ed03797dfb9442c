"""The job file: one JSON object that describes a job to the agent, in the same format for all targets.

The zygote gets it as the `job` of a request; `run` and `pod` get the path of a file. A field that is missing or null
has the default shown here; only `version` and `steps` are required, and `name` and `kind` of each step.

    {"version": 1,
     "name": "",
     "steps": [{"name": ..., "kind": ..., "args": {}, "timeout_s": null}],    one after the other (`steps/kinds.py`)
     "limits": {"run_s": null, "stall_s": null, "grace_s": 10},
     "folders": null,             {"out": for the log and the records, "work": ..., "files": kept files}; those of a
                                  pod are always the same
     "variables": null,           the environment of the steps; null: the agent's own
     "secret_variables": [],      variables whose values are masked in everything that leaves the job
     "environment": {},           the Python of the steps: {"name", "python": a version, "packages": [...],
                                  "interpreter": a path, "driver": another one, with nbclient}
     "hosts": 1,                  each runs an agent for this job; the pod knows its own number
     "inputs": false,             whether to unpack an archive into the work folder
     "cpus": [],                  CPUs that the job may use; empty: all
     "memory_bytes": null,
     "log": {"segments": 4},      segments to keep at the end of a long log (`run/log.py`)
     "ready": null,               {"port": number, "path": ""}: probed until it answers (`run/readiness.py`)
     "container": null}           how to create the container for the steps (`run/container.py`)
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from .run.log import SEGMENTS

_VERSION = 1


class JobError(Exception):
    """The job cannot run or continue. `outcome` is `refused` if a retry cannot help."""

    def __init__(self, message: str, outcome: str = "infra") -> None:
        super().__init__(message)
        self.outcome = outcome


class RunLimits(NamedTuple):
    run_s: Optional[float] = None
    stall_s: Optional[float] = None
    grace_s: float = 10.0


_LIMITS = [(name, (int, float), default) for name, default in RunLimits()._asdict().items()]


class Ending(NamedTuple):
    """How a job ended; `code` is that of the first step that did not exit 0."""

    outcome: str
    code: Optional[int] = None
    message: str = ""
    left: int = 0


def read_ending(path: str) -> Optional[Ending]:
    """Reads an ending that was written as JSON; None if there is none or it is unreadable."""
    try:
        with open(path) as file:
            given = json.load(file)
        return Ending(str(given["outcome"]), given["code"], str(given["message"]), int(given["left"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


class Folders(NamedTuple):
    out: str
    work: str
    files: str


class ReadyPort(NamedTuple):
    number: int
    path: str


class JobFile(NamedTuple):
    """A checked job; `given` is the original object."""

    given: Dict[str, Any]
    name: str
    steps: List[Dict[str, Any]]
    limits: RunLimits
    folders: Optional[Folders]
    env: Dict[str, str]
    secrets: List[str]  # values
    environment: Dict[str, Any]
    hosts: int
    inputs: bool
    cpus: List[int]
    memory_bytes: Optional[int]
    log_segments: int
    ready: Optional[ReadyPort]
    container: Optional[Dict[str, Any]]

    def in_folders(self) -> Folders:
        """Returns the folders, which every job outside a pod must have."""
        if self.folders is None:
            raise JobError("`folders` is missing")
        return self.folders


def read_file(path: str, own_env: Mapping[str, str]) -> JobFile:
    """Raises JobError."""
    try:
        with open(path, encoding="utf-8") as file:
            return read_job_file(json.load(file), own_env)
    except (ValueError, RecursionError) as error:
        raise JobError("invalid job file %s: the job is not JSON: %s" % (path, error)) from None
    except (OSError, JobError) as error:
        raise JobError("invalid job file %s: %s" % (path, error)) from None


def read_job_file(given: Any, own_env: Mapping[str, str]) -> JobFile:
    """`own_env`: this process's environment, for a job without its own. Raises JobError."""
    if not isinstance(given, dict):
        raise JobError("expected an object, got %s" % _called(given))
    if given.get("version") != _VERSION:
        raise JobError("job version %r (this agent reads %d)" % (given.get("version"), _VERSION))
    variables = _field(given, "variables", dict, None)
    env = dict(own_env) if variables is None else {str(name): str(value) for name, value in variables.items()}
    names = map(str, _field(given, "secret_variables", list, []))
    ready, folders = _field(given, "ready", dict, None), _field(given, "folders", dict, None)
    limits = _field(given, "limits", dict, {})
    return JobFile(
        given=given,
        name=_field(given, "name", str, ""),
        steps=[_step(number, step) for number, step in enumerate(_field(given, "steps", list, None, required=True))],
        limits=RunLimits(*(_field(limits, *limit) for limit in _LIMITS)),
        folders=None if folders is None else Folders(*(_named(folders, "folders", name) for name in Folders._fields)),
        env=env,
        secrets=[env[name] for name in names if env.get(name)],
        environment=_field(given, "environment", dict, {}),
        hosts=_field(given, "hosts", int, 1),
        inputs=_field(given, "inputs", bool, False),
        cpus=_field(given, "cpus", list, []),
        memory_bytes=_field(given, "memory_bytes", int, None),
        log_segments=_field(_field(given, "log", dict, {}), "segments", int, SEGMENTS),
        ready=None if ready is None else ReadyPort(_field(ready, "port", int, 0, True), _field(ready, "path", str, "")),
        container=_field(given, "container", dict, None),
    )


def _step(number: int, step: Any) -> Dict[str, Any]:
    if not isinstance(step, dict):
        raise JobError("step %d: expected an object, got %s" % (number, _called(step)))
    for name in ("name", "kind"):
        _named(step, "step %d" % number, name)
    _field(step, "args", dict, {})
    _field(step, "timeout_s", (int, float), None)
    return step


def _named(given: Dict[str, Any], where: str, name: str) -> str:
    if not isinstance(given.get(name), str):
        raise JobError("%s: `%s` must be a string, got %s" % (where, name, _called(given.get(name))))
    return str(given[name])


def _field(given: Dict[str, Any], name: str, kind: Any, default: Any, required: bool = False) -> Any:
    value = given.get(name)
    if value is None and not required:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise JobError("invalid value for `%s`: %s" % (name, _called(value)))
    return value


def _called(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__
    return text[:100]
