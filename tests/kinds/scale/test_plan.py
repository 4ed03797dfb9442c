"""Which workloads a driver is to make, and in which order its loops send them: by a seed, without a cluster."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import plugins
from seatrial.http.http1 import RequestAttempt
from seatrial.job import convert
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.driver.plan import PlannedWorkload, SubmissionPlan
from seatrial.kinds.scale.driver.submit import SubmissionRecords, Submitter
from seatrial.kinds.scale.work import Churn, ExtraWorkloads, Find, ScaleWork, Submission, WorkloadClass
from seatrial.kubernetes import KubernetesError
from seatrial.plan import expand
from seatrial.suite import load

EXAMPLES = Path(__file__).parents[3] / "examples/scale"
SINGLE, GANG = WorkloadClass("single", {}, weight=8), WorkloadClass("gang", {}, pods=8, weight=2)


def work(**fields: object) -> ScaleWork:
    given = {"classes": (SINGLE, GANG), "count": 1000, "arrivals": Arrivals("rate", 1.0), **fields}
    return ScaleWork("run", "69b56f04", 1, "p", **given)  # type: ignore[arg-type]


def test_a_mix_is_by_weight_and_the_same_for_a_seed() -> None:
    plan = SubmissionPlan(work(seed=3))
    found = Counter(one.of.name for one in plan.measured)
    assert 700 < found["single"] < 900, "8 of 10"
    assert found["single"] + found["gang"] == 1000
    assert [one.of.name for one in SubmissionPlan(work(seed=3)).measured] == [one.of.name for one in plan.measured]
    assert [one.of.name for one in SubmissionPlan(work(seed=4)).measured] != [one.of.name for one in plan.measured]
    assert {plan.pods()[one.number] for one in plan.measured if one.of is GANG} == {8}


@pytest.mark.parametrize("file", ["suite.yaml", "local.yaml"])
def test_the_example_means_what_it_says(file: str) -> None:
    """A count that its comments tell, and the bound that goes with it, are those of its seed."""
    kind, made = plugins.kinds()["scale"], {}
    for cell in expand(load(EXAMPLES / file, *plugins.models())).cells:
        (part,) = kind.parts(replace(cell, gathered=kind.gather(cell)))
        made[cell.trial] = SubmissionPlan(convert(part.job.steps[0].args["work"], ScaleWork))
    assert list(made) == ["single-gpu", "mix", "burst", "overfull"]
    assert {made["mix"].pods()[one.number] for one in made["mix"].measured if one.of.name == "gang"} == {8}
    if file == "suite.yaml":
        assert len(made["single-gpu"].measured) == 2000
        assert Counter(one.of.name for one in made["overfull"].measured) == {"fits": 40, "too-large": 10}


def test_namespaces_come_in_turn_and_other_phases_change_no_mix() -> None:
    plain = SubmissionPlan(work(namespaces=("a", "b", "c")))
    assert Counter(one.namespace for one in plain.measured) == {"a": 334, "b": 333, "c": 333}
    more = SubmissionPlan(work(fill=ExtraWorkloads(10), background=ExtraWorkloads(5, GANG), churn=Churn(2.0, 10.0)))
    assert [one.of.name for one in more.measured] == [one.of.name for one in plain.measured]
    assert {one.of.name for one in more.background} == {"gang"}
    numbers = [one.number for one in (*more.background, *more.fill, *more.measured, *more.churned)]
    assert numbers == list(range(5 + 10 + 1000 + 20)), "each number once"


def test_a_template_says_its_own_namespace_unless_the_trial_does() -> None:
    one = WorkloadClass("one", {"metadata": {"namespace": "runai-a"}})
    assert {planned.namespace for planned in SubmissionPlan(work(classes=(one, GANG), count=50)).measured} == {
        "runai-a",
        "",
    }
    assert {planned.namespace for planned in SubmissionPlan(work(classes=(one,), namespaces=("b",))).samples()} == {"b"}


def test_a_search_has_a_sample_of_everything_that_its_rounds_make() -> None:
    plan = SubmissionPlan(work(namespaces=("a", "b"), find=Find(())))
    assert plan.measured == []
    rounds = [*plan.round(0), *plan.round(1)]
    assert [one.number for one in rounds] == list(range(2000))
    assert {(one.of.name, one.namespace) for one in rounds} == {(one.of.name, one.namespace) for one in plan.samples()}
    assert {one.phase for one in rounds} == {"round-0", "round-1"}


def test_churn_deletes_the_oldest_that_is_there() -> None:
    plan = SubmissionPlan(work(count=3, churn=Churn(1.0, 5.0)))
    pairs = [(old.number, new.number) for old, new in zip(plan.replaced(), plan.churned, strict=True)]
    assert pairs == [(0, 3), (1, 4), (2, 5), (3, 6), (4, 7)]


class Counting:
    """A place that takes note: how many were being made at once, and in which order."""

    def __init__(self, refuse: int | None = None) -> None:
        self.begun: list[int] = []
        self.deleted: list[int] = []
        self.now = self.most = 0
        self._refuse = refuse

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None:
        self.begun.append(one.number)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001 if one.number % 3 else 0.003)
        self.now -= 1
        if one.number == self._refuse:
            attempts.append(RequestAttempt(0.0, 0.0, answered_s=1.0, status=403))
            raise KubernetesError("over quota")
        attempts.append(RequestAttempt(0.0, 0.0, answered_s=time.monotonic(), status=201))

    async def delete(self, one: PlannedWorkload) -> None:
        self.deleted.append(one.number)


def submitter(
    place: Counting, folder: Path, stopping: asyncio.Event | None = None
) -> tuple[Submitter, SubmissionRecords[Submission]]:
    made = Submitter(place, folder, stopping or asyncio.Event())  # type: ignore[arg-type]
    return made, made.submitted


async def test_a_send_that_could_not_connect_counts_from_when_it_was_tried(tmp_path: Path) -> None:
    class Down(Counting):
        async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None:
            attempts.append(RequestAttempt(5.0, problem="connection refused"))
            if one.number == 0:
                raise KubernetesError("connection refused")
            attempts.append(RequestAttempt(9.0, 9.1, answered_s=9.2, status=201))

    sender, submitted = submitter(Down(), tmp_path)
    await sender.waves(SubmissionPlan(work(count=2)).measured, 2, 0.0)
    assert [submitted.all[number].sent_s for number in (0, 1)] == [None, 5.0]


async def test_waves_send_the_remainder_too(tmp_path: Path) -> None:
    place, plan = Counting(), SubmissionPlan(work(count=10))
    sender, submitted = submitter(place, tmp_path)
    await sender.waves(plan.measured, 4, 0.001)
    assert place.begun == list(range(10))
    assert place.most == 4
    assert len(submitted.all) == 10


async def test_a_closed_loop_has_at_most_so_many_in_flight_and_one_that_is_refused_is_done(tmp_path: Path) -> None:
    place, plan, there = Counting(refuse=5), SubmissionPlan(work(count=12)), set[int]()
    sender, submitted = submitter(place, tmp_path)

    def done() -> set[int]:
        made = {number for number, one in submitted.all.items() if one.acknowledged_s is not None}
        assert len({*place.begun} - there - {5}) <= 3
        there.update(made)
        return there

    await sender.closed_loop(plan.measured, 3, done)
    assert sorted(place.begun) == list(range(12))
    assert submitted.all[5].problem == "over quota"
    assert submitted.all[5].refusals == (403,)


async def test_a_loop_that_was_cut_makes_only_what_is_missing(tmp_path: Path) -> None:
    plan, stopping = SubmissionPlan(work(count=20)), asyncio.Event()
    first = Counting()
    sender, submitted = submitter(first, tmp_path, stopping)
    stopping.set()
    await sender.waves(plan.measured, 6, 0.001)
    submitted.close()
    assert len(first.begun) == 6
    second = Counting()
    sender, _ = submitter(second, tmp_path)
    await sender.open_loop(plan.measured, [0.0] * 20, time.monotonic())
    assert sorted(second.begun) == list(range(6, 20))


async def test_churn_deletes_and_makes_in_pairs(tmp_path: Path) -> None:
    place, plan = Counting(), SubmissionPlan(work(count=4, churn=Churn(1000.0, 0.006)))
    sender, submitted = submitter(place, tmp_path)
    times = [at / 1000 for at in range(6)]
    await sender.open_loop(plan.churned, times, time.monotonic(), plan.replaced())
    assert place.deleted == [0, 1, 2, 3, 4, 5]
    assert sorted(submitted.all) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("chosen", [1, 2])
def test_of_two_classes_of_one_weight_both_come(chosen: int) -> None:
    classes = (WorkloadClass("a", {}), WorkloadClass("b", {}))[:chosen]
    assert len({one.of.name for one in SubmissionPlan(work(classes=classes)).measured}) == chosen
