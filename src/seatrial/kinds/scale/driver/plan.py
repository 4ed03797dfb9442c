"""Which workloads there will be: of which class each is, in which namespace, and what it is for. Pure, by a seed."""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.scale.work import ExtraWorkloads, MeasuredScale, ScaleWork, Stamp, Submission, WorkloadClass


class PlannedWorkload(NamedTuple):
    number: int
    phase: str
    of: WorkloadClass
    namespace: str  # empty: the target's own


class SubmissionPlan:
    """Numbers are given once, in the order of the phases: no two workloads of an attempt share one."""

    def __init__(self, work: ScaleWork) -> None:
        self._work = work
        self._next = 0
        self.all: dict[int, PlannedWorkload] = {}
        self.background = self._beside("background", work.background)
        self.fill = self._beside("fill", work.fill)
        self.measured = self._make("measured", 0 if work.find else work.count, work.classes)
        churn = work.churn
        self.churned = self._make("churn", round(churn.rate * churn.seconds), work.classes) if churn else []

    @property
    def classes(self) -> list[WorkloadClass]:
        beside = [one.of for one in (self._work.background, self._work.fill) if one and one.of]
        return [*self._work.classes, *beside]

    def round(self, number: int) -> list[PlannedWorkload]:
        """The workloads of one rate of a search."""
        return self._make(f"round-{number}", self._work.count, self._work.classes)

    def samples(self) -> list[PlannedWorkload]:
        """One of each class for each of its namespaces."""
        return [PlannedWorkload(0, "measured", of, space) for of in self.classes for space in self._namespaces(of)]

    def _namespaces(self, of: WorkloadClass) -> tuple[str, ...]:
        """Those of the trial, else that of the template."""
        return self._work.namespaces or ((of.manifest.get("metadata") or {}).get("namespace", ""),)

    def replaced(self) -> list[PlannedWorkload]:
        """What churn deletes, the oldest first, one for each that it makes."""
        return [*self.measured, *self.churned][: len(self.churned)]

    def pods(self) -> dict[int, int]:
        return {number: one.of.pods for number, one in self.all.items()}

    def _beside(self, phase: str, beside: ExtraWorkloads | None) -> list[PlannedWorkload]:
        if beside is None:
            return []
        return self._make(phase, beside.count, (beside.of,) if beside.of else self._work.classes)

    def _make(self, phase: str, count: int, classes: Sequence[WorkloadClass]) -> list[PlannedWorkload]:
        """By weight and by chance; a phase has a chance of its own, so that one more changes no other."""
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
    """Where a scale trial makes its workloads: a cluster, or this machine. `create` and `delete` raise KubernetesError
    when they are refused for good.

    1. `check` raises DriverError when the place would not take one of each class: nothing is made before.
    2. A workload that an earlier life of the driver made is made: `create` says nothing of it.
    3. While `watching` is open, every stage of every workload is written to the file of stamps as it is seen; what an
       earlier life did not see is written with both ends of the time in which it happened.
    4. `clean` deletes all, or all of one phase, and says why something is left; empty when nothing is."""

    async def check(self) -> None: ...

    def watching(self) -> AbstractAsyncContextManager[None]: ...

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None: ...

    async def delete(self, one: PlannedWorkload) -> None: ...

    def lags(self) -> list[tuple[float, float]]:
        """When, and how late stages were seen then, in seconds: measured again and again while it watched."""
        ...

    def measured(self, submissions: Mapping[int, Submission], stamps: list[Stamp], end_s: float) -> MeasuredScale:
        """How all of it was measured, and how the place was meanwhile."""
        ...

    async def clean(self, phase: str = "") -> str: ...
