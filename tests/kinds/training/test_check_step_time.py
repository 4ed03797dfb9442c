"""Warm-up found from the data, step times by source, steps counted."""

import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.checks.metrics import LEAST_STEPS, warmup
from seatrial.job import ObservedStep, Outcome
from seatrial.kinds.training.steps import check_steps, from_lines, from_log, times_broken
from seatrial.readers.profile import Profile, from_profile, profiles
from seatrial.suite.values import parse_requirement
from trained import train, values


def noisy(count: int, level: float = 1.0, cv: float = 0.0126, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [level * (1 + cv * draw.gauss(0, 1)) for _ in range(count)]


@pytest.mark.parametrize("ratio", [9, 35, 103])
@pytest.mark.parametrize("count", [5, 8, 15, 60, 1000])
def test_a_first_step_that_compiles_is_left_out_and_the_median_is_the_steady_one(ratio: float, count: int) -> None:
    steps = [float(ratio), 1.6, *noisy(count - 2)]
    left_out = warmup(steps)
    assert 2 <= left_out <= 3
    assert median(steps[left_out:]) == pytest.approx(1.0, rel=0.02)


def ranked(name: str, *lines: tuple[int, float, float]) -> dict[str, object]:
    """A note of values of several ranks in one log: rank, value and when it came."""
    note = values(name, [value for _, value, _ in lines])
    return {**note, "ranks": [rank for rank, _, _ in lines], "at": [at_s for _, _, at_s in lines]}


def test_ranks_in_one_log_make_the_same_steps_and_each_has_its_own_time() -> None:
    lines = [(rank, step, step + 0.9 * rank) for step in range(12) for rank in (0, 1)]
    for ordered in (lines, sorted(lines), sorted(lines, key=lambda line: line[2])):
        observed = train(ranked("step", *ordered))
        (finding,) = check_steps(observed, "step", parse_requirement("12"), None)
        assert finding.message.startswith("12 steps")
        taken = from_lines(observed)
        assert taken is not None
        assert taken.seconds == pytest.approx(1.0)


def test_the_slowest_rank_is_the_step_time() -> None:
    lines = [(rank, 1.0 + rank, float(step)) for step in range(12) for rank in (0, 1)]
    taken = from_log(train(ranked("step_time", *lines)))
    assert taken is not None
    assert (taken.seconds, taken.source) == (2.0, "the log of rank 1")


def test_ranks_that_do_not_name_themselves_make_no_step_shorter() -> None:
    numbers = [step for step in range(12) for _ in range(2)]
    note = {**values("step", numbers), "at": [step + 0.9 * (place % 2) for place, step in enumerate(numbers)]}
    taken = from_lines(train(note))
    assert taken is not None
    assert taken.seconds == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("numbers", "made"),
    [([1, 2, 3], 3), ([1, 1, 2, 2], 2), ([1, 2, 3, 1, 2, 3], 6), ([0, 1, 2, 1, 2, 3], 4), ([], 0), ([5, 6, 1, 2], 4)],
)
def test_steps_that_come_again_count_once_unless_the_count_began_anew(numbers: list[int], made: int) -> None:
    (finding,) = check_steps(train(values("step", numbers)), "step", parse_requirement(str(made)), None)
    assert finding.message.startswith(f"{made} steps")


def test_a_long_warmup_is_found_whole() -> None:
    steps = [35.0, *(1 + 0.5 * 0.85**n for n in range(20)), *noisy(80, seed=3)]
    assert 9 <= warmup(steps) <= 21


def test_two_are_left_out_in_any_case_where_three_stay() -> None:
    assert [warmup([1.0] * count) for count in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


def test_of_three_steps_the_first_goes_only_when_it_compiled() -> None:
    assert warmup([35.0, 1.0, 1.1]) == 1
    assert warmup([1.2, 1.0, 1.1]) == 0


def test_a_million_steps_are_no_trouble() -> None:
    assert warmup([35.0, 2.0, *noisy(1_000_000)]) == 2


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), max_size=60))
def test_enough_values_always_stay(steps: list[float]) -> None:
    left_out = warmup(steps)
    assert 0 <= left_out <= len(steps) / 2
    assert len(steps) - left_out >= min(len(steps), LEAST_STEPS) - (len(steps) == LEAST_STEPS)


