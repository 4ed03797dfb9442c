"""Loads a suite file into a Suite, or reports all of its errors."""

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from seatrial.suite import names
from seatrial.suite.axes import make_groups
from seatrial.suite.command import KnownReader
from seatrial.suite.include import SECTIONS, Written, read_written
from seatrial.suite.models import Runtime
from seatrial.suite.overrides import TargetModels
from seatrial.suite.placeholders import has_placeholder, placeholders
from seatrial.suite.suite import HERE, LOCAL, BaselineFile, Group, Suite, SuiteModel, TargetEntry, axes_of, own_fields
from seatrial.suite.trial import TrialModel
from seatrial.suite.values import find_notebooks, names_several
from seatrial.suite.yaml.problem import KeyPath, Problem, SuiteError, closest, dotted, explain, nearest
from seatrial.suite.yaml.source import YamlMap

Kinds = Mapping[str, type[TrialModel]]
Readers = Mapping[str, KnownReader]
ReadBaseline = Callable[[Path, Sequence[TrialModel]], BaselineFile]
_M = TypeVar("_M", bound=BaseModel)
# Fields of the file that a suite has as they are.
_SAME = ("machines", "runtimes", "secrets", "env", "max_cells", "max_cost", "estimate_s")


def load(
    path: Path | str,
    kinds: Kinds,
    targets: TargetModels,
    read_baseline: ReadBaseline | None = None,
    look_for_files: bool = False,
    readers: Readers | None = None,
    overrides: Iterable[str] = (),
) -> Suite:
    """Reads a suite file. Raises SuiteError with every problem in it.

    `read_baseline` reads the trials' baseline files; without it, none is read.
    `look_for_files`: also check that notebooks and workspaces exist.
    `readers`: the known readers; without them, names of readers are not checked.
    `overrides`: fields to change first, as for `--set`.
    """
    path, overrides = Path(path), tuple(overrides)
    loader = _Loader(read_written(path, overrides), path.absolute().parent, path, look_for_files)
    suite = loader.suite(kinds, targets, read_baseline, readers)
    return msgspec.structs.replace(suite, overrides=overrides) if overrides else suite


def from_data(
    data: Any, directory: Path | str, kinds: Kinds, targets: TargetModels, path: Path | str | None = None
) -> Suite:
    """Like `load`, from data in the form of `Suite.data`; `path` is the original file. Problems have no line then.
    Baselines are not read: the caller has the bounds of the cells."""
    if not isinstance(data, dict):
        raise SuiteError([Problem("not a map; expected a map with `trials`")])
    return _Loader(Written(data), Path(directory).absolute(), Path(path) if path else None).suite(kinds, targets)


