"""The simulated world of `simulation` with jobs whose fate a test writes down, without faults."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulation import Life, SimJob, SimOptions, SimTarget, SimTrial, World

from seatrial.engine import PreparedRun, RunOptions
from seatrial.job import Event, Exit, Job, Outcome, RunResults, Stage, StageTime
from seatrial.plan import expand
from seatrial.record import RunFolder, read_journal
from seatrial.suite import HERE, from_data

GOOD = Exit(Outcome.EXITED, 0)


@dataclass(frozen=True)
class Fate:
    """What becomes of a job. Times are seconds after its submission; None: never."""

    start_s: float | None = 0.0
    ready_s: float | None = None
    end_s: float | None = None
    exit: Exit = GOOD
    hosts: tuple[str, ...] = ("node-1",)
    stop_s: float = 0.0  # from being told to end to the end


class ScriptedJob(SimJob):
    def __init__(self, world: World, job: Job, peer: SimJob | None, fate: Fate) -> None:
        self.script = fate
        self.told_s: float | None = None  # when it was told to end
        super().__init__(world, job, peer)
        if fate.start_s is not None:
            world.at(fate.start_s, self._begin)
        if fate.ready_s is not None:
            world.at(fate.ready_s, self._become_ready)
        if fate.end_s is not None:
            world.at(fate.end_s, lambda: self._end_itself(fate.exit))

    def _start(self) -> None:
        """The seed decides nothing."""

    def _begin(self) -> None:
        if self.exit is None:
            self.started = True
            self.world.starts[self.job.name] += 1
            self._emit(Stage.STARTED)

    def _emit(self, stage: Stage, exit_: Exit | None = None) -> None:
        lost = exit_ is not None and exit_.outcome is Outcome.LOST  # then nobody knows when it ended
        seen = None if lost else StageTime(stage, self.world.now_s, "sim")
        event = Event(self.handle, seen, exit_, self.script.hosts)
        self.events.append(event)
        self.world.listener(event)

    def tell_to_end(self) -> None:
        if self.exit is None and self.told_s is None:
            self.told_s = self.world.now_s
            self.told_to_end = True
            self.world.at(self.script.stop_s, self._end_told)


class ScriptedTarget(SimTarget):
    """`addresses_s`: how long it takes to tell where a job can be reached; `meanwhile` is done at the start of that."""

    def __init__(self, life: "ScriptedLife", fate: Callable[[Job], Fate]) -> None:
        super().__init__(life)
        self._fate = fate
        self.faulty = False
        self.submissions: list[Job] = []
        self.unreachable: Exception | None = None
        self.hangs = False  # when it is opened
        self.addresses_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    async def _call(self, what: str, effect: Callable[[], Any], unknown_after: bool = True) -> Any:
        await asyncio.sleep(0)
        self._life.check()
        return effect()

    async def open(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.unreachable is not None:
            raise self.unreachable
        await super().open()

    async def submit(self, job: Job, secrets: Any) -> str:
        self.submissions.append(job)

        def effect() -> str:
            if job.name not in self._world.jobs:
                self._world.jobs[job.name] = ScriptedJob(self._world, job, self._peer(job), self._fate(job))
            self._listen(self._world.jobs[job.name])
            return self._world.jobs[job.name].handle

        return str(await self._call(f"submit {job.name}", effect))

    async def addresses(self, handle: str, asker: Any) -> dict[str, str]:
        self.meanwhile()
        await asyncio.sleep(self.addresses_s)
        return {}


class ScriptedLife(Life):
    """A process of Seatrial. `kill_when` is asked at each failpoint."""

    target: ScriptedTarget

    def __init__(self, world: World, fate: Callable[[Job], Fate], kill_when: Callable[[str], bool]) -> None:
        super().__init__(world, kill_at=None, kill_point=None, interrupt_at=None)
        self.target = ScriptedTarget(self, fate)
        self._kill_when = kill_when

    def at(self, point: str) -> None:
        super().at(point)
        if self._kill_when(point):
            self.kill()


class Script:
    """A run of trials of the kind `sim`, and what becomes of its jobs."""

    def __init__(
        self,
        folder: Path,
        fate: Callable[[Job], Fate],
        shape: str = "single",
        count: int = 1,
        parallel: int = 8,
        max_cost: float | None = None,
        **fields: Any,
    ) -> None:
        """`count` cells, `n=1` and so on; `fields` of the trial. An hour of their machine costs 3,600."""
        trial = {"kind": "sim", "shape": shape, "matrix": {"machine": ["m"], "n": [*range(1, count + 1)]}, **fields}
        data = {
            "name": "scripted",
            "targets": {HERE: {"kind": "sim", "parallel": parallel}},
            "machines": {"m": {"price": 3600}},
            "trials": {"t": trial},
        }
        suite = from_data(data, Path.cwd(), {"sim": SimTrial}, {"sim": SimOptions})
        self.folder = RunFolder(folder / "scripted-run")
        self.folder.path.mkdir(parents=True)
        self.folder.plan.write_text("{}")
        self.world = World(seed=1)
        self.prepared = PreparedRun(suite, expand(suite), self.folder, RunOptions(max_cost=max_cost))
        self._fate = fate

    def life(self, kill_when: Callable[[str], bool] = lambda point: False) -> ScriptedLife:
        return ScriptedLife(self.world, self._fate, kill_when)

    def run(self, life: ScriptedLife | None = None, kill_after_s: float | None = None) -> RunResults | None:
        """One process, which begins the run or takes it up. None: it was killed, or stopped."""
        life = life or self.life()
        if kill_after_s is not None:
            self.world.at(kill_after_s, life.kill)
        return life.run(replace(self.prepared, _parts={}))  # another process knows no parts yet

    def wait(self, seconds: float) -> None:
        """While no process works on the run."""
        until_s = self.world.now_s + seconds
        while self.world.now_s < until_s:
            self.world.advance(until_s)

    def job(self, end: str = "") -> ScriptedJob:
        """The one whose name ends so."""
        (job,) = (job for name, job in self.world.jobs.items() if name.endswith(end))
        assert isinstance(job, ScriptedJob)
        return job

    def events(self) -> list[str]:
        return [entry["event"] for entry in read_journal(self.folder.journal)[0]]
