"""The runs of a folder, the newest first, of which there may be thousands: what did not change is not read again."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from seatrial.record import RunFolder, RunOverview, RunState, owner_of, run_overview
from seatrial.record.history import History
from seatrial.web.follow import FollowedRun

_MOST_SHOWN = 50
MOST_OPEN = 100  # runs that are not over, of which the journal is read


@dataclass
class _Known:
    """What was read of a run folder whose own time of change was `changed_ns`."""

    changed_ns: int
    began_ns: int  # of its plan
    over: bool  # it has results, and nobody works on it
    overview: RunOverview | None = None


@dataclass(frozen=True)
class RunList:
    """`now` are those that are not finished; `past` the newest of the others."""

    now: list[RunOverview]
    past: list[RunOverview]
    oldest: str  # the last of `past`
    older: int  # than that


@dataclass
class Catalogue:
    runs: Path
    _known: dict[str, _Known] = field(default_factory=dict)
    _followed: dict[str, FollowedRun] = field(default_factory=dict)  # runs that are not over
    _lock: Lock = field(default_factory=Lock)  # pages are made in threads

    def list(self, before: str = "") -> RunList:
        """Of those that are over, the newest that are older than the run `before`; none where there is no such run.

        It reads files: not for an event loop. A folder that is being removed is left out."""
        with self._lock:
            self._scan()
            ordered = sorted(self._known.items(), key=lambda item: (-item[1].began_ns, item[0]))
            open_ = [one for one in ordered if not one[1].over][:MOST_OPEN]
            all_over = [one for one in ordered if one[1].over]
            names = [name for name, _ in all_over]
            start = 0 if not before else names.index(before) + 1 if before in names else len(names)
            over = all_over[start : start + _MOST_SHOWN]
            found = [one for name, known in (*open_, *over) if (one := self._overview(name, known))]
            now = [one for one in found if one.state in (RunState.RUNNING, RunState.UNFINISHED)]
            past = [one for one in found if one.state not in (RunState.RUNNING, RunState.UNFINISHED)]
            past.sort(key=lambda one: -one.started_s)
            return RunList(now, past, over[-1][0] if over else "", len(all_over) - start - len(over))

    def _scan(self) -> None:
        there: dict[str, int] = {}
        try:
            with os.scandir(self.runs) as entries:
                for entry in entries:
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        there[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:
            pass
        for name in self._known.keys() - there.keys():
            del self._known[name]
            self._followed.pop(name, None)
        for name, changed_ns in there.items():
            known = self._known.get(name)
            if known is None or not known.over or known.changed_ns != changed_ns:
                if (read := _read(self.runs / name, changed_ns)) is not None:
                    self._known[name] = read
                else:
                    self._known.pop(name, None)

    def _overview(self, name: str, known: _Known) -> RunOverview | None:
        try:
            if not known.over:
                return self._open(name, known)
            if known.overview is None:
                known.overview = run_overview(RunFolder(self.runs / name))
        except OSError:  # it is being removed
            return None
        return known.overview

    def _open(self, name: str, known: _Known) -> RunOverview:
        """Of a run that is not over: only what its journal has since the last time is read."""
        one = self._followed.setdefault(name, FollowedRun(RunFolder(self.runs / name)))
        owner = owner_of(one.folder.path)
        owned = owner is not None and owner.works_on(one.folder.path)
        if not owned and one.folder.results.exists():
            known.over, known.overview = True, run_overview(one.folder)
            return known.overview
        one.take(one.read_files())
        cells, began_s = len(one.run.cells), known.began_ns / 1e9
        if one.wrong:
            return RunOverview(name, RunState.DAMAGED, began_s, cells, 0, why=one.wrong)
        state = RunState.RUNNING if owned else RunState.UNFINISHED
        return RunOverview(name, state, began_s, cells, one.run.done, owner=owner if owned else None)


def _read(folder: Path, changed_ns: int) -> _Known | None:
    """None for what is no run folder."""
    try:
        began_ns = os.stat(folder / "plan.json").st_mtime_ns
    except OSError:
        return None
    return _Known(changed_ns, began_ns, _size(folder / "results.json") > 0 and _size(folder / "lock") <= 0)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


# What pages are made of: a folder of runs, its history, and what a command could change.


@dataclass(frozen=True)
class ProposedChange:
    """What a command would change, and the command; nothing here ever runs it."""

    command: str
    diff: str = ""
    refused: str = ""  # why it would change nothing


# Of the suite's file, a benchmark and a metric: what accepting the newest level would change.
Recenter = Callable[[str, str, str], ProposedChange | None]


@dataclass(frozen=True)
class Site:
    runs: Path
    history: History
    recenter: Recenter = lambda suite_path, benchmark, metric: None
    ending: str = ""  # of pages that are files
    options: tuple[str, ...] = ()  # of commands that are to be about these runs

    @cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.runs)
