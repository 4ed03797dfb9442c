"""The engine in a simulated world: one process, a virtual clock, and a target whose jobs, delays, faults and lost
answers come from a seed. A process of Seatrial is a `Life`: an event loop that can be killed before any callback and at
any failpoint, after which nothing that it still does has an effect. Its run folder is real.

`simulate(seed)` makes one schedule, with kills and faults, to its end, and raises Violation when anything that must
always hold does not."""

import asyncio
import contextlib
import heapq
import itertools
import random
import selectors
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict

from seatrial import plugins
from seatrial.checks import check_job
from seatrial.engine import PreparedRun, Run, RunOptions, RunStopped
from seatrial.engine import run as run_module
from seatrial.job import (
    CellResult,
    Environment,
    Event,
    Exit,
    Finding,
    Job,
    JobSpec,
    Limits,
    Observation,
    Outcome,
    PartSpec,
    Port,
    Ready,
    RunResults,
    Stage,
    StageTime,
    Step,
    Verdict,
)
from seatrial.kinds.protocol import Judgement
from seatrial.plan import Plan, expand
from seatrial.record import RunFolder, read_journal
from seatrial.suite import HERE, Cell, Gathered, Suite, TrialModel, from_data
from seatrial.targets import Diagnostic, Found, TargetError, TargetLost

QUEUE_S, READY_S, RUN_S = 50.0, 40.0, 300.0
LIVES = 5
BEGUN_S, DAY_S = 1000.0, 86_400.0
SWEEP_S = 100.0  # at most, from the results to the end of the process
STEPS = 4000  # of one life: more callbacks than that are a loop without end


class Violation(AssertionError):
    """Something that must always hold did not."""


class Killed(BaseException):
    """This life is over. No code of the engine catches it."""


# ---- the clock and the loop


@dataclass
class World:
    """What outlives a process: time, the jobs of the target, and what was done to them."""

    seed: int
    now_s: float = BEGUN_S
    wall_ahead_s: float = 0.0  # of the wall clock, which somebody may set
    jobs: dict[str, "SimJob"] = field(default_factory=dict)
    half_made: set[str] = field(default_factory=set)
    starts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    interrupts: int = 0
    kills: int = 0
    listener: Callable[[Event], None] = lambda event: None
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._numbers), act))

    def advance(self, until_s: float | None) -> None:
        """To the next thing that happens in the world, or to `until_s` if that is earlier."""
        if until_s is None and not self._due:
            raise Violation("the engine waits for something that will never come")
        if not self._due or (until_s is not None and until_s < self._due[0][0]):
            assert until_s is not None
            self.now_s = max(self.now_s, until_s)
            return
        self.now_s = max(self.now_s, self._due[0][0])
        while self._due and self._due[0][0] <= self.now_s:
            heapq.heappop(self._due)[2]()