def test_the_slowest_host_counts_for_all() -> None:
    seen = train(values("step_time", [900, 20, 20, 20, 20, 20]), values("step_time", [900, 30, 30, 30, 30, 30], host=1))
    taken = from_log(seen, "ms")
    assert taken is not None
    assert taken.seconds == pytest.approx(0.030)
    assert (taken.count, taken.warmup, taken.source) == (4, 2, "the log of host 1")


def test_without_any_word_of_it_the_lines_of_steps_tell_by_when_they_came() -> None:
    note = values("step", [0, 10, 20, 30, 40, 50], every_s=2.0)
    taken = from_lines(train(note))
    assert taken is not None
    assert taken.seconds == pytest.approx(0.2)
    note["at"] = [2.0, 2.0, 2.0, 2.0, 2.0, 9.0]  # all at once: a buffer was in between
    assert from_lines(train(note)) is None


def read(*files: tuple[str, dict[str, Any]]) -> list[tuple[str, Profile]]:
    entries = [{"path": path, "profile": profile} for path, profile in files]
    return profiles(ObservedStep("files", "read", result={"p": {"files": entries}}), "p")


def test_a_profile_is_its_median_and_says_which_events() -> None:
    steps = [{"number": n, "seconds": s} for n, s in enumerate([0.02, 0.03, 0.02, float("nan"), 0.0])]
    profile = {"steps": steps, "step_source": "XLA Modules on /device:TPU:0"}
    taken = from_profile(read(("a.xplane.pb", profile), ("b.xplane.pb", {"steps": [{"seconds": 0.01}]})))
    assert taken is not None
    assert (taken.seconds, taken.count) == (0.02, 3)
    assert taken.source == "XLA Modules on /device:TPU:0 in a.xplane.pb"
    assert from_profile(read(("a", {"steps": "?"}))) is None


def test_steps_are_counted_on_the_host_that_made_fewest() -> None:
    seen = train(values("step", list(range(20))), values("step", list(range(12)), host=1))
    found = check_steps(seen, "", parse_requirement(">=15"), parse_requirement(">=11"))
    assert [(str(one.verdict), one.message) for one in found] == [
        ("failed", "12 steps on host 1 (expected >=15)"),
        ("passed", "last step 11 on host 1 (expected >=11)"),
    ]


def test_a_host_that_tells_of_no_step_made_none() -> None:
    seen = train(values("step", list(range(20))))
    count, last = parse_requirement(">=15"), parse_requirement(">=15")
    assert [one.message for one in check_steps(seen, "", count, last, hosts=2)] == [
        "0 steps on host 1 (expected >=15)",
        "no steps on host 1 (expected >=15)",
    ]
    assert {str(one.verdict) for one in check_steps(seen, "", count, last, hosts=0)} == {"passed"}  # any will do


def test_the_highest_step_is_each_hosts_own_and_a_number() -> None:
    seen = train(values("step", [0, 5, 90, "inf"]), values("step", [0, 70, 3], host=1))
    (finding,) = check_steps(seen, "", None, parse_requirement(">=80"), hosts=2)
    assert finding.message == "last step 70 on host 1 (expected >=80)"


def test_a_time_that_is_no_number_is_not_left_out_but_for_the_first_steps() -> None:
    assert not times_broken(train(values("step_time", ["nan", 1.0, 1.0, 1.0])))
    assert times_broken(train(values("step_time", [1.0, 1.0, 1.0, "nan"])))
    assert times_broken(train(values("step_time", [1.0, 1.0, 1.0, "?"])))


def test_a_step_that_is_told_twice_is_one_and_an_epoch_may_count_anew() -> None:
    (finding,) = check_steps(train(values("step", [0, 0, 1, 1, 2, 0, 1, 2])), "", parse_requirement(6), None)
    assert str(finding.verdict) == "passed"


def test_steps_of_a_job_that_was_ended_are_not_known() -> None:
    (finding,) = check_steps(train(outcome=Outcome.STALL, code=None), "", parse_requirement(">=15"), None)
    assert str(finding.verdict) == "skipped"
    assert check_steps(train(), "", None, None) == []
