"""Workloads as processes on this machine: the same stages, without a cluster.

1. The machine has slots. A pod is one process and takes one slot per requested GPU, at least one; the GPUs need not
   exist.
2. All pods of a workload get their slots at once or not at all; a workload that does not fit now is unschedulable.
3. Every process carries a mark in its environment. By it all are found and killed, including their children and those
   of a load generator that was killed."""

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.driver import Driver, DriverError, in_background
from seatrial.kinds.scale.driver.health import health_columns
from seatrial.kinds.scale.driver.plan import PlannedWorkload, SubmissionPlan
from seatrial.kinds.scale.followed import DELETED, FINISHED, POD_CREATED, READY, SCHEDULED, STARTED, UNSCHEDULABLE
from seatrial.kinds.scale.work import FILES, STAMPS, MeasuredScale, ScaleWork, Stamp, Submission

_MARK = "SEATRIAL_SCALE"
LAG_EVERY_S = 0.05
_GONE_S = 60.0


class ProcessWorkloads:
    """Implements `WorkloadTarget`. Sending and stamping share an event loop, so its lag is the watch lag."""

    def __init__(self, driver: Driver, work: ScaleWork, plan: SubmissionPlan, cpus: int) -> None:
        self._driver, self._plan = driver, plan
        self._mark = f"{_MARK}={work.prefix}".encode()
        self._environment = {**os.environ, _MARK: work.prefix}
        self._free = work.places or cpus
        self._queue: dict[int, PlannedWorkload] = {}
        self._refused: set[int] = set()  # queued workloads already stamped as unschedulable
        self._running: dict[int, dict[int, int]] = {}  # workload -> pid -> slots
        self._killed: set[int] = set()  # pids that we killed: deleted, not failed
        self._wake = asyncio.Event()
        self._lags: list[tuple[float, float]] = []  # (time, lag)
        self._fd = -1
        for name in FILES:  # after a restart, start over: no earlier process is left
            (driver.files / name).unlink(missing_ok=True)

    async def check(self) -> None:
        for of in self._plan.classes:
            if not of.command:
                raise DriverError(f"workload {of.name} needs a cluster; on this machine use `kind: pod` or `kind: job`")

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        await self.clean()  # from before a restart
        self._fd = os.open(self._driver.files / STAMPS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        async with in_background(self._place_them()), in_background(self._measure_lag()):
            yield

    def lags(self) -> list[tuple[float, float]]:
        return self._lags

    def measured(self, submissions: Mapping[int, Submission], stamps: list[Stamp], end_s: float) -> MeasuredScale:
        return MeasuredScale(["processes"], health=health_columns(submissions, self._lags, [], [], end_s))

    async def _measure_lag(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(LAG_EVERY_S)
            now_s = time.monotonic()
            self._lags.append((now_s, max(now_s - before_s - LAG_EVERY_S, 0.0)))

    # ---- requests

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None:
        now_s = time.monotonic()
        attempts.append(RequestAttempt(now_s, now_s, now_s, now_s, 201))
        self._queue[one.number] = one
        for pod in range(one.of.pods):
            self._stamp(one.number, pod, POD_CREATED)
        self._wake.set()

    async def delete(self, one: PlannedWorkload) -> None:
        if self._queue.pop(one.number, None) is not None:
            self._stamp(one.number, 0, DELETED)
        for pid in list(self._running.get(one.number, ())):
            self._kill(pid)  # its exit is observed like any other

    # ---- scheduling

    async def _place_them(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for number, one in list(self._queue.items()):
                if number not in self._queue:  # deleted while another was started
                    continue
                pods, slots = range(one.of.pods), max(1, math.ceil(one.of.gpus))  # slots of each pod
                if len(pods) * slots <= self._free and not one.of.select:
                    del self._queue[number]
                    self._free -= len(pods) * slots
                    for pod in pods:
                        self._stamp(number, pod, SCHEDULED)
                    for pod in pods:
                        self._spawn(one, pod, slots)
                        await asyncio.sleep(0)  # let sends run in between
                elif number not in self._refused:
                    self._refused.add(number)
                    self._stamp(number, 0, UNSCHEDULABLE)

    def _spawn(self, one: PlannedWorkload, pod: int, slots: int) -> None:
        try:
            pid = os.posix_spawnp(one.of.command[0], one.of.command, self._environment)
        except OSError:  # command not found: started and failed, like a pod
            self._stamp(one.number, pod, STARTED)
            self._stamp(one.number, pod, FINISHED, failed=True)
            self._free += slots
            return
        self._running.setdefault(one.number, {})[pid] = slots
        self._stamp(one.number, pod, STARTED)
        self._stamp(one.number, pod, READY)
        fd, loop = os.pidfd_open(pid), asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self._stamp(one.number, pod, DELETED if pid in self._killed else FINISHED, failed=status != 0)
            self._killed.discard(pid)
            self._free += self._running[one.number].pop(pid)
            self._wake.set()

        loop.add_reader(fd, ended)

    def _stamp(self, number: int, pod: int, stage: str, failed: bool = False) -> None:
        stamp = Stamp(number, f"{number}-{pod}", stage, time.monotonic(), failed=failed and stage == FINISHED)
        os.write(self._fd, msgspec.json.encode(stamp) + b"\n")

    # ---- deletion

    def _kill(self, pid: int) -> None:
        self._killed.add(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def waiting(self) -> dict[int, tuple[str, bool]]:
        return {}  # only for places, as the stage `unschedulable` shows

    async def clean(self, phase: str = "") -> str:
        until_s = time.monotonic() + _GONE_S
        numbers = {number for number, one in self._plan.all.items() if phase in ("", one.phase)}
        for number in numbers & self._queue.keys():
            del self._queue[number]
        while time.monotonic() < until_s:
            left = [pid for number, pids in self._running.items() if number in numbers for pid in pids]
            left += [] if phase else _marked(self._mark)
            if not left:
                return ""
            for pid in left:
                self._kill(pid)
            await asyncio.sleep(0.02)
        return "some still exist"


def _marked(mark: bytes) -> list[int]:
    """Pids of processes with the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