class _Loader:
    def __init__(self, written: Written, directory: Path, path: Path | None, look_for_files: bool = False) -> None:
        self._written, self._data, self._problems = written, written.data, list(written.problems)
        self._directory, self._path, self._look_for_files = directory, path, look_for_files
        self._reported: list[KeyPath] = []

    def suite(
        self,
        kinds: Kinds,
        targets: TargetModels,
        read_baseline: ReadBaseline | None = None,
        readers: Readers | None = None,
    ) -> Suite:
        options = self._of_kinds("targets", targets)
        entries = {name: TargetEntry(self._data["targets"][name]["kind"], one) for name, one in options.items()}
        if HERE not in self._entries("targets") and LOCAL in targets:
            entries[HERE] = TargetEntry(LOCAL, targets[LOCAL]())
        trials = self._of_kinds("trials", kinds)
        if not self._entries("trials"):
            self._report(("trials",), "a suite needs at least one trial")
        baselines = self._baselines(trials, read_baseline) if read_baseline else {}
        axes: dict[str, tuple[Group, ...]] = {}
        # Fields that start with x- are the user's own, for YAML anchors.
        known = {name: value for name, value in self._data.items() if not name.startswith("x-")}
        model = self._validated(SuiteModel, known, (), depth=3)
        if model is not None and not self._written.incomplete:
            axes = self._names(model, trials)
            if self._look_for_files:
                self._find_files(model, trials, axes)
        for name, trial in trials.items():
            for place, message in trial.check_names(readers) if readers is not None else ():
                self._report(("trials", name, *place), message)
        if self._problems or model is None:
            raise SuiteError(self._problems)
        name = model.name or (self._path.stem if self._path else "suite")
        return Suite(
            name=name,
            directory=self._directory,
            path=self._path,
            data={**self._data, "name": name, "include": []},
            targets=entries,
            trials=trials,
            axes=axes,
            baselines=baselines,
            **{field: getattr(model, field) for field in _SAME},
        )

    def _report(self, path: KeyPath, message: str, key: bool = False) -> None:
        mark, _, chain = self._written.find(path, key)
        self._reported.append(path)
        self._problems.append(Problem(message, mark, dotted(path), chain))

    def _is_broken(self, *path: str | int) -> bool:
        """Whether a problem was already reported at or below this path."""
        return any(reported[: len(path)] == path for reported in self._reported)

    def _validated(self, model: type[_M], data: Any, path: KeyPath, depth: int = 1) -> _M | None:
        """Returns the model. After errors, returns it without the wrong fields, so that names can still be checked."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for loc, key, message in explain(error, model, lambda loc: self._written.find((*path, *loc))[1]):
                self._report((*path, *loc), message, key)
            for deep in (depth + 1, depth):
                with contextlib.suppress(ValidationError):
                    return model.model_validate(_corrected(data, error, deep))
            return None

    def _entries(self, section: str) -> YamlMap:
        entries = self._data.get(section)
        return entries if isinstance(entries, dict) else {}

    def _of_kinds(self, section: str, known: Mapping[str, type[_M]]) -> dict[str, _M]:
        """The entries of a section, each as the model of its `kind`."""
        found: dict[str, _M] = {}
        for name, entry in self._entries(section).items():
            model = self._kind((section, name), entry, known)
            made = self._validated(model, own_fields(entry, model), (section, name)) if model else None
            if made is not None:
                found[name] = made
        return found

    def _kind(self, path: KeyPath, entry: Any, known: Mapping[str, type[_M]]) -> type[_M] | None:
        if not isinstance(entry, dict):
            self._report(path, f"expected a map with `kind` ({', '.join(known)}), got {type(entry).__name__}")
            return None
        kind = entry.get("kind")
        if isinstance(kind, str) and kind in known:
            return known[kind]
        if kind is None:
            self._report(path, f"`kind` is missing; use one of {', '.join(known)}", True)
            return None
        self._report((*path, "kind"), f"unknown kind {kind!r}{nearest(kind, known)}")
        meant = closest(kind, known)
        if meant is None:
            return None
        entry["kind"] = meant  # to find its other errors, too
        return known[meant]

    def _baselines(self, trials: Mapping[str, TrialModel], read: ReadBaseline) -> dict[str, BaselineFile]:
        """Reads the baselines that exist; `seatrial baseline update` creates the others."""
        found: dict[str, BaselineFile] = {}
        for text in dict.fromkeys(file for trial in trials.values() for file in trial.baseline_files()):
            path = self._directory / text
            if os.path.exists(path):
                try:
                    found[text] = read(path, [trial for trial in trials.values() if text in trial.baseline_files()])
                except SuiteError as error:
                    self._problems += error.problems
        return found

    def _names(self, model: SuiteModel, trials: Mapping[str, TrialModel]) -> dict[str, tuple[Group, ...]]:
        """Checks that every name in the suite exists. Returns the axes of its trials."""
        for section in SECTIONS:
            for name in self._entries(section) if section != "env" else ():
                if not names.NAME.fullmatch(name):
                    message = f"invalid name {name!r}; use up to 64 letters, digits and . _ + -"
                    self._report((section, name), message, True)
                elif name == "all" and section in ("machines", "runtimes"):
                    message = "`all` is reserved; choose another name"
                    self._report((section, name), message, True)
        targets = [*self._entries("targets"), HERE]
        for section, entries in (("machines", model.machines), ("trials", trials)):
            for name, entry in entries.items():
                if entry.target is not None and entry.target not in targets:
                    message = f"unknown target {entry.target!r}{nearest(entry.target, targets)}"
                    self._report((section, name, "target"), message)
        capabilities = names.Capabilities(model.machines, self._is_broken("machines"))
        for name, runtime in model.runtimes.items():
            capabilities.check(("runtimes", name, "needs"), runtime.needs, self._report)
        axes = {}
        for variable, value in model.env.items():
            for name in placeholders(value) if isinstance(value, str) else ():
                message = f"${{{name}}} can be used only inside a trial; for a literal, write $${{{name}}}"
                self._report(("env", variable), message)
        for name, trial in trials.items():
            base: KeyPath = ("trials", name)
            axes[name] = make_groups(name, trial, model.machines, model.runtimes, self._report)
            self._check_bent(axes[name])
            if trial.target is not None and "machine" in axes_of(axes[name]):
                message = "set `target` or `machine`, not both: each machine already has a target"
                self._report((*base, "target"), message)
            for path, text in trial.needed_files():  # a path with a placeholder is checked when its cell runs
                if not has_placeholder(text) and not os.path.isfile(self._directory / text):
                    self._report((*base, *path), f"file not found: {text!r} (relative to the suite)")
            trial_names = names.TrialNames(name, trial, axes[name], self._report, self._is_broken)
            trial_names.check(self._data["trials"][name], model, capabilities)
        return axes

    def _find_files(
        self, model: SuiteModel, trials: Mapping[str, TrialModel], axes: Mapping[str, tuple[Group, ...]]
    ) -> None:
        """Checks that workspaces and notebooks exist. Paths with placeholders are checked with the plan."""
        for name, runtime in model.runtimes.items():
            path = runtime.workspace.path if runtime.workspace else None
            if path is not None and not has_placeholder(path) and not os.path.exists(self._directory / path):
                where = ("runtimes", name, "workspace", "path")
                self._report(where, f"workspace not found: {path!r} (relative to the suite)")
            for index, notebook in enumerate(runtime.notebooks):
                self._find_notebook(("runtimes", name, "notebooks", index, "path"), notebook.path, {name: runtime})
        for name, trial in trials.items():
            used = names.used_runtimes(axes[name], model.runtimes)
            for index, path in enumerate(trial.notebook_paths()):
                self._find_notebook(("trials", name, "notebooks", index, "path"), path, used)

    def _find_notebook(self, where: KeyPath, path: str, runtimes: Mapping[str, Runtime]) -> None:
        """Searches the workspace, then the suite's folder. Reports once, for the first runtime without it."""
        if has_placeholder(path) or find_notebooks(self._directory, path):
            return None
        for name, runtime in runtimes.items() or [("", None)]:
            workspace = runtime.workspace if runtime else None
            if workspace and workspace.git:
                if names_several(path):
                    message = f"a folder or glob cannot be used with the git workspace of runtime {name!r}"
                    return self._report(where, f"{message}; list each notebook")
            elif not (workspace and has_placeholder(workspace.path or "")):
                folder = self._directory / (workspace.path or "") if workspace else self._directory
                if os.path.isdir(folder) and not find_notebooks(folder, path):
                    owner = f"in the workspace {workspace.path!r} of runtime {name!r} or " if workspace else ""
                    there = [file.name for file in (folder / path).parent.glob("*.ipynb")]
                    hint = nearest(Path(path).name, there) if there else ""
                    return self._report(where, f"notebook not found: {path!r} {owner}next to the suite{hint}")
        return None

    def _check_bent(self, groups: tuple[Group, ...]) -> None:
        """Reports `python: [3.9, 3.10]` in a matrix: YAML reads 3.10 as 3.1."""
        for axis in (axis for group in groups for axis in group.axes):
            for index, value in enumerate(axis.values):
                if isinstance(value.value, float):
                    path = (*axis.path, index)
                    raw = self._written.find(path)[1]
                    if raw is not None and "." in raw and raw.endswith("0") and str(value.value) != raw:
                        number = f"{raw} as the number {value.value}"
                        self._report(path, f'YAML reads {number}; write "{raw}", or {value.value}')


def _corrected(data: Any, error: ValidationError, depth: int) -> Any:
    """A copy without the wrong fields, `depth` levels down; missing fields are filled in."""
    data = copy.deepcopy(data)
    for item in error.errors(include_url=False, include_input=False, include_context=False):
        missing = item["type"] == "missing"
        where = item["loc"] if missing else item["loc"][:depth]
        around = data
        try:
            for part in where[:-1]:
                around = around[part]
        except (KeyError, IndexError, TypeError):  # nothing there, or only a union's branch
            continue
        if not where or not isinstance(around, dict):  # no path: an error of the whole model
            continue
        if where[:-1] in (("machines",), ("runtimes",)):  # keep the entry's name
            around[where[-1]] = {}
        elif missing:
            around[where[-1]] = "?"
        else:
            around.pop(where[-1], None)
    return data
