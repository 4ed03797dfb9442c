"""The runs of a folder, newest first. Unchanged runs are cached, because there may be thousands."""

import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from seatrial.record import RunFolder, RunOverview, RunState, owner_of, run_overview
from seatrial.record.history import History
from seatrial.report.view.live import FindCauses, LiveView
from seatrial.web.follow import FollowedRun

_MOST_SHOWN = 50
MOST_OPEN = 100  # unfinished runs; each needs its journal read


@dataclass
class _Known:
    """Cached facts of a run folder with modification time `changed_ns`."""

    changed_ns: int
    began_ns: int  # modification time of its plan
    over: bool  # it has results, and no process owns it
    overview: RunOverview | None = None


@dataclass(frozen=True)
class RunList:
    """`now` has the unfinished runs, `past` the newest of the others."""

    now: list[RunOverview]
    past: list[RunOverview]
    oldest: str  # the last of `past`
    older: int  # number of runs older than that


@dataclass
class Catalogue:
    runs: Path
    _known: dict[str, _Known] = field(default_factory=dict)
    _followed: dict[str, FollowedRun] = field(default_factory=dict)  # unfinished runs
    _lock: Lock = field(default_factory=Lock)  # pages are rendered in threads

    def list(self, before: str = "") -> RunList:
        """Unfinished runs, and the newest finished runs older than `before`; none if that run is unknown.

        Blocking: do not call in an event loop. Folders that are being deleted are left out."""
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

    def live(self, name: str) -> LiveView | None:
        """The state of an unfinished run, as of the last `list`."""
        found = self._followed.get(name)
        return found.run if found and found.planned else None

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
        except OSError:  # it is being deleted
            return None
        return known.overview

    def _open(self, name: str, known: _Known) -> RunOverview:
        """The overview of an unfinished run. Only new lines of its journal are read."""
        one = self._followed.setdefault(name, FollowedRun(RunFolder(self.runs / name)))
        owner = owner_of(one.folder.path)
        owned = owner is not None and owner.works_on(one.folder.path)
        if not owned and one.folder.results.exists():
            known.over, known.overview = True, run_overview(one.folder)
            return known.overview
        one.read()
        cells, began_s = len(one.run.cells), known.began_ns / 1e9
        if one.wrong:
            return RunOverview(name, RunState.DAMAGED, began_s, cells, 0, why=one.wrong)
        state = RunState.RUNNING if owned else RunState.UNFINISHED
        return RunOverview(name, state, began_s, cells, one.run.done, owner=owner if owned else None)


def _read(folder: Path, changed_ns: int) -> _Known | None:
    """None if it is not a run folder."""
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


# The data that pages are rendered from.


@dataclass(frozen=True)
class ProposedChange:
    """A command and the change that it would make. The dashboard never runs it."""

    command: str
    diff: str = ""
    refused: str = ""  # why the command would be refused


# From suite path, benchmark and metric to the change that accepts the newest level.
Recenter = Callable[[str, str, str], ProposedChange | None]


# From a run folder and the hash of a cell to its output while it runs. Problems are reported in the text.
FollowLog = Callable[[RunFolder, str], AsyncGenerator[bytes]]


@dataclass(frozen=True)
class Site:
    runs: Path
    history: History
    recenter: Recenter = lambda suite_path, benchmark, metric: None
    find_causes: FindCauses = lambda cells: []  # of runs in progress
    follow_log: FollowLog | None = None
    ending: str = ""  # extension of static pages
    review_token: str = ""  # in forms that review alerts, against requests of other sites; empty if not allowed
    options: tuple[str, ...] = ()  # appended to commands, to select these runs

    @cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.runs)
