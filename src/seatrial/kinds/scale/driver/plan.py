"""Plans all workloads: class, namespace and phase of each. Pure; deterministic by seed."""

import itertools
import math
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from operator import itemgetter
from typing import NamedTuple, Protocol

from seatrial.http.http1 import RequestAttempt
from seatrial.kinds.scale.work import Churn, ExtraWorkloads, MeasuredScale, ScaleWork, Stamp, Submission, WorkloadClass

BACKGROUND, MEASURED, CHURN = "background", "measured", "churn"  # phases


class PlannedWorkload(NamedTuple):
    number: int
    phase: str
    of: WorkloadClass
    namespace: str  # empty: the target's own


class SubmissionPlan:
    """All workloads of an attempt. Numbers are unique, in the order of the phases."""

    def __init__(self, work: ScaleWork) -> None:
        self._work = work
        self._numbers = itertools.count()
        self.all: dict[int, PlannedWorkload] = {}
        self.background = self._plan_extra(BACKGROUND, work.background)
        self.fill = self._plan_extra("fill", work.fill)
        self.measured = self._make(
            "round-0" if work.find else MEASURED, 0 if work.observe else work.count, work.classes
        )
        self.later: list[PlannedWorkload] = []  # added during the trial: by churn, or created by others

    @property
    def classes(self) -> list[WorkloadClass]:
        extra = [one.of for one in (self._work.background, self._work.fill) if one and one.of]
        return [*self._work.classes, *extra]

    def round(self, number: int, times: int) -> list[PlannedWorkload]:
        """Workloads for one rate of a search: `times` the count."""
        return self._make(f"round-{number}", self._work.count * times, self._work.classes) if number else self.measured

    def samples(self) -> list[PlannedWorkload]:
        """One workload of each class in each of its namespaces."""
        return [PlannedWorkload(0, MEASURED, of, space) for of in self.classes for space in self._namespaces(of)]

    def _namespaces(self, of: WorkloadClass) -> tuple[str, ...]:
        """The trial's namespaces, else the template's."""
        spaces = (one["metadata"]["namespace"] for one in of.manifests if "namespace" in (one.get("metadata") or {}))
        return self._work.namespaces or (next(spaces, ""),)

    def churn(self, churn: Churn, ages: Mapping[int, float]) -> list[tuple[float, PlannedWorkload]]:
        """When churn deletes which workload, oldest first. Plans one of the same class and namespace for each. `ages`
        are in seconds, when churn begins."""
        born = ((-ages.get(one.number, 0.0), one) for one in self.measured)
        there = deque(sorted(born, key=itemgetter(0)))
        spaces = itertools.cycle(dict.fromkeys(one.namespace for one in self.measured))
        step_s = churn.every_s or (1 / churn.rate if churn.rate else churn.seconds)
        turns = (turn * step_s for turn in range(math.ceil(churn.seconds / step_s - 1e-9)))
        found: list[tuple[float, PlannedWorkload]] = []
        while True:
            at_s = max(there[0][0] + churn.age_s, 0.0) if churn.age_s else next(turns, math.inf)
            if at_s >= churn.seconds:
                return found
            if churn.namespaces:
                those = {*itertools.islice(spaces, churn.namespaces)}
                chosen = [one for _, one in there if one.namespace in those]
                there = deque(one for one in there if one[1].namespace not in those)
            else:
                chosen = [there.popleft()[1] for _ in range(max(1, round(churn.share * len(there))))]
            for one in chosen:
                new = PlannedWorkload(next(self._numbers), CHURN, one.of, one.namespace)
                self._add_later(new)
                there.append((at_s, new))
                found.append((at_s, one))

    def adopt(self, submissions: Iterable[Submission]) -> None:
        """Adds workloads that were not planned before the trial."""
        classes = {of.name: of for of in self.classes}
        for one in submissions:
            if one.number not in self.all and one.phase in (MEASURED, CHURN) and one.of in classes:
                self._add_later(PlannedWorkload(one.number, one.phase, classes[one.of], one.namespace))

    def _add_later(self, one: PlannedWorkload) -> None:
        self.later.append(one)
        self.all[one.number] = one

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
        among = {of.name: self._namespaces(of) for of in classes}
        made = [
            PlannedWorkload(next(self._numbers), phase, of, among[of.name][at % len(among[of.name])])
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
