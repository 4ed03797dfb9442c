"""One attempt at a cell: a loop takes each of its parts from phase to phase until all are removed.

After attach the same loop continues from where the journal ends. The parts are then read from their `job.json`, never
computed again."""

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from seatrial.engine.collect import clear_scratch
from seatrial.engine.context import AttemptContext, PartContext
from seatrial.engine.phases import (
    Adopting,
    Collected,
    Ended,
    Following,
    Phase,
    Planned,
    Removed,
    Submitting,
    Unheld,
    end_of,
    handle_of,
)
from seatrial.engine.states import AttemptRecord, PartRecord, State, job_seconds
from seatrial.job import Exit, Observation, Outcome, Part
from seatrial.suite import Cell

_T = TypeVar("_T")


class Attempt:
    """Makes one attempt. `cancel` may be called at any time; `run` returns soon after."""

    def __init__(self, context: AttemptContext, cell: Cell, number: int, record: AttemptRecord | None) -> None:
        """`record`: the journal's record of an attempt that an earlier process started."""
        self._context = context
        self._cell = cell
        self._number = number
        self._record = record
        self._parts: dict[str, PartContext] = {}
        self._phases: dict[str, Phase] = {}
        self._cancelled = False

    async def run(self, parts: tuple[Part, ...] | None) -> dict[str, Observation]:
        """Returns the observation of each part. `parts` are those of a new attempt; None continues the attempt of the
        record. If that was collected, its jobs are not removed yet: reading its observations needs no target, `finish`
        does.

        Raises Unreadable if the files of an earlier process cannot be read."""
        if self._record is not None:
            await self._take_up(self._record)
        elif parts is not None:
            await self._plan(parts)
        if self._record is None or not self._record.over:
            await self.finish()
        return {name: one.observation for name, one in self._phases.items() if isinstance(one, Collected)}

    @property
    def removed(self) -> bool:
        """Whether every part is in its last phase."""
        return all(isinstance(phase, Removed) for phase in self._phases.values())

    async def finish(self) -> None:
        """Takes every part to its last phase."""
        await gather_or_cancel(*(self._live(name) for name in self._parts))

    def cancel(self) -> None:
        """Stops all jobs of the attempt, and keeps those that are being submitted from starting."""
        self._cancelled = True
        for phase in self._phases.values():
            if isinstance(phase, Submitting):
                phase.task.cancel()
        self._wake()

    @property
    def job_seconds(self) -> float:
        """From the submission of its parts to their end."""
        return max((job_seconds(part.at_s) for part in self._parts.values()), default=0.0)

    async def discard(self) -> None:
        """Removes the jobs of an attempt after an internal error, as far as possible; the sweep finds the rest."""
        for name, phase in self._phases.items():
            if (handle := handle_of(phase)) is not None:
                with contextlib.suppress(Exception):
                    await (await self._parts[name].target()).remove(handle)

    async def _live(self, name: str) -> None:
        while not isinstance(phase := self._phases[name], Removed):
            self._phases[name] = await phase.advance(self._parts[name])
            if self._phases[name] is not phase:
                self._wake()

    def _wake(self) -> None:
        for part in self._parts.values():
            part.news.set()

    async def _plan(self, parts: tuple[Part, ...]) -> None:
        context, cell = self._context, self._cell
        files = [context.folder.write_part(cell.hash, part) for part in parts]
        context.at("jobs written")
        await context.journal.write(
            State.PLANNED,
            durable=True,
            files=files,
            cell=cell.hash,
            id=cell.id,
            attempt=self._number,
            host=context.host,
            parts={part.name: part.target for part in parts},
        )
        self._parts = {part.name: self._part(part, context.host, len(parts) == 1) for part in parts}
        self._phases = {part.name: Planned() for part in parts}

    async def _take_up(self, record: AttemptRecord) -> None:
        folder, cell = self._context.folder, self._cell.hash
        for name, known in record.parts.items():
            part = self._part(folder.read_part(cell, self._number, name), record.host, len(record.parts) == 1)
            part.at_s.update({state: self._context.began_s + at_s for state, at_s in known.at_s.items()})
            if known.state.reached(State.COLLECTED):
                phase = Removed if known.state is State.REMOVED else Collected
                self._phases[name] = phase(_ended(known), folder.read_observation(cell, self._number, name))
            else:
                await asyncio.to_thread(clear_scratch, part.folder)
                self._phases[name] = _phase(known, part.at_s)
            self._parts[name] = part

    def _part(self, part: Part, planned_on: str, alone: bool) -> PartContext:
        reason = partial(self._stop_reason, part)
        return PartContext(self._context, self._cell, self._number, part, alone, planned_on, reason, self._usable)

    def _stop_reason(self, part: Part) -> Exit | None:
        """Why the part should stop or not start; None if it should run."""
        if self._cancelled:
            return Exit(Outcome.CANCELLED, message="cancelled")
        if part.after and (ended := end_of(self._phases[part.after])) is not None:
            # The other part exited on its own; only this part can report that.
            outcome = Outcome.STOPPED if ended.exit.outcome is Outcome.EXITED else Outcome.RELEASED
            return Exit(outcome, message=f"the {part.after} ended first")
        leading = [name for name, other in self._parts.items() if other.part.leads]
        if not part.leads and all(end_of(self._phases[name]) for name in leading):
            return Exit(Outcome.RELEASED, message="no longer needed")
        return None

    def _usable(self, name: str) -> tuple[str, str] | None:
        """The handle and target of a part, once a part that comes after it can start."""
        phase, part = self._phases[name], self._parts[name].part
        enough = State.READY if part.job.ready is not None else State.STARTED
        if isinstance(phase, Following) and phase.step.reached(enough):
            return phase.handle, part.target
        return None


def _phase(known: PartRecord, at_s: dict[State, float]) -> Phase:
    """The phase of a part that an earlier process did not collect."""
    if known.state is State.PLANNED:
        return Planned(Unheld.MAYBE, known.stopping)
    if known.state is State.ENDED:
        return _ended(known)
    assert known.handle is not None
    return Adopting(known.handle, known.state, at_s[known.state], known.stopping)


def _ended(known: PartRecord) -> Ended:
    assert known.exit is not None
    return Ended(known.exit, known.handle or Unheld.MAYBE)


async def gather_or_cancel(*work: Coroutine[Any, Any, _T]) -> list[_T]:
    """Like asyncio.gather, but the first error cancels the others and is raised alone."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