class _Selector(selectors.BaseSelector):
    """Waits by moving the clock of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._world.advance(None if timeout is None else self._world.now_s + timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any: ...

    def unregister(self, fileobj: Any) -> Any: ...

    def get_map(self) -> Mapping[Any, Any]:
        return {}

    def get_key(self, fileobj: Any) -> Any:
        raise KeyError(fileobj)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, life: "Life") -> None:
        self._life = life
        super().__init__(_Selector(life.world))
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._life.world.now_s

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if self._life.dead:  # what is taken apart wakes nothing any more
            return asyncio.Handle(callback, args, self)
        return super().call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        self._life.step()
        super()._run_once()  # type: ignore[misc]

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:
        """A thread: what it does is done at once or at the end of a short while, whatever becomes of this process."""
        world, life = self._life.world, self._life
        future = self.create_future()
        late = world.random.random() < 0.3

        def done(outcome: tuple[Any, BaseException | None]) -> None:
            if life.dead or future.cancelled():
                return
            value, error = outcome
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def act() -> tuple[Any, BaseException | None]:
            life.check()
            try:
                return function(*args), None
            except Exception as error:  # noqa: BLE001 - as a thread hands it on
                return None, error

        if late:
            world.at(world.random.uniform(0, 0.01), lambda: None if life.dead else done(act()))
        else:
            outcome = act()
            world.at(0.0, lambda: done(outcome))
        return future


class Life:
    """One process of Seatrial, from its start to its end or its kill."""

    def __init__(self, world: World, *, kill_at: int | None, kill_point: int | None, interrupt_at: int | None) -> None:
        self.world = world
        self.dead = False
        self.engine: Run | None = None
        self.target = SimTarget(self)
        self.points: list[str] = []
        self.updates: list[tuple[float, str, str]] = []  # when, cell, state
        self.steps = 0
        self._kill_at, self._kill_point, self._interrupt_at = kill_at, kill_point, interrupt_at

    def check(self) -> None:
        if self.dead:
            raise Killed

    def step(self) -> None:
        """Before every turn of the loop."""
        self.check()
        self.steps += 1
        if self.steps == self._kill_at:
            self.kill()
        if self.steps == self._interrupt_at and self.engine is not None:
            self.world.interrupts += 1
            self.engine.interrupt()
        if self.steps > STEPS:
            raise Violation("the engine goes on without end")

    def at(self, point: str) -> None:
        """A failpoint."""
        self.check()
        self.points.append(point)
        if len(self.points) == self._kill_point:
            self.kill()

    def update(self, cell: str, state: str, progress: str = "") -> None:
        self.updates.append((self.world.now_s, cell, state))

    def kill(self) -> None:
        self.dead = True
        self.world.kills += 1
        raise Killed

    def run(self, prepared: PreparedRun) -> RunResults | None:
        """The results; None when it was killed or stopped, so that the run has to be taken up."""
        loop = VirtualLoop(self)
        with plugged(self.target, self.at), self._clocks():
            self.engine = Run(prepared, self)
            main = loop.create_task(self.engine.execute())
            try:
                return loop.run_until_complete(main)
            except (RunStopped, Killed):
                return None
            finally:
                self.dead = True
                _bury(loop)
                if main.done() and not main.cancelled():
                    main.exception()  # it is known

    @contextlib.contextmanager
    def _clocks(self) -> Iterator[None]:
        """The world's: monotonic times in the journal and times of the event loop agree."""
        before = time.time, time.monotonic
        time.time, time.monotonic = lambda: self.world.now_s + self.world.wall_ahead_s, lambda: self.world.now_s
        try:
            yield
        finally:
            time.time, time.monotonic = before


def _bury(loop: VirtualLoop) -> None:
    """Nothing of a process outlives it. What its code does while it is taken apart has no effect: it is dead."""
    try:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError, Killed, asyncio.CancelledError):
                task.get_coro().close()  # type: ignore[union-attr]
        for agen in list(loop._asyncgens):  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError, StopIteration, Killed):
                agen.aclose().send(None)
    finally:
        loop.close()


# ---- the target


