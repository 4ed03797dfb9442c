"""The values of secrets: taken from the environment or a file, handed to jobs, masked everywhere else."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seatrial.agent.masking.mask import Mask
from seatrial.engine.verify import RunRefused
from seatrial.job import SECRET_FILE, Job, JobSpec
from seatrial.suite import RunSuite, Suite

_LONGEST = 64 << 10  # bytes; a variable cannot hold much more
SHORTEST = 4  # anything shorter would be masked in the middle of innocent words, and give itself away by that
_TELLING = 8  # a shorter one inside of another text may be there by chance


class Secrets:
    """Resolved once, before the first job starts."""

    def __init__(self, suite: RunSuite, jobs: Iterable[JobSpec]) -> None:
        self._values: dict[str, str] = {}
        problems = []
        for name in sorted({name for job in jobs for name in job.secrets.values()}):
            try:
                self._values[name] = _value(suite, name)
            except (OSError, ValueError) as error:
                problems.append(f"secret {name}: {error}")
        if problems:
            raise RunRefused("\n".join(problems))
        self.mask = Mask(self._values.values())

    def of(self, job: Job) -> dict[str, str]:
        """By variable of the job."""
        return {variable: self._values[name] for variable, name in job.secrets.items()}


def check_written(suite: Suite) -> None:
    """Raises RunRefused where the options of a target hold the value of a secret: they are written down with the plan
    and shown to whoever may see the target."""
    values = {}
    envs = [suite.env, *(one.env for one in suite.runtimes.values()), *(one.env for one in suite.trials.values())]
    named = [value.secret for env in envs for value in env.values() if not isinstance(value, str)]
    for name in {*suite.secrets, *named}:
        with contextlib.suppress(OSError, ValueError):  # one that cannot be had is told when a job needs it
            values[name] = _value(suite, name)
    options = suite.data.get("targets") or {}
    found = [f"{path} holds the value of secret {name}" for path, name in _holding(options, "targets", values)]
    if found:
        advice = "options of a target are written down; hand a secret to jobs with `env: {NAME: {secret: ...}}`"
        raise RunRefused("\n".join([*found, advice]))


def _holding(data: Any, path: str, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _holding(value, f"{path}.{key}", values)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            yield from _holding(value, f"{path}[{index}]", values)
    elif isinstance(data, str):
        for name, value in values.items():
            if data == value or (len(value) >= _TELLING and value in data):
                yield path, name


def _text(path: Path) -> str:
    """Of a file that holds a secret. What is wrong with it is told without a byte of it."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    with path.open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError(f"{path} is larger than {_LONGEST >> 10} KiB")
    try:
        text = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
    if "\0" in text:
        raise ValueError(f"{path} has a NUL in it, which no variable can hold")
    return text


def _value(suite: RunSuite, name: str) -> str:
    source = suite.secrets.get(name)
    file = source.file if source else name.removeprefix(SECRET_FILE) if name.startswith(SECRET_FILE) else None
    if file:
        value = _text(suite.directory / Path(file).expanduser())
        origin = f"file {file}"
    else:
        variable = (source and source.env) or name
        if variable not in os.environ:
            raise ValueError(
                f"the environment variable {variable} is not set; set it, or say under `secrets:` where it is"
            )
        value = os.environ[variable]
        origin = f"environment variable {variable}"
    if len(value) < SHORTEST:
        raise ValueError(f"the {origin} holds {len(value)} characters; fewer than {SHORTEST} cannot be masked")
    return value
