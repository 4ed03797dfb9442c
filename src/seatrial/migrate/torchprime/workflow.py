"""Reads torchprime's GitHub workflows: the jobs that e2e_test.yml submits with `tp run`, and the checks in the workflow
that it calls, reusable_e2e_check.yml. Nothing of them is executed."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.suite.yaml.problem import SuiteError
from seatrial.suite.yaml.source import Source, YamlMap, read_source

CALLER = "e2e_test.yml"
CHECKS = frozenset({"logs", "profile", "step_time", "loss"})  # the scripts e2e_testing/check_*.py
_TP_RUN = re.compile(r"^[ \t]*tp run\b", re.MULTILINE)
_WITH_VALUE = ("--name", "--num-slices", "--priority", "--base-docker-url", "--comments")  # options of `tp run`
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_SECRET = re.compile(r"\s*\$\{\{\s*secrets\.(\w+)\s*\}\}\s*")
_CHOICE = re.compile(r"benchmark\s*==\s*'([^']+)'\s*&&\s*needs\.[\w-]+\.outputs\.([\w-]+)")
_ENDS_COMMAND = frozenset({"&&", "||", "|", ";", "&"})
_LOST = re.compile(r"\\[ \t]+$")


class Workload(msgspec.Struct, frozen=True):
    """A training job that the workflow submits."""

    job_name: str  # the beginning of its name on the cluster
    title: str
    line: int
    words: tuple[str, ...]  # the script and its arguments
    env: YamlMap  # as in a suite
    slices: str
    benchmark: str = ""  # empty: the workflow does not check the job


class Workflow(msgspec.Struct, frozen=True):
    root: Path  # the checkout
    workloads: list[Workload]
    bounds: Path | None
    checks: frozenset[str]
    warnings: list[str]


def read_workflow(file: Path) -> Workflow:
    """Raises SeatrialError. The reusable workflow submits nothing: then its caller next to it is read."""
    folder = file.resolve().parent
    root = folder.parents[1] if folder.parts[-2:] == (".github", "workflows") else folder
    source, warnings = _read(file), list[str]()
    submitting = [(step, source.find((*path, "run"), key=True)[0].line) for path, step in _steps(source)]
    submitting = [(step, line) for step, line in submitting if _TP_RUN.search(step["run"])]
    if not submitting:
        if file.name != CALLER and file.with_name(CALLER).is_file():
            return read_workflow(file.with_name(CALLER))
        raise SeatrialError(f"no step of {file} runs `tp run`; import the workflow that submits the jobs, {CALLER}")
    jobs = [_map(job) for job in _map(source.data["jobs"]).values()]
    # A benchmark's job is an output of the submitting job, and that output comes from a step.
    benchmarks = {output: one for job in jobs for one, output in _CHOICE.findall(str(job.get("with")))}
    outputs = [item for job in jobs for item in _map(job.get("outputs")).items()]
    by_step = {
        step: benchmarks.get(name, "") for name, value in outputs for step in re.findall(r"steps\.([\w-]+)", str(value))
    }
    workloads = [_workload(step, by_step, file, line, warnings) for step, line in submitting]
    checks = CHECKS
    for path in {root / str(job["uses"]).removeprefix("./") for job in jobs if job.get("uses")}:
        if path.is_file():
            scripts = frozenset(re.findall(r"check_(\w+)\.py", "".join(step["run"] for _, step in _steps(_read(path)))))
            checks = scripts & CHECKS
            warnings += [f"{path}: not imported: check_{one}.py" for one in sorted(scripts - CHECKS)]
        else:
            warnings.append(f"{path} not found; the suite has all checks of torchprime")
    bounds = re.search(r"[\w./-]*step_time_bounds\.ya?ml", source.text)
    return Workflow(root, workloads, root / bounds[0] if bounds else None, checks, warnings)


def _read(file: Path) -> Source:
    source = read_source(file)
    if source.problems:
        raise SuiteError(source.problems)
    return source


def _map(value: Any) -> YamlMap:
    return value if isinstance(value, dict) else {}


def _steps(source: Source) -> Iterator[tuple[tuple[str | int, ...], YamlMap]]:
    """The steps that run a script, each with its path."""
    for name, job in _map(_map(source.data).get("jobs")).items():
        steps = _map(job).get("steps")
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            if isinstance(_map(step).get("run"), str):
                yield ("jobs", name, "steps", number), step


def _workload(step: YamlMap, by_step: dict[str, str], file: Path, line: int, warnings: list[str]) -> Workload:
    """Splits the command as a shell does. Leaves out values that only GitHub or the shell knows, with a warning."""
    script: str = step["run"]
    command = _EXPRESSION.sub("\0", script[_TP_RUN.search(script).start() :])  # type: ignore[union-attr]
    command, _, rest = command.replace("\\\n", " ").partition("\n")
    if _LOST.search(command):
        lost = rest.partition("\n")[0].strip()
        why = f"a space after `\\` ends the command, so {lost!r} was never passed"
        warnings.append(f"{file}:{line}: {why}; the suite leaves it out, too")
    try:
        words = shlex.split(_LOST.sub("", command))[2:]
    except ValueError as error:
        raise SeatrialError(f"{file}:{line}: cannot split the command of `tp run`: {error}") from error
    words, slices = list(itertools.takewhile(lambda word: word not in _ENDS_COMMAND, words)), "1"
    while words and words[0].startswith(("-", "\0")):
        option, given, value = words.pop(0).partition("=")
        if option in _WITH_VALUE and not given and words:
            value = words.pop(0)
        slices = value if option == "--num-slices" else slices
    env: YamlMap = {name: str(value) for name, value in _map(step.get("env")).items()}
    env |= {name: {"secret": secret[1]} for name, value in env.items() if (secret := _SECRET.fullmatch(value))}
    unknown = [word for word in words if re.search("[\0$`]", word)]
    unknown += [name for name, value in env.items() if isinstance(value, str) and _EXPRESSION.search(value)]
    warnings += [f"{file}:{line}: left out, because its value is unknown: {one!r}" for one in unknown]
    generated = re.search(r"gen_name\.py\s+([\w.-]+)", script)
    name = generated[1] if generated else str(step.get("id", "training")).removeprefix("run-")
    title, kept = str(step.get("name", "")).removeprefix("Run "), tuple(word for word in words if word not in unknown)
    env = {name: value for name, value in env.items() if name not in unknown}
    return Workload(name, title, line, kept, env, slices, by_step.get(str(step.get("id")), ""))
