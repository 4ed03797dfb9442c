"""Creates suites from files of other tools: detects the tool, converts the file, and checks the suite."""

import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.suite import from_data
from seatrial.suite.names import NAME
from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError
from seatrial.suite.yaml.source import Source, read_source


class Imported(msgspec.Struct, frozen=True):
    text: str
    trials: dict[str, int]  # name -> line of its source in the file
    unknown: tuple[str, ...]  # what the file does not contain and the user must add
    about: str = ""  # short description of the trials
    warnings: tuple[str, ...] = ()  # about the file


def import_suite(
    file: Path, out: Path, command: str | None, models: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Imported:
    """A suite that loads, to be written to `out`. Raises SeatrialError; a SuiteError has the lines of `file`."""
    made = _from_tester(file, out, command) if _is_tester(file) else _from_torchprime(file, out, command)
    source = Source(str(out), made.text)
    try:
        if source.problems:
            raise SuiteError(source.problems)
        from_data(source.data, out.absolute().parent, *models)
    except SuiteError as error:
        raise _at_source(error, made, str(file)) from error
    return made


def _is_tester(file: Path) -> bool:
    """Whether the file is from tgis-tester, else from torchprime. Raises SeatrialError if from neither."""
    source = read_source(file)
    data = source.data
    keys = set(data) if isinstance(data, dict) else set()
    if "trials" in keys:
        raise SeatrialError(f"{file} is already a suite; run `seatrial plan {file}`")
    if "tests" in keys and keys & {"cluster", "worker", "runner"}:
        return True
    if not keys & {"benchmarks", "baselines"}:
        has = f"found {', '.join(sorted(map(str, keys))[:8])}" if keys else "found no map"
        raise SeatrialError(
            f"unknown format of {file}: expected `benchmarks` (torchprime's step_time_bounds.yaml) or "
            f"`worker` and `tests` (tgis-tester's config.yaml), {has}"
        )
    if "benchmarks" in keys and not data["benchmarks"]:
        mark = source.find(("benchmarks",), key=True)[0]
        raise SeatrialError(f"{file}:{mark.line}:{mark.column}: `benchmarks` is empty; nothing to import")
    return False


def _from_torchprime(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.baseline import THEIRS, read_baselines
    from seatrial.migrate.torchprime import suite_from_torchprime

    baselines = read_baselines(file)
    if baselines.form != THEIRS:
        raise SeatrialError(f"{file} is a Seatrial baseline; nothing to import, set it as `baseline:` of a trial")
    relative = os.path.relpath(file.resolve(), out.resolve().parent)
    made = suite_from_torchprime(baselines, file.stem, relative, command)
    about = f"{_count(made, 'training')}, checked against {relative}"
    return msgspec.structs.replace(made, about=about, warnings=baselines.warnings)


def _from_tester(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.migrate.tgis_tester import read_tester_config, suite_from_tester

    tester = read_tester_config(file)
    made = suite_from_tester(tester, out.parent, command)
    about = f"{_count(made, 'serving')}, one per model configuration"
    return msgspec.structs.replace(made, about=about, warnings=tester.ignored)


def _count(made: Imported, kind: str) -> str:
    return f"{len(made.trials)} {kind} trial{'' if len(made.trials) == 1 else 's'}"


def _at_source(error: SuiteError, made: Imported, file: str) -> SuiteError:
    """The errors of the created suite, at the lines of the source file."""
    problems = []
    for problem in error.problems:
        names = [name for name in made.trials if f"{problem.path}.".startswith(f"trials.{name}.")]
        line = made.trials[max(names, key=len)] if names else 1
        reason = f"cannot create a suite from this: {problem.message} ({problem.path or 'the whole file'})"
        problems.append(Problem(reason, SourceMark(file, line, 1)))
    return SuiteError(problems)


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
