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
SINGLE, GANG = WorkloadClass("single", (), weight=8), WorkloadClass("gang", (), pods=8, weight=2)


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
    more = SubmissionPlan(work(fill=ExtraWorkloads(10), background=ExtraWorkloads(5, GANG)))
    more.churn(Churn(10.0, rate=2.0), {})
    assert [one.of.name for one in more.measured] == [one.of.name for one in plain.measured]
    assert {one.of.name for one in more.background} == {"gang"}
    numbers = [one.number for one in (*more.background, *more.fill, *more.measured, *more.later)]
    assert numbers == list(range(5 + 10 + 1000 + 20)), "each number once"


def test_a_template_says_its_own_namespace_unless_the_trial_does() -> None:
    one = WorkloadClass("one", ({"metadata": {"namespace": "runai-a"}},))
    assert {planned.namespace for planned in SubmissionPlan(work(classes=(one, GANG), count=50)).measured} == {
        "runai-a",
        "",
    }
    assert {planned.namespace for planned in SubmissionPlan(work(classes=(one,), namespaces=("b",))).samples()} == {"b"}


def test_a_search_has_a_sample_of_everything_that_its_rounds_make() -> None:
    plan = SubmissionPlan(work(namespaces=("a", "b"), find=Find(())))
    assert len(plan.all) == 1000, "the first round is there before it begins, for the preflight"
    rounds = [*plan.round(0, 1), *plan.round(1, 3)]
    assert [one.number for one in rounds] == list(range(4000))
    assert {(one.of.name, one.namespace) for one in rounds} == {(one.of.name, one.namespace) for one in plan.samples()}
    assert {one.phase for one in rounds} == {"round-0", "round-1"}


def churned(churn: Churn, ages: dict[int, float] | None = None, **fields: object) -> list[tuple[float, int, int]]:
    """When which workload is replaced by which."""
    plan = SubmissionPlan(work(**{"count": 4, **fields}))
    found = plan.churn(churn, ages or {})
    pairs = [(at_s, old.number, new.number) for (at_s, old), new in zip(found, plan.later, strict=True)]
    same = [(old.of, old.namespace) == (new.of, new.namespace) for (_, old), new in zip(found, plan.later, strict=True)]
    assert all(same), "of the same class, in the same namespace"
    return pairs


def test_churn_at_a_rate_deletes_the_oldest_that_is_there() -> None:
    found = churned(Churn(6.0, rate=1.0))
    assert found == [(0.0, 0, 4), (1.0, 1, 5), (2.0, 2, 6), (3.0, 3, 7), (4.0, 4, 8), (5.0, 5, 9)]
    assert len(churned(Churn(0.9, rate=10.0))) == 9


def test_churn_of_a_share_replaces_it_every_time() -> None:
    assert churned(Churn(25.0, every_s=10.0, share=0.5)) == [
        (0.0, 0, 4), (0.0, 1, 5), (10.0, 2, 6), (10.0, 3, 7), (20.0, 4, 8), (20.0, 5, 9),
    ]  # fmt: skip
    assert [old for _, old, _ in churned(Churn(10.0, every_s=10.0, share=0.01))] == [0], "at least one"


def test_churn_by_namespace_replaces_all_of_one_after_the_other() -> None:
    found = churned(Churn(25.0, every_s=10.0, namespaces=1), namespaces=("a", "b"))
    assert found == [(0.0, 0, 4), (0.0, 2, 5), (10.0, 1, 6), (10.0, 3, 7), (20.0, 4, 8), (20.0, 5, 9)]
    assert len(churned(Churn(10.0, every_s=10.0, namespaces=2), namespaces=("a", "b", "c"))) == 3
    assert len(churned(Churn(10.0, every_s=10.0, namespaces=9), namespaces=("a", "b"))) == 4, "no more than there are"


def test_churn_by_age_replaces_each_at_that_age() -> None:
    found = churned(Churn(25.0, age_s=10.0), {0: 3.0, 1: 12.0, 2: 0.0, 3: 9.0})
    assert found == [
        (0.0, 1, 4), (1.0, 3, 5), (7.0, 0, 6), (10.0, 2, 7), (10.0, 4, 8), (11.0, 5, 9), (17.0, 6, 10), (20.0, 7, 11),
        (20.0, 8, 12), (21.0, 9, 13),
    ]  # fmt: skip


def test_what_was_added_during_a_trial_is_known_from_its_records() -> None:
    plan = SubmissionPlan(work(count=2))
    of = SINGLE.name
    given = [Submission(1, 0.0, of=of), Submission(5, 0.0, of=of, phase="churn"), Submission(6, 0.0, of="other")]
    plan.adopt([*given, Submission(7, 0.0, of=of, phase="round-1")])
    assert [one.number for one in plan.later] == [5]
    assert plan.pods()[5] == 1


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
    place, plan = Counting(), SubmissionPlan(work(count=4))
    sender, submitted = submitter(place, tmp_path)
    churn = plan.churn(Churn(0.006, rate=1000.0), {})
    times, replaced = [at_s for at_s, _ in churn], [one for _, one in churn]
    await sender.open_loop(plan.later, times, time.monotonic(), replaced)
    assert place.deleted == [0, 1, 2, 3, 4, 5]
    assert sorted(submitted.all) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("chosen", [1, 2])
def test_of_two_classes_of_one_weight_both_come(chosen: int) -> None:
    classes = (WorkloadClass("a", ()), WorkloadClass("b", ()))[:chosen]
    assert len({one.of.name for one in SubmissionPlan(work(classes=classes)).measured}) == chosen
