"""Creates suites from files of other tools: detects the tool, converts the file, and checks the suite."""

import os
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.suite import from_data
from seatrial.suite.names import NAME
from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError
from seatrial.suite.yaml.source import Source, read_source

SUITE = "seatrial.yaml"


class Imported(msgspec.Struct, frozen=True):
    text: str
    trials: dict[str, int]  # name -> line of its source in the file
    unknown: tuple[str, ...]  # what the file does not contain and the user must add
    about: str = ""  # short description of the trials
    warnings: tuple[str, ...] = ()  # about the file
    files: dict[str, str] = {}  # other files, to be written next to the suite


class TesterOptions(msgspec.Struct, frozen=True):
    """Options for tgis-tester's config.yaml."""

    moved: tuple[tuple[str, str], ...] = ()  # folders of its image, and where they are here
    image_tag: str | None = None


def default_out(file: Path) -> Path:
    """Next to the file; in the root of the checkout for a workflow, because GitHub reads every file next to it."""
    is_workflow = file.absolute().parts[-3:-1] == (".github", "workflows")
    return Path(os.path.normpath(file.parent / "../..")) / SUITE if is_workflow else file.with_name(SUITE)


def import_suite(
    file: Path,
    out: Path,
    command: str | None,
    models: tuple[Mapping[str, Any], Mapping[str, Any]],
    tester: TesterOptions | None = None,
) -> Imported:
    """A suite that loads, to be written to `out`. Raises SeatrialError; a SuiteError has the lines of `file`."""
    importer = _importer(file)
    if importer is _from_tester:
        made = _from_tester(file, out, command, tester)
    elif tester is None:
        made = importer(file, out, command)
    else:
        raise SeatrialError(f"--map and --image-tag are for tgis-tester's config.yaml; {file} is another file")
    source = Source(str(out), made.text)
    try:
        if source.problems:
            raise SuiteError(source.problems)
        from_data(source.data, out.absolute().parent, *models)
    except SuiteError as error:
        raise _at_source(error, made, str(file)) from error
    return made


def _importer(file: Path) -> Callable[[Path, Path, str | None], Imported]:
    """Chooses by the contents of the file. Raises SeatrialError if they are unknown."""
    source = read_source(file)
    data = source.data
    keys = set(data) if isinstance(data, dict) else set()
    if source.problems and not keys:
        raise SuiteError(source.problems)
    if "trials" in keys:
        raise SeatrialError(f"{file} is already a suite; run `seatrial plan {file}`")
    if "tests" in keys and keys & {"cluster", "worker", "runner"}:
        return _from_tester
    if "jobs" in keys:
        return _from_workflow
    if not keys & {"benchmarks", "baselines"}:
        has = f"found {', '.join(sorted(map(str, keys))[:8])}" if keys else "found no map"
        raise SeatrialError(
            f"unknown format of {file}: expected `benchmarks` (torchprime's step_time_bounds.yaml), `jobs` (its "
            f"workflow e2e_test.yml), or `worker` and `tests` (tgis-tester's config.yaml), {has}"
        )
    if "benchmarks" in keys and not data["benchmarks"]:
        mark = source.find(("benchmarks",), key=True)[0]
        raise SeatrialError(f"{file}:{mark.line}:{mark.column}: `benchmarks` is empty; nothing to import")
    return _from_bounds


def _from_bounds(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.baseline import THEIRS, read_baselines
    from seatrial.migrate.torchprime import suite_from_torchprime

    baselines = read_baselines(file)
    if baselines.form != THEIRS:
        raise SeatrialError(f"{file} is a Seatrial baseline; nothing to import, set it as `baseline:` of a trial")
    relative = os.path.relpath(file.resolve(), out.resolve().parent)
    made = suite_from_torchprime(baselines, file.stem, relative, relative, command)
    about = f"{_count(made, 'training')}, checked against {relative}"
    return msgspec.structs.replace(made, about=about, warnings=baselines.warnings)


def _from_workflow(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.baseline import read_baselines
    from seatrial.migrate.torchprime import read_workflow, suite_from_torchprime

    workflow = read_workflow(file)
    relative, workspace, baseline = (
        os.path.relpath(path.resolve(), out.resolve().parent) if path else ""
        for path in (file, workflow.root if (workflow.root / ".github").is_dir() else None, workflow.bounds)
    )
    baselines = read_baselines(workflow.bounds) if workflow.bounds and workflow.bounds.is_file() else None
    made = suite_from_torchprime(baselines, file.stem, relative, baseline, command, workflow, workspace)
    against = f"checked against {baseline}" if baselines else f"no bounds found{f' at {baseline}' if baseline else ''}"
    how = "each runs the training itself, because `tp run` returns as soon as the job is submitted"
    warnings = (*workflow.warnings, *(baselines.warnings if baselines else ()))
    return msgspec.structs.replace(made, about=f"{_count(made, 'training')}, {against}; {how}", warnings=warnings)


def _from_tester(file: Path, out: Path, command: str | None, options: TesterOptions | None = None) -> Imported:
    from seatrial.migrate.tgis_tester import read_tester_config, suite_from_tester

    options = options or TesterOptions()
    tester = read_tester_config(file, options.moved)
    made = suite_from_tester(tester, out.parent, command, options.image_tag)
    about = f"{_count(made, 'serving')}, one per model configuration"
    return msgspec.structs.replace(made, about=about, warnings=tester.ignored)


def _count(made: Imported, kind: str) -> str:
    return f"{len(made.trials)} {kind} trial{'' if len(made.trials) == 1 else 's'}"


def _at_source(error: SuiteError, made: Imported, file: str) -> SuiteError:
    """The errors of the created suite, at the lines of the source file."""
    problems: dict[tuple[int, str], Problem] = {}  # a problem of several trials of one line once
    for problem in error.problems:
        names = [name for name in made.trials if f"{problem.path}.".startswith(f"trials.{name}.")]
        line = made.trials[max(names, key=len)] if names else 1
        reason = f"cannot create a suite from this: {problem.message} ({problem.path or 'the whole file'})"
        problems.setdefault((line, problem.message), Problem(reason, SourceMark(file, line, 1)))
    return SuiteError(problems.values())


def literal(text: str) -> str:
    """Escapes `${name}`, which in a suite refers to an axis, by doubling the $."""
    return re.sub(r"\$(?=\{)", "$$", text)


def unique_name(text: str, names: Container[str], otherwise: str) -> str:
    """A valid name for an entry of a suite that is not in `names`."""
    name = text if NAME.fullmatch(text) else re.sub(r"[^A-Za-z0-9_.+-]", "-", text)[:60].lstrip(".+-")
    name = name or otherwise
    count, made = 2, name
    while made in names:
        made, count = f"{name}-{count}", count + 1
    return made


def suite_name(text: str, otherwise: str) -> str:
    return re.sub(r"[^\w. +-]", "-", text).strip("-. +")[:100] or otherwise
