"""Plans all workloads: class, namespace and phase of each. Pure; deterministic by seed."""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.scale.work import ExtraWorkloads, MeasuredScale, ScaleWork, Stamp, Submission, WorkloadClass

BACKGROUND, CHURN = "background", "churn"  # phases


class PlannedWorkload(NamedTuple):
    number: int
    phase: str
    of: WorkloadClass
    namespace: str  # empty: the target's own


class SubmissionPlan:
    """All workloads of an attempt. Numbers are unique, in the order of the phases."""

    def __init__(self, work: ScaleWork) -> None:
        self._work = work
        self._next = 0
        self.all: dict[int, PlannedWorkload] = {}
        self.background = self._plan_extra(BACKGROUND, work.background)
        self.fill = self._plan_extra("fill", work.fill)
        self.measured = self._make("measured", 0 if work.find else work.count, work.classes)
        churn = work.churn
        self.churned = self._make(CHURN, round(churn.rate * churn.seconds), work.classes) if churn else []

    @property
    def classes(self) -> list[WorkloadClass]:
        extra = [one.of for one in (self._work.background, self._work.fill) if one and one.of]
        return [*self._work.classes, *extra]

    def round(self, number: int) -> list[PlannedWorkload]:
        """Workloads for one rate of a search."""
        return self._make(f"round-{number}", self._work.count, self._work.classes)

    def samples(self) -> list[PlannedWorkload]:
        """One workload of each class in each of its namespaces."""
        return [PlannedWorkload(0, "measured", of, space) for of in self.classes for space in self._namespaces(of)]

    def _namespaces(self, of: WorkloadClass) -> tuple[str, ...]:
        """The trial's namespaces, else the template's."""
        return self._work.namespaces or ((of.manifest.get("metadata") or {}).get("namespace", ""),)

    def replaced(self) -> list[PlannedWorkload]:
        """Workloads that churn deletes, oldest first, one for each that it creates."""
        return [*self.measured, *self.churned][: len(self.churned)]

    def pods(self) -> dict[int, int]:
        return {number: one.of.pods for number, one in self.all.items()}

    def _plan_extra(self, phase: str, extra: ExtraWorkloads | None) -> list[PlannedWorkload]:
        if extra is None:
            return []
        return self._make(phase, extra.count, (extra.of,) if extra.of else self._work.classes)

    def _make(self, phase: str, count: int, classes: Sequence[WorkloadClass]) -> list[PlannedWorkload]:
        """Chooses classes at random by weight. Each phase has its own seed, so that phases do not affect each other."""
        chance = random.Random(f"{self._work.seed} {phase}")
        chosen = chance.choices(classes, [one.weight for one in classes], k=count)
        first, self._next = self._next, self._next + count
        among = {of.name: self._namespaces(of) for of in classes}
        made = [
            PlannedWorkload(first + at, phase, of, among[of.name][at % len(among[of.name])])
            for at, of in enumerate(chosen)
        ]
        self.all.update((one.number, one) for one in made)
        return made


class WorkloadTarget(Protocol):
    """Where a scale trial creates its workloads: a cluster or this machine. `create` and `delete` raise KubernetesError
    if they are refused permanently.

    1. `check` raises DriverError if a class would be rejected. Nothing is created before it returns.
    2. `create` succeeds for a workload that exists from before a restart of the load generator.
    3. While `watching` is open, every stage of every workload is written to the stamps file as it is seen. A stage that
       was reached during a restart is written with both ends of that time.
    4. `clean` deletes all workloads, or those of one phase, and returns why some are left; empty if none."""

    async def check(self) -> None: ...

    def watching(self) -> AbstractAsyncContextManager[None]: ...

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None: ...

    async def delete(self, one: PlannedWorkload) -> None: ...

    def lags(self) -> list[tuple[float, float]]:
        """(time, lag in seconds) of each lag measurement during the watch."""
        ...

    def measured(self, submissions: Mapping[int, Submission], stamps: list[Stamp], end_s: float) -> MeasuredScale:
        """How the trial was measured, and the control plane's health during it."""
        ...

    async def waiting(self) -> dict[int, tuple[str, bool]]:
        """Why workloads do not start, by number, and whether that lasts. Empty if it is unknown."""
        ...

    async def clean(self, phase: str = "") -> str: ...
