"""Hand edits of a file of bounds that would let it judge wrongly, or not at all: each is told at its place."""

from pathlib import Path

import pytest

from seatrial.baseline import Baselines, read_baselines, read_for_trials
from seatrial.baseline.models import CAP, FLOOR
from seatrial.baseline.read import agreed_better
from seatrial.plugins import models
from seatrial.stats import bounds as stats
from seatrial.suite import SuiteError, load

THEIR = """\
benchmarks:
  llama:
    name: Llama
    step_time_lower_bound: 2.6
    step_time_upper_bound: 2.8
    confidence_interval: 0.1
    average: 2.7
    sample_size: 427
"""
OPEN = "`step_time_upper_bound` is {}, so slow runs pass"
NEVER = "`step_time_lower_bound` is {}, so no run is ever `faster`"


def read(tmp_path: Path, text: str) -> Baselines:
    path = tmp_path / "bounds.yaml"
    path.write_text(text)
    return read_baselines(path)


def warnings(tmp_path: Path, text: str) -> list[str]:
    return [one.removeprefix(f"{tmp_path}/bounds.yaml:") for one in read(tmp_path, text).warnings]


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, text)
    return [f"{one.where.removeprefix(f'{tmp_path}/bounds.yaml:')}: {one.message}" for one in caught.value.problems]


def without(*keys: str) -> str:
    return "".join(line for line in THEIR.splitlines(keepends=True) if line.strip().split(":")[0] not in keys)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (without("step_time_upper_bound"), [f"2:3: {OPEN.format('missing')}"]),
        (without("step_time_lower_bound"), [f"2:3: {NEVER.format('missing')}"]),
        (
            without("step_time_lower_bound", "step_time_upper_bound"),
            [f"2:3: {NEVER.format('missing')}", f"2:3: {OPEN.format('missing')}"],
        ),
        (
            without("step_time_lower_bound", "step_time_upper_bound", "confidence_interval"),
            [f"2:3: {NEVER.format('missing')}", f"2:3: {OPEN.format('missing')}"],
        ),
        (THEIR.replace("2.8", "null"), [f"5:28: {OPEN.format('empty')}"]),
        (THEIR.replace("2.6", ""), [f"4:27: {NEVER.format('empty')}"]),
    ],
)
def test_a_bound_that_torchprimes_file_lost_is_a_warning(tmp_path: Path, text: str, told: list[str]) -> None:
    assert warnings(tmp_path, text) == told


@pytest.mark.parametrize(
    "text",
    [
        THEIR,
        "benchmarks: {new: {name: New}}",  # nothing was measured yet
        without("step_time_upper_bound") + "    disabled: no TPUs\n",
        without("step_time_upper_bound", "step_time_lower_bound") + "    seatrial: {state: recording, why: 3 runs}\n",
    ],
)
def test_an_entry_of_theirs_that_is_meant_to_be_open_is_none(tmp_path: Path, text: str) -> None:
    assert warnings(tmp_path, text) == []


def test_a_tolerance_below_zero_is_an_error(tmp_path: Path) -> None:
    text = f"{THEIR}    target_loss: 0.4\n    loss_tolerance: -1\n"
    told = "10:21: invalid `loss_tolerance`: expected a distance of 0 or more, got -1"
    assert told in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("floor: 5", "from 0 to less than 1 (0.015 is 1.5 %), got 5"),
        ("floor: -0.1", "from 0 to less than 1 (0.015 is 1.5 %), got -0.1"),
        ("floor: 5, cap: 20", "from 0 to less than 1 (0.015 is 1.5 %), got 5"),
        ("cap: 20", "expected a share of the center, at most 1 (0.2 is 20 %), got 20"),
        ("floor: 0.3, cap: 0.25", "`floor` 0.3 is above `cap` 0.25; lower it, or raise `cap`"),
        ("floor: 0.3", "`floor` 0.3 is above the default cap of 0.2; lower it, or raise `cap`"),
        ("cap: 0.01", "`cap` 0.01 is below the default floor of 0.015; raise it, or set `floor`"),
        ("false_alarm: 2", "invalid `false_alarm`: expected a share of all good runs, less than 1, got 2"),
    ],
)
def test_shares_that_no_bound_could_be_made_with_are_errors_in_both_forms(tmp_path: Path, keys: str, told: str) -> None:
    name = keys.split(":")[0]
    ours = f"baselines: {{a: {{x: {{lower: 2.6, upper: 2.8, {keys}}}}}}}"
    (problem,) = problems(tmp_path, ours)
    assert told in problem
    assert problem.startswith(f"1:{ours.index(name) + len(name) + 3}: ")
    (problem,) = problems(tmp_path, f"{THEIR}    seatrial: {{{keys}}}\n")
    assert told in problem
    assert problem.startswith(f"9:{16 + len(name) + 2}: ")


@pytest.mark.parametrize("keys", ["floor: 0", "floor: 0.2", "cap: 0.015", "cap: 1", "floor: 0.99, cap: 1"])
def test_shares_at_their_limits_are_in_order(tmp_path: Path, keys: str) -> None:
    assert warnings(tmp_path, f"baselines: {{a: {{x: {{lower: 2.68, upper: 2.72, {keys}}}}}}}") == []


def test_bounds_that_were_forced_wider_than_their_center_can_say_so(tmp_path: Path) -> None:
    forced = "baselines: {a: {x: {lower: -0.02, upper: 0.04, center: 0.01, floor: 3, cap: 3}}}"
    assert warnings(tmp_path, forced) == []


def test_the_defaults_are_those_that_bounds_are_made_with() -> None:
    assert (FLOOR, CAP) == (stats.FLOOR, stats.CAP)


SUITE = """\
trials:
  a: {{kind: training, command: echo, baseline: bounds.yaml, metrics: {{x: {{log: 'x (.)', better: {}}}}}}}
  b: {{kind: training, command: echo, baseline: bounds.yaml, metrics: {{x: {{log: 'x (.)', better: {}}}}}}}
"""


def loaded(tmp_path: Path, first: str, second: str, keys: str) -> Baselines:
    (tmp_path / "bounds.yaml").write_text(f"baselines: {{a: {{x: {{lower: 1.8, upper: 2, {keys}}}}}}}")
    (tmp_path / "suite.yaml").write_text(SUITE.format(first, second))
    found = load(tmp_path / "suite.yaml", *models(), read_for_trials).baselines["bounds.yaml"]
    assert isinstance(found, Baselines)
    return found


def test_an_entry_that_contradicts_what_its_trials_call_better_is_a_warning_and_theirs_counts(tmp_path: Path) -> None:
    found = loaded(tmp_path, "lower", "lower", "better: higher")
    assert [one.removeprefix(f"{tmp_path}/") for one in found.warnings] == [
        "bounds.yaml:1:51: `better: higher` is ignored: the suite has `better: lower`"
    ]
    assert found.bounds("a")[0].better == "lower"
    silent = loaded(tmp_path, "higher", "higher", "unit: s")
    assert (silent.warnings, silent.bounds("a")[0].better) == ((), "higher")


def test_trials_that_do_not_agree_leave_the_word_to_the_entry(tmp_path: Path) -> None:
    found = loaded(tmp_path, "lower", "higher", "better: higher")
    assert (found.warnings, found.bounds("a")[0].better) == ((), "higher")
    assert agreed_better([object()]) == {}