class SimJob:
    """A job and its fate, which its name and the seed decide, whoever asks when."""

    def __init__(self, world: World, job: Job, peer: "SimJob | None") -> None:
        self.world, self.job, self.peer = world, job, peer
        self.handle = f"sim://{job.name}"
        self.events: list[Event] = []
        self.exit: Exit | None = None  # as the target says it
        self.own_exit: Exit | None = None  # what it came to by itself; None: it was told to end first
        self.told_to_end = False
        self.removed = False
        self.started = False
        self.ready = False
        self.peer_was_alive = True
        self.endless = False
        fate = random.Random(f"{world.seed} {job.name}")
        self._emit(Stage.CREATED)
        if fate.random() < 0.04:
            return  # it never gets a place
        self.fate = fate
        world.at(fate.choice((0.0, 0.0, 0.5, 5.0)) * fate.random(), self._start)

    def _emit(self, stage: Stage, exit_: Exit | None = None) -> None:
        event = Event(self.handle, StageTime(stage, self.world.now_s, "sim"), exit_, ("node-1",))
        self.events.append(event)
        self.world.listener(event)

    def _start(self) -> None:
        if self.exit is not None:
            return
        self.started = True
        self.world.starts[self.job.name] += 1
        self._emit(Stage.STARTED)
        if self.job.ready is not None and self.fate.random() < 0.95:
            self.world.at(self.fate.uniform(0, 3.0), self._become_ready)
        outcome = self._outcome()
        self.endless = outcome is None and self.job.part != "server"
        if outcome is not None:
            self.world.at(self.fate.uniform(0.0, 10.0), lambda: self._end_itself(outcome))

    def _become_ready(self) -> None:
        if self.exit is None:
            self.ready = True
            self._emit(Stage.READY)

    def _outcome(self) -> Exit | None:
        """A server mostly serves until it is told to end. None: without end, whatever its limit says."""
        chance = self.fate.random()
        if self.job.part == "server":
            if chance < 0.8:
                return None
            return Exit(Outcome.EXITED, 1) if chance < 0.9 else Exit(Outcome.EVICTED, message="its node went away")
        if chance < 0.55:
            return Exit(Outcome.EXITED, 0)
        if chance < 0.75:
            return Exit(Outcome.EXITED, 1)
        if chance < 0.79:
            return None
        return Exit(self.fate.choice((Outcome.LOST, Outcome.EVICTED)), message="the world is bad")

    def _end_itself(self, exit_: Exit) -> None:
        if self.exit is None:
            self.own_exit = exit_
            self._finish(exit_)

    def _finish(self, exit_: Exit) -> None:
        self.exit = exit_
        if self.peer is not None:
            self.peer_was_alive = self.peer.exit is None
        self._emit(Stage.FINISHED, exit_)

    def tell_to_end(self) -> None:
        if self.exit is None and not self.told_to_end:
            self.told_to_end = True
            self.world.at(self.world.random.choice((0.0, 1.0, 10.0)), lambda: self._end_told())

    def _end_told(self) -> None:
        if self.exit is None:
            self._finish(Exit(Outcome.CANCELLED))

    def records(self) -> bytes:
        lines: list[dict[str, Any]] = [{"event": "begin", "at_s": 1.0, "wall_s": 1.0}]
        if self.started:
            lines.append({"event": "step", "step": 0, "at_s": 1.0})
        if self.exit is not None and self.exit.outcome is Outcome.EXITED:
            code = self.exit.code
            lines.append({"event": "done", "step": 0, "at_s": 2.0, "outcome": "exited", "code": code})
        return b"\n".join(map(msgspec.json.encode, lines)) + b"\n"


