"""Suites from files of other tools: which tool a file belongs to, and the suite that is made from it."""

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
    trials: dict[str, int]  # name -> the line of what it is made from
    unknown: tuple[str, ...]  # what the file does not say, and somebody has to
    about: str = ""  # the trials in a few words
    warnings: tuple[str, ...] = ()  # about the file


def import_suite(
    file: Path, out: Path, command: str | None, models: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Imported:
    """A suite that loads, to be written to `out`. Raises SeatrialError: SuiteError has the lines of the file."""
    made = _from_tester(file, out, command) if _is_tester(file) else _from_torchprime(file, out, command)
    source = Source(str(out), made.text)
    try:
        if source.problems:
            raise SuiteError(source.problems)
        from_data(source.data, out.absolute().parent, *models)
    except SuiteError as error:
        raise _blamed(error, made, str(file)) from error
    return made


def _is_tester(file: Path) -> bool:
    """Whether it is of tgis-tester, else of torchprime. Raises SeatrialError where it is of neither."""
    source = read_source(file)
    data = source.data
    keys = set(data) if isinstance(data, dict) else set()
    if "trials" in keys:
        raise SeatrialError(f"{file} is a suite already: seatrial plan {file}")
    if "tests" in keys and keys & {"cluster", "worker", "runner"}:
        return True
    if not keys & {"benchmarks", "baselines"}:
        has = f"this has {', '.join(sorted(map(str, keys))[:8])} at its top" if keys else "this is no map"
        raise SeatrialError(
            f"{file} is of no tool that is known here: step_time_bounds.yaml (torchprime) has `benchmarks`, "
            f"config.yaml (tgis-tester) has `worker` and `tests`; {has}"
        )
    if "benchmarks" in keys and not data["benchmarks"]:
        mark = source.find(("benchmarks",), key=True)[0]
        place = f"{file}:{mark.line}:{mark.column}"
        raise SeatrialError(f"{place}: `benchmarks` is empty: there is nothing to make a suite from")
    return False


def _from_torchprime(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.baseline import THEIRS, read_baselines
    from seatrial.migrate.torchprime import suite_from_torchprime

    baselines = read_baselines(file)
    if baselines.form != THEIRS:
        what = f"{file} is a baseline of Seatrial"
        raise SeatrialError(f"{what}: name it as `baseline:` of a trial; there is nothing to import")
    beside = os.path.relpath(file.resolve(), out.resolve().parent)
    made = suite_from_torchprime(baselines, file.stem, beside, command)
    about = f"{_count(made, 'training')}, judged by {beside}"
    return msgspec.structs.replace(made, about=about, warnings=baselines.warnings)


def _from_tester(file: Path, out: Path, command: str | None) -> Imported:
    from seatrial.migrate.tgis_tester import read_tester_config, suite_from_tester

    tester = read_tester_config(file)
    made = suite_from_tester(tester, out.parent, command)
    about = f"{_count(made, 'serving')}, one for each configuration of each model"
    return msgspec.structs.replace(made, about=about, warnings=tester.ignored)


def _count(made: Imported, kind: str) -> str:
    return f"{len(made.trials)} {kind} trial{'' if len(made.trials) == 1 else 's'}"


def _blamed(error: SuiteError, made: Imported, file: str) -> SuiteError:
    """What is wrong with the suite that was made, reported at the lines of the file that it was made from."""
    problems = []
    for problem in error.problems:
        names = [name for name in made.trials if f"{problem.path}.".startswith(f"trials.{name}.")]
        line = made.trials[max(names, key=len)] if names else 1
        reason = f"no suite can be made from this: {problem.message} ({problem.path or 'the whole of it'})"
        problems.append(Problem(reason, SourceMark(file, line, 1)))
    return SuiteError(problems)


def literal(text: str) -> str:
    """`${name}` in a suite is an axis; what only looks like one is written with two $."""
    return re.sub(r"\$(?=\{)", "$$", text)


def unique_name(text: str, names: Container[str], otherwise: str) -> str:
    """A name for an entry of a suite that none of `names` is."""
    name = text if NAME.fullmatch(text) else re.sub(r"[^A-Za-z0-9_.+-]", "-", text)[:60].lstrip(".+-")
    name = name or otherwise
    count, made = 2, name
    while made in names:
        made, count = f"{name}-{count}", count + 1
    return made


def suite_name(text: str, otherwise: str) -> str:
    return re.sub(r"[^\w. +-]", "-", text).strip("-. +")[:100] or otherwise
