"""Values of secrets: read from the environment or a file, passed to jobs, masked everywhere else."""

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
SHORTEST = 4  # characters; a shorter value would also be masked inside ordinary words, which would reveal it
_TELLING = 8  # characters; a shorter value may occur in another text by chance


class Secrets:
    """The secrets of a run, resolved once before the first job starts."""

    def __init__(self, suite: RunSuite, jobs: Iterable[JobSpec]) -> None:
        self._values, problems = read_secrets(suite, jobs)
        if problems:
            raise RunRefused("\n".join(problems))
        self.mask = Mask(self._values.values())

    def of(self, job: Job) -> dict[str, str]:
        """The values by the job's variable."""
        return {variable: self._values[name] for variable, name in job.secrets.items()}


def read_secrets(suite: RunSuite, jobs: Iterable[JobSpec]) -> tuple[dict[str, str], list[str]]:
    """The values by name, and a message for each that this process cannot read."""
    values: dict[str, str] = {}
    problems = []
    for name in sorted({name for job in jobs for name in job.secrets.values()}):
        try:
            values[name] = _value(suite, name)
        except (OSError, ValueError) as error:
            problems.append(f"secret {name}: {error}")
    return values, problems


def check_written(suite: Suite) -> None:
    """Raises RunRefused if a target's options or `--set` contain the value of a secret: the plan stores them, and
    everyone with access to the target can see its options."""
    values = _known_values(suite)
    options = suite.data.get("targets") or {}
    held = [*_holding(options, "targets", values)]
    for path, _, value in (text.partition("=") for text in suite.overrides):
        held += _holding(value, f"--set {path}", values)
    found = [f"{path} contains the value of secret {name}" for path, name in held]
    if found:
        advice = "remove it, because the run folder stores this value; use `env: {VARIABLE: {secret: NAME}}`"
        raise RunRefused("\n".join([*found, advice]))


def known_mask(suite: Suite) -> Mask:
    """Masks the secrets that have a value now. Never raises."""
    return Mask(_known_values(suite).values())


def _known_values(suite: Suite) -> dict[str, str]:
    values = {}
    envs = [suite.env, *(one.env for one in suite.runtimes.values()), *(one.env for one in suite.trials.values())]
    named = [value.secret for env in envs for value in env.values() if not isinstance(value, str)]
    for name in {*suite.secrets, *named}:
        with contextlib.suppress(OSError, ValueError):  # a missing one is reported when a job needs it
            values[name] = _value(suite, name)
    return values


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
    """Reads a file with a secret. Errors never contain a byte of it."""
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
        raise ValueError(f"{path} contains a NUL character")
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
            raise ValueError(f"environment variable {variable} is not set; set it, or add a `file` for it to `secrets`")
        value = os.environ[variable]
        origin = f"environment variable {variable}"
    if len(value) < SHORTEST:
        raise ValueError(f"{origin} has {len(value)} characters; use at least {SHORTEST}, so that it can be masked")
    return value