class SimTarget:
    """The target as one life sees it. Every call takes a while, and may fail before or after its effect."""

    name = "sim"

    def __init__(self, life: Life) -> None:
        self._life = life
        self._world = life.world
        self._handles: set[str] = set()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self.faulty = True

    async def _call(self, what: str, effect: Callable[[], Any], unknown_after: bool = True) -> Any:
        chance = self._world.random.random() if self.faulty and len(self._world.faults) < 3 else 1.0
        await asyncio.sleep(self._world.random.choice((0.0, 0.01, 0.5)))
        self._life.check()
        if chance < 0.02:
            self._world.faults.append(f"{what}: failed")
            raise TargetError(f"{what} failed")
        if chance < 0.025:
            self._world.faults.append(f"{what}: lost")
            raise TargetLost(f"{what}: the target is lost")
        result = effect()
        await asyncio.sleep(self._world.random.choice((0.0, 0.01, 0.5)))
        self._life.check()
        if chance < 0.045 and unknown_after:
            self._world.faults.append(f"{what}: answer lost")
            raise TargetError(f"{what}: the answer was lost")
        return result

    def _job(self, handle: str) -> SimJob:
        job = self._world.jobs.get(handle.removeprefix("sim://"))
        if job is None or job.removed:
            raise TargetError(f"there is no job {handle}")
        return job

    def address(self) -> dict[str, Any]:
        return {}

    async def open(self) -> None:
        self._world.listener = self._heard

    async def close(self) -> None: ...

    async def prepare(self, environment: Environment) -> None: ...

    def preparing(self, environment: Environment) -> str:
        return ""

    async def verify(self, job: Job) -> None: ...

    async def examine(self) -> list[Diagnostic]:
        return []

    def _heard(self, event: Event) -> None:
        if not self._life.dead and event.handle in self._handles:
            self._queue.put_nowait(event)

    def _listen(self, job: SimJob) -> None:
        if job.handle not in self._handles:
            self._handles.add(job.handle)
            for event in job.events:
                self._queue.put_nowait(event)

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        if job.name not in self._world.jobs:  # half made, for a while: a kill then leaves it so
            self._world.half_made.add(job.name)
            await asyncio.sleep(self._world.random.choice((0.0, 0.01, 0.5)))
            self._life.check()

        def effect() -> str:
            self._world.half_made.discard(job.name)
            known = self._world.jobs.get(job.name)
            if known is not None and known.removed:
                raise Violation(f"{job.name} was submitted again after it had been removed")
            if known is None:
                peer = self._peer(job)
                known = self._world.jobs[job.name] = SimJob(self._world, job, peer)
            self._listen(known)
            return known.handle

        return str(await self._call(f"submit {job.name}", effect))

    def _peer(self, job: Job) -> SimJob | None:
        if job.part != "driver":
            return None
        server = self._world.jobs.get(job.name.removesuffix("-driver") + "-server")
        if server is None or not server.ready:
            raise Violation(f"{job.name} was submitted before its server was ready")
        return server

    async def adopt(self, handle: str) -> None:
        await self._call(f"adopt {handle}", lambda: self._listen(self._job(handle)), unknown_after=False)

    async def watch(self) -> AsyncIterator[Event]:
        while True:
            event = await self._queue.get()
            if self.faulty and len(self._world.faults) < 3 and self._world.random.random() < 0.01:
                self._world.faults.append("watch: broke")
                raise TargetError("the watch broke")
            yield event

    async def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]:
        yield b""

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        def effect() -> bool:
            job = self._job(handle)
            if job.exit is None:
                raise Violation(f"{path} of {handle} was fetched before it had ended")
            if path == "records.jsonl":
                into.write_bytes(job.records())
            return path == "records.jsonl"

        return bool(await self._call(f"fetch {path} of {handle}", effect))

    @asynccontextmanager
    async def endpoint(self, handle: str, port: str) -> AsyncIterator[str]:
        yield "127.0.0.1:1"

    async def addresses(self, handle: str, asker: Mapping[str, Any]) -> dict[str, str]:
        return {}

    async def cancel(self, handle: str) -> None:
        def effect() -> None:
            job = self._job(handle)
            self._check_needless(job)
            job.tell_to_end()

        await self._call(f"cancel {handle}", effect)

    def _check_needless(self, server: SimJob) -> None:
        """A server is only ended when its driver is over, was never there, or all is being stopped."""
        driver = self._world.jobs.get(server.job.name.removesuffix("-server") + "-driver")
        if driver is None or driver is server or server.job.part != "server" or self._world.interrupts:
            return
        unknown = any(fault.startswith(("list", "remove")) or driver.job.name in fault for fault in self._world.faults)
        if driver.exit is None and not driver.told_to_end and not unknown:
            raise Violation(f"{server.job.name} was ended while its driver still ran")

    async def remove(self, handle: str) -> None:
        def effect() -> None:
            job = self._world.jobs.get(handle.removeprefix("sim://"))
            self._world.half_made.discard(handle.removeprefix("sim://"))
            if job is not None:
                job.removed = True
                if job.exit is None:
                    job.told_to_end = True
                    job._finish(Exit(Outcome.CANCELLED))

        await self._call(f"remove {handle}", effect)

    async def list(self, run: str | None = None) -> list[Found]:
        def effect() -> Any:
            return [
                Found(job.handle, name, job.job.run, job.exit is None, job.job.labels, 0.0)
                for name, job in self._world.jobs.items()
                if not job.removed
            ] + [Found(f"sim://{name}", name, "", False, {}, 0.0) for name in sorted(self._world.half_made)]

        found: list[Found] = await self._call("list", effect)
        return found


# ---- the kind, and a suite of it


class SimTrial(TrialModel):
    kind: Literal["sim"]
    shape: Literal["single", "pair"]


class SimOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    parallel: int | None = None


