"""Fields of a runtime trial: commands, imports, command lines, notebooks, facts."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import AfterValidator, Field, Tag, field_validator

from seatrial.suite import Gathered, Model, Notebook, Notebooks, Runtime, Text, TrialModel, names_several
from seatrial.suite.command import Command, KnownReader
from seatrial.suite.models import PLAIN_OR_MAP

# A dotted name; any part may be an axis placeholder.
_MODULE = re.compile(r"(?:[^\W\d]|\$\{[^}]*\})(?:\w|\$\{[^}]*\})*(?:\.(?:\w|\$\{[^}]*\})+)*")


def _module(name: str) -> str:
    if not _MODULE.fullmatch(name):
        raise ValueError(
            f"invalid module name {name!r}; use the import name (sklearn, not scikit-learn), with the version apart: "
            '{module: numpy, version: ">=1.26"}'
        )
    return name


Module = Annotated[Text, AfterValidator(_module)]


class Import(Model):
    """A module that must import, and its accepted versions."""

    module: Module = Field(description="Import name: sklearn, PIL, xml.dom.")
    version: Text = Field("", description="Version specifier, as for pip.", examples=[">=1.26,<3"])
    empty: bool = Field(False, strict=True, description="Accept a folder without Python files.")

    @field_validator("version")
    @classmethod
    def _specifier(cls, version: str) -> str:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            if "${" not in version:
                SpecifierSet(version)
        except InvalidSpecifier:
            raise ValueError(f'invalid version specifier {version!r}; use for example ">=1.26,<3"') from None
        return version


class Facts(Model):
    """Which facts are checked against the machine's declaration. All are collected in any case."""

    python: bool = Field(True, description="Terminal and notebooks use the same Python.")
    cpu: bool = Field(True, description="At least the declared CPUs.")
    memory: bool = Field(True, description="At least 90 % of the declared memory.")
    gpu: bool = Field(True, description="The declared GPU count, model and memory.")


def _not_empty(command: str) -> str:
    if not command:
        raise ValueError("empty command line")
    return command


_Import = Annotated[Annotated[Module, Tag("plain")] | Annotated[Import, Tag("map")], PLAIN_OR_MAP]
_CommandLine = Annotated[Text, AfterValidator(_not_empty), Tag("plain")]
_Run = Annotated[_CommandLine | Annotated[Command, Tag("map")], PLAIN_OR_MAP]
_Facts = Annotated[Annotated[bool | None, Tag("plain")] | Annotated[Facts, Tag("map")], PLAIN_OR_MAP]


def _name(entry: Import | Command | Notebook) -> str:
    if isinstance(entry, Import):
        return entry.module
    return entry.name or (entry.path if isinstance(entry, Notebook) else entry.command.strip())


def _as_glob(path: str) -> str:
    """Of a folder, what its notebooks are called."""
    return f"{path.rstrip('/')}/*" if names_several(path) and "*" not in path and "?" not in path else path


def _without(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """Removes these fields from `run` entries."""
    for one in content.get("run", ()):
        for name in names if isinstance(one, dict) else ():
            one.pop(name, None)
    return content


class RuntimeGathered(Gathered, frozen=True, omit_defaults=True):
    notebooks: dict[str, list[str]] = msgspec.field(default_factory=dict)  # by folder or glob: the notebooks found
    beside: tuple[str, ...] = ()  # with a workspace: notebooks beside the suite instead


class RuntimeTrial(TrialModel):
    kind: Literal["runtime"] = "runtime"
    commands: tuple[Text, ...] = Field((), description="Commands that must be on PATH.")
    imports: tuple[_Import, ...] = Field((), description="Modules that must import: a name, or a name and version.")
    run: tuple[_Run, ...] = Field((), description="Command lines to run: a text, or a command with its expectations.")
    notebooks: Notebooks = Field((), description="Notebooks that must run, in addition to the runtime's.")
    facts: _Facts = Field(
        None, description="Facts to check. Default: all, unless only `run` is set and the machine declares nothing."
    )

    JUDGING: ClassVar[frozenset[str]] = frozenset({"commands", "imports", "facts"})
    GATHERED = RuntimeGathered

    @field_validator("commands", "imports", "run", "notebooks")
    @classmethod
    def _once(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        """Step names are unique: findings and xfails refer to them."""
        names = Counter(entry if isinstance(entry, str) else _name(entry) for entry in entries)
        for name, count in names.items():
            if count > 1:
                raise ValueError(f"duplicate `{name}` ({count} times); remove it, or add a `name` (`run`, `notebooks`)")
        return entries

    def content(self) -> dict[str, Any]:
        return _without(super().content(), "baseline")

    def work(self) -> dict[str, Any]:
        return _without(super().work(), "baseline", "bounds")

    def baseline_files(self) -> dict[str, tuple[str, ...]]:
        """The baseline of a `run` entry covers the metrics of its step."""
        files = super().baseline_files()
        for one in self.run_checks:
            if one.baseline is not None:
                files[one.baseline] = (*files.get(one.baseline, ()), f"{one.step}.")
        return files

    def check_names(self, readers: Mapping[str, KnownReader]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for index, one in enumerate(self.run):
            for place, message in one.check_names(readers) if isinstance(one, Command) else ():
                yield ("run", index, *place), message

    @property
    def import_checks(self) -> tuple[Import, ...]:
        return tuple(Import(module=one) if isinstance(one, str) else one for one in self.imports)

    @property
    def run_checks(self) -> tuple[Command, ...]:
        return tuple(Command(command=one) if isinstance(one, str) else one for one in self.run)

    def all_notebooks(self, runtime: Runtime | None) -> tuple[Notebook, ...]:
        """The trial's notebooks, then those of the runtime that the trial does not list."""
        named = {_name(notebook) for notebook in self.notebooks}
        more = runtime.notebooks if runtime else ()
        return self.notebooks + tuple(notebook for notebook in more if _name(notebook) not in named)

    def notebook_paths(self) -> tuple[str, ...]:
        return tuple(notebook.path for notebook in self.notebooks)

    def checks_anything(self, runtime: Runtime | None) -> bool:
        return bool(self.facts or self._plain_names() or self.all_notebooks(runtime))

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        passes = [(one.name or _as_glob(one.path), name) for one in self.all_notebooks(runtime) for name in one.passes]
        notebooks = [f"notebook {path} {name}" for path, name in passes]
        workspace = ["workspace"] if runtime and runtime.workspace and runtime.workspace.git else []
        return ("job", "facts", *workspace, *self._plain_names(), *notebooks)

    def _plain_names(self) -> list[str]:
        return [
            *(f"command {command}" for command in self.commands),
            *(f"import {one.module}" for one in self.import_checks),
            *(name for one in self.run_checks for name in one.step_names),
        ]