class SimKind:
    name = "sim"
    model = SimTrial

    def gather(self, cell: Cell) -> Gathered:
        return Gathered()

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        if cell.spec.shape == "single":
            return (PartSpec("job", self._job(cell, "job"), HERE),)
        server = self._job(cell, "server")
        server = msgspec.structs.replace(server, ports=(Port("http"),), ready=Ready("http", within_s=READY_S))
        driver = self._job(cell, "driver")
        return PartSpec("server", server, HERE, leads=False), PartSpec("driver", driver, HERE, after="server")

    def _job(self, cell: Cell, part: str) -> JobSpec:
        limits = Limits(queue_s=QUEUE_S, run_s=None if part == "server" else RUN_S)
        return JobSpec(cell.id, (Step("work", "command"),), part=part, limits=limits)

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        findings = [finding for part, seen in observed.items() for finding in check_job(seen, part)]
        leading = observed.get("driver") or observed["job"]
        if leading.exit.outcome is Outcome.EXITED:
            code = leading.steps[0].code
            findings.append(Finding("work", "exit", Verdict.PASSED if code == 0 else Verdict.FAILED, "exit"))
        if "server" in observed and observed["server"].exit.outcome is Outcome.EXITED:
            findings.append(Finding("server", "exit", Verdict.FAILED, "server"))
        return Judgement(findings)


class SimTargetKind:
    name = "sim"
    options = SimOptions
    one_machine = False

    def __init__(self, target: Any = None) -> None:
        self._target = target

    def is_available(self) -> bool:
        return False

    def open(self, name: str, options: Any) -> Any:
        return self._target


@contextlib.contextmanager
def plugged(target: SimTarget, at: Callable[[str], None]) -> Iterator[None]:
    kinds, targets = {"sim": SimKind()}, {"sim": SimTargetKind(target)}
    before = plugins.kinds, plugins.targets, run_module.Failpoints
    # By hand: a mock for each of three names would take longer than the rest of a life.
    plugins.kinds, plugins.targets = (lambda: kinds), (lambda: targets)  # type: ignore[assignment]
    run_module.Failpoints = lambda: at  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        plugins.kinds, plugins.targets, run_module.Failpoints = before  # type: ignore[misc]


def sim_suite() -> tuple[Suite, Plan]:
    data = {
        "name": "sim",
        "targets": {HERE: {"kind": "sim", "parallel": 2}},
        "trials": {
            "single": {"kind": "sim", "shape": "single", "matrix": {"n": [1, 2]}, "retries": 1},
            "pair": {"kind": "sim", "shape": "pair", "matrix": {"n": [1, 2]}, "retries": 1},
        },
    }
    suite = from_data(data, Path.cwd(), {"sim": SimTrial}, {"sim": SimOptions})
    return suite, expand(suite)


# ---- one schedule


def simulate(seed: int, suite: Suite, plan: Plan, runs: Path) -> World:
    """Lives until the run has finished; the last one is neither killed nor are there faults. Raises Violation."""
    world = World(seed)
    folder = RunFolder(runs / f"sim-{seed}")
    folder.path.mkdir(parents=True)
    folder.plan.write_text("{}")
    prepared = PreparedRun(suite, plan, folder, RunOptions())
    try:
        for number in range(LIVES + 1):
            life = _life(world, last=number == LIVES)
            results = life.run(prepared)
            if results is not None:
                _check(world, results, folder, life)
                return world
        raise Violation("a life without faults and kills did not finish the run")
    except Violation as violation:
        violation.add_note(f"seed {seed}; faults: {world.faults}, {world.kills} kills, {world.interrupts} interrupts")
        raise
    finally:
        shutil.rmtree(folder.path)


def _life(world: World, last: bool) -> Life:
    chance = world.random.random()
    kill_at = world.random.randrange(1, 300) if chance < 0.4 else None
    kill_point = world.random.randrange(1, 80) if 0.4 <= chance < 0.75 else None
    interrupt_at = world.random.randrange(1, 250) if world.random.random() < 0.12 and not world.interrupts else None
    if last:
        kill_at = kill_point = interrupt_at = None
    life = Life(world, kill_at=kill_at, kill_point=kill_point, interrupt_at=interrupt_at)
    life.target.faulty = not last
    world.wall_ahead_s = random.Random(f"{world.seed} {world.kills}").choice((0.0, 5.0, DAY_S, -DAY_S))
    return life


def _check(world: World, results: RunResults, folder: RunFolder, life: Life) -> None:
    """What always holds, whatever the schedule."""
    twice = [name for name, count in world.starts.items() if count > 1]
    if twice:
        raise Violation(f"the work of {twice} was done twice")
    left = [*(name for name, job in world.jobs.items() if not job.removed), *world.half_made]
    entries, _ = read_journal(folder.journal)
    if left and not any(entry["event"] == "left" for entry in entries):
        raise Violation(f"{left} is left, and the journal does not say so")
    if left and not life.target.faulty:
        raise Violation(f"{left} is left although nothing failed")
    if not -SWEEP_S <= results.seconds - (world.now_s - BEGUN_S) <= 0.001:
        raise Violation(f"the run took {world.now_s - BEGUN_S} s, and is said to have taken {results.seconds} s")
    for cell in results.cells:
        _check_cell(world, cell, results.interrupted)


def _check_cell(world: World, cell: CellResult, interrupted: bool) -> None:
    """The verdict is the one that what really happened to the last attempt comes to."""
    if not cell.attempts:
        if not interrupted:
            raise Violation(f"{cell.id} was not run, and no interrupt says why")
        return
    for number, attempt in enumerate(cell.attempts, 1):
        if attempt.number != number:
            raise Violation(f"{cell.id} has attempt {attempt.number} as its {number}th")
        wanted = _true_verdicts(world, cell, number)
        if attempt.verdict not in wanted:
            raise Violation(f"{cell.id} attempt {number} is {attempt.verdict} ({attempt.why}), and was {wanted}")
    for attempt in cell.attempts[:-1]:
        if attempt.verdict is not Verdict.INFRA and not attempt.cancelled:
            raise Violation(f"{cell.id} was tried again after {attempt.verdict}")
    if cell.verdict is not cell.attempts[-1].verdict:
        raise Violation(f"{cell.id} is {cell.verdict}, and its last attempt {cell.attempts[-1].verdict}")


def _true_verdicts(world: World, cell: CellResult, number: int) -> set[Verdict]:
    """By what the world knows; a fault in a call for the attempt may hide that."""
    name = f"sim-{world.seed}-{cell.hash}-{number}"
    allowed = {Verdict.INFRA} if any(name in fault for fault in world.faults) else set()
    if any(fault.startswith("list") for fault in world.faults):
        allowed.add(Verdict.INFRA)
    if world.interrupts:
        allowed.add(Verdict.SKIPPED)
    if "single" in cell.id:
        return allowed | {_job_verdict(world.jobs.get(name))}
    server, driver = world.jobs.get(f"{name}-server"), world.jobs.get(f"{name}-driver")
    if driver is not None and driver.own_exit is not None and driver.peer_was_alive:
        verdicts = {_job_verdict(driver)}
        if server is not None and server.own_exit is not None:  # it ended just after its driver, before it was told to
            verdicts.add(_job_verdict(server))
            verdicts.add(Verdict.INFRA if Verdict.INFRA in verdicts else Verdict.FAILED)
        return allowed | verdicts
    if driver is None:
        return allowed | {_job_verdict(server)}
    verdicts = {_job_verdict(server)} if server is not None and server.own_exit is not None else set()
    if driver.own_exit is not None or not driver.started or driver.endless:
        verdicts.add(_job_verdict(driver))
    return allowed | verdicts


def _job_verdict(job: SimJob | None) -> Verdict:
    if job is None:
        return Verdict.SKIPPED
    if job.own_exit is None:
        if not job.started:
            return Verdict.INFRA  # it got no place
        if job.endless or (job.job.ready is not None and not job.ready):
            return Verdict.TIMEOUT
        return Verdict.SKIPPED
    if job.own_exit.outcome is Outcome.EXITED:
        return Verdict.PASSED if job.own_exit.code == 0 else Verdict.FAILED
    return Verdict.INFRA
