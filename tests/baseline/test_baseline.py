"""New bounds from a real history: which runs count, what is refused, and what a change of a file does to it."""

import math
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from seatrial.baseline import (
    OURS,
    THEIRS,
    BaselineEntry,
    Baselines,
    adjust,
    describe,
    imported,
    new_bounds,
    past_runs,
    read_baselines,
    selection,
)
from seatrial.baseline import edit as file_change
from seatrial.baseline.edit import Refused, Updated, Why, edited
from seatrial.baseline.models import relative_half_width
from seatrial.baseline.selection import MetricHistory, SelectedFile
from seatrial.job import (
    AttemptResult,
    BoundState,
    CellResult,
    Exit,
    Outcome,
    Place,
    RunResults,
    Settings,
    Stage,
    StageTime,
    Verdict,
)
from seatrial.record.history import History, open_history
from seatrial.suite import SuiteError

DAY_S = 86400.0
START_S = 1_790_812_800.0  # 1 October 2026
WHY = Why("because", START_S + 100 * DAY_S)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return open_history(tmp_path / "history.db")


def result(
    run: str, day: float, value: float, verdict: Verdict = Verdict.PASSED, fingerprint: str = "aaaa", **metric: str
) -> RunResults:
    metric = {"value": value, "unit": "s", "better": "lower", **metric}
    stage = StageTime(Stage.STARTED, START_S + day * DAY_S, "agent")
    attempt = AttemptResult(1, Place("here", "small", "node"), [stage], Exit(Outcome.EXITED, 0), verdict)
    cell = CellResult(
        *("train", "01234567", {}, verdict),
        trial="train",
        attempts=[attempt],
        metrics={"step_time": metric, "loss": 3.0},
        benchmark="train",
        fingerprint=fingerprint,
    )
    return RunResults(1, run, "suite", verdict, [cell], started_s=START_S + day * DAY_S)


def fill(history: History, prefix: str, first: int, count: int, level: float, **options: object) -> None:
    chance = random.Random(f"{prefix}{first}")
    runs = [
        result(f"{prefix}{first + n}", first + n, chance.gauss(level, level * 0.004), **options)  # type: ignore[arg-type]
        for n in range(count)
    ]
    history.add(*runs)


def chosen(history: History, since_s: float | None = None) -> MetricHistory:
    (found,) = selection.newest_histories(history, "train", None, since_s)
    return found


def entry_of(made: Updated, form: str = OURS, text: str = "") -> BaselineEntry:
    """The entry as it is after it was written and read again."""
    return _read(edited(text, "f", form, [made.edit]))


def _read(text: str) -> BaselineEntry:
    from seatrial.baseline.read import BASELINE_LIMITS, baselines_of
    from seatrial.suite.yaml.source import Source

    return baselines_of(Source("f", text, limits=BASELINE_LIMITS)).entries["train"]["step_time"]


def test_bounds_come_from_the_runs_and_say_so(history: History) -> None:
    fill(history, "r", 0, 20, 2.44)
    entry = entry_of(new_bounds.update(chosen(history), None, WHY, "some CPU"))
    bound = entry.bound
    assert bound.lower is not None
    assert bound.upper is not None
    assert bound.lower < 2.44 < bound.upper
    assert (bound.state, bound.runs, bound.unit, bound.better) == (BoundState.USABLE, 20, "s", "lower")
    assert (bound.since_s, bound.false_alarm, bound.fingerprint) == (START_S, 0.005, "aaaa")
    assert (entry.keys.left_out, entry.keys.hardware) == ({}, "some CPU")
    assert entry.keys.reasons == (
        {"at": "2027-01-09T00:00:00Z", "what": "updated from 20 of 20 runs", "why": "because"},
    )


def test_only_metrics_that_say_what_is_better_get_bounds(history: History) -> None:
    fill(history, "r", 0, 6, 2.44)
    assert [one.series.metric for one in selection.newest_histories(history, "train", None)] == ["step_time"]
    (loss,) = selection.newest_histories(history, "train", "loss")
    with pytest.raises(Refused, match="cannot have bounds"):
        new_bounds.update(loss, None, WHY)


def test_failed_runs_and_outliers_are_left_out_with_their_reasons(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    history.add(result("broken", 31, 0.1, Verdict.FAILED), result("odd", 32.0, 9.0))
    fill(history, "s", 33, 5, 2.44)
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    assert entry.keys.left_out == {"the run failed": 1, "outlier": 1}
    assert entry.bound.runs == 35


def test_runs_under_other_conditions_are_never_mixed_in_and_are_counted(history: History) -> None:
    fill(history, "old", 0, 30, 4.0, fingerprint="bbbb")
    fill(history, "new", 40, 8, 2.44)
    made = new_bounds.update(chosen(history), None, WHY)
    assert "30 runs under other conditions left out" in made.notes[0]
    entry = entry_of(made)
    assert (entry.bound.runs, entry.bound.fingerprint) == (8, "aaaa")


def test_a_window_leaves_older_runs_out(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    found = chosen(history, START_S + 20 * DAY_S)
    assert (len(found.points), found.left) == (10, "20 runs before the window left out")
    with pytest.raises(Refused, match="no runs in this period"):
        new_bounds.update(chosen(history, START_S + 99 * DAY_S), None, WHY)


def test_too_few_runs_only_record_and_never_replace_bounds_in_use(history: History) -> None:
    fill(history, "r", 0, 4, 2.44)
    made = new_bounds.update(chosen(history), None, WHY)
    entry = entry_of(made)
    assert (entry.bound.state, entry.bound.upper) == (BoundState.RECORDING, None)
    assert "4 of 5 runs" in entry.bound.why
    assert made.notes[0].startswith("recording, not used for checks yet")
    used = _read("baselines: {train: {step_time: {lower: 1, upper: 3}}}")
    with pytest.raises(Refused, match="bounds unchanged"):
        new_bounds.update(chosen(history), used, WHY)
    fill(history, "s", 5, 10, 2.44)
    later = entry_of(new_bounds.update(chosen(history), entry, WHY), text=edited("", "f", OURS, [made.edit]))
    assert (later.bound.state, later.bound.why, len(later.keys.reasons)) == (BoundState.USABLE, "", 2)


def test_too_wide_a_spread_calls_itself_unusable_and_needs_force_to_count(history: History) -> None:
    history.add(*(result(f"r{n}", n, 2.0 + (n % 5) * 0.4) for n in range(20)))
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    assert entry.bound.state is BoundState.UNUSABLE
    used = _read("baselines: {train: {step_time: {lower: 2.4, upper: 3.0}}}")
    with pytest.raises(Refused, match="use --force"):
        new_bounds.update(chosen(history), used, WHY)
    forced = entry_of(new_bounds.update(chosen(history), used, replace(WHY, force=True)))
    assert forced.bound.state is BoundState.USABLE
    assert relative_half_width(forced.bound) is not None
    assert forced.keys.cap is not None
    assert 0.2 < relative_half_width(forced.bound) <= forced.keys.cap  # so the next update does not ask again
    assert entry_of(new_bounds.update(chosen(history), forced, WHY)).bound.state is BoundState.USABLE


def test_their_file_gets_no_entry_that_could_not_judge(history: History) -> None:
    fill(history, "r", 0, 4, 2.44)
    with pytest.raises(Refused, match="no entry written"):
        new_bounds.update(chosen(history), None, WHY, form=THEIRS)


def test_settings_of_the_entry_are_kept(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    settings = _read("baselines: {train: {step_time: {lower: 1, upper: 3, floor: 0.05, cap: 0.5, false_alarm: 0.01}}}")
    entry = entry_of(new_bounds.update(chosen(history), settings, WHY))
    assert (entry.keys.floor, entry.keys.cap, entry.bound.false_alarm) == (0.05, 0.5, 0.01)
    assert relative_half_width(entry.bound) == pytest.approx(0.05)


def test_runs_of_an_open_regression_are_left_out_until_a_recenter_accepts_them(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    first = entry_of(new_bounds.update(chosen(history), None, WHY))
    fill(history, "slow", 30, 12, 2.60)
    made = new_bounds.update(chosen(history), first, WHY)
    second = entry_of(made)
    assert second.bound.runs == 30
    assert list(second.keys.left_out.values()) == [12]
    assert any("a regression is open since run slow30" in note for note in made.notes)
    moved = adjust.recenter_entry(chosen(history), second, WHY)
    text = edited(edited("", "f", OURS, [made.edit]), "f", OURS, [moved.edit])
    third = _read(text)
    assert third.keys.accepted.run == "slow30"
    assert third.bound.center == pytest.approx(2.60, rel=0.005)
    assert any("worse than before" in note for note in moved.notes)
    fourth = entry_of(new_bounds.update(chosen(history), third, WHY), text=text)
    assert (fourth.bound.runs, fourth.bound.since_s) == (12, START_S + 30 * DAY_S)
    assert fourth.bound.changed is not None
    assert fourth.bound.changed.run == "slow30"


CONDITIONS = {"command": "train", "hardware.cores": "8"}


def settled_run(run: str, day: float, value: float, ref: str, cores: str = "8", **options: object) -> RunResults:
    """A run that keeps what it ran with, as every new one does."""
    plain = result(run, day, value, **options)  # type: ignore[arg-type]
    settings = Settings({**CONDITIONS, "hardware.cores": cores}, {"workspace.ref": ref})
    cell = msgspec.structs.replace(
        plain.cells[0],
        fingerprint=settings.fingerprint,
        conditions=settings.conditions,
        under_test=settings.under_test,
    )
    return msgspec.structs.replace(plain, cells=[cell])


def many(history: History, prefix: str, first: int, count: int, level: float, ref: str, **options: object) -> None:
    chance = random.Random(f"{prefix}{first}")
    for n in range(first, first + count):
        history.add(settled_run(f"{prefix}{n}", n, chance.gauss(level, level * 0.004), ref, **options))  # type: ignore[arg-type]


def test_the_entry_says_its_conditions_and_what_was_under_test(history: History) -> None:
    many(history, "r", 0, 8, 2.0, "v1")
    many(history, "s", 8, 2, 2.0, "v2")
    history.add(settled_run("slow", 10, 3.0, "v3", verdict=Verdict.SLOWER))  # not used, so not what they are of
    bound = entry_of(new_bounds.update(chosen(history), None, WHY)).bound
    assert (bound.runs, bound.conditions, bound.under_test) == (10, CONDITIONS, {"workspace.ref": "v2"})
    assert bound.fingerprint == bound.settings.fingerprint


@pytest.mark.parametrize("verdict", [Verdict.SLOWER, Verdict.PASSED])  # passed: with `unjudged: record`, say
def test_an_update_never_accepts_a_worse_level(history: History, verdict: Verdict) -> None:
    many(history, "r", 0, 5, 2.0, "v1")
    text = edited("", "f", OURS, [new_bounds.update(chosen(history), None, WHY).edit])
    many(history, "slow", 5, 30, 3.0, "v2", verdict=verdict)
    updated = entry_of(new_bounds.update(chosen(history), _read(text), WHY), text=text)
    assert updated.bound.center == pytest.approx(2.0, rel=0.01)
    with pytest.raises(Refused, match="is worse, 2" if verdict is Verdict.PASSED else "0 of 5 runs"):
        new_bounds.update(chosen(history, START_S + 5 * DAY_S - 1), _read(text), WHY)
    moved = new_bounds.recenter(chosen(history), _read(text), WHY)
    assert entry_of(moved, text=text).bound.center == pytest.approx(3.0, rel=0.01)


def test_other_conditions_get_bounds_by_an_update_only_where_the_level_is_no_worse(history: History) -> None:
    many(history, "r", 0, 6, 2.0, "v1")
    text = edited("", "f", OURS, [new_bounds.update(chosen(history), None, WHY).edit])
    many(history, "small", 6, 6, 3.0, "v1", cores="4")
    with pytest.raises(Refused, match=r"is worse, 2.* → .*hardware\.cores 8 → 4.*`seatrial baseline recenter`"):
        new_bounds.update(chosen(history), _read(text), WHY)
    moved = new_bounds.recenter(chosen(history), _read(text), WHY)
    assert moved.accepted == "small6"
    entry = entry_of(moved, text=text)
    assert entry.bound.center == pytest.approx(3.0, rel=0.01)
    assert entry.bound.conditions["hardware.cores"] == "4"
    assert "under other conditions" in entry.keys.reasons[-1]["what"]
    many(history, "big", 12, 6, 1.5, "v1", cores="16")
    made = new_bounds.update(chosen(history), entry, WHY)
    assert any("hardware.cores 4 → 16" in note for note in made.notes)


def test_small_steps_for_the_worse_do_not_add_up(history: History) -> None:
    """Each is within chance, or the floor; together they are not."""
    text, refused = "", 0
    for step in range(6):
        many(history, f"s{step}-", 10 * step, 10, 2.0 * 1.012**step, "v1")
        window = START_S + 10 * step * DAY_S - 1
        try:
            made = new_bounds.update(chosen(history, window), _read(text) if text else None, WHY)
            text = edited(text, "f", OURS, [made.edit])
        except Refused:
            refused += 1
    center = _read(text).bound.center
    assert center is not None
    assert center < 2.0 * 1.025
    assert refused >= 3


def test_bounds_in_another_unit_are_compared_by_what_they_mean(history: History) -> None:
    fill(history, "r", 0, 6, 2000.0, unit="ms")
    fast = _read("baselines: {train: {step_time: {lower: 1.9, upper: 2.1, center: 2.0, unit: s}}}")
    assert entry_of(new_bounds.update(chosen(history), fast, WHY)).bound.unit == "ms"
    slow = _read("baselines: {train: {step_time: {lower: 0.9, upper: 1.1, center: 1.0, unit: s}}}")
    with pytest.raises(Refused, match="is worse, 1000 → "):
        new_bounds.update(chosen(history), slow, WHY)
    with pytest.raises(Refused, match="bounds are in GiB, runs in ms"):
        new_bounds.update(chosen(history), _read("baselines: {train: {step_time: {upper: 1.1, unit: GiB}}}"), WHY)
    with pytest.raises(Refused, match=r"bounds are in s, runs in ms.*delete the entry"):
        adjust.recenter_entry(chosen(history), slow, WHY)


def test_recenter_follows_the_last_runs_that_are_out_as_wide_as_one_run_needs_it(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    history.add(result("fast", 31, 2.2, Verdict.FASTER), result("failed", 32, 0.1, Verdict.FAILED))
    moved = entry_of(adjust.recenter_entry(chosen(history), entry, WHY))
    assert moved.bound.center == 2.2
    assert moved.bound.lower is not None
    assert moved.bound.upper is not None
    assert entry.bound.lower is not None
    assert entry.bound.upper is not None
    wider = math.sqrt(2 / (1 + 1 / 30))  # one run is the center, which the mean of 30 was before
    width = entry.bound.upper - entry.bound.lower
    assert moved.bound.upper - moved.bound.lower == pytest.approx(width * wider, rel=1e-6)
    assert (moved.keys.accepted.run, moved.keys.method.count("recentered")) == ("fast", 1)


def test_recenter_of_their_file_keeps_their_convention(history: History) -> None:
    text = (
        "benchmarks:\n  train: {name: T, step_time_lower_bound: 2.4, step_time_upper_bound: 2.5,"
        " confidence_interval: 0.05, average: 2.45, sample_size: 20}\n"
    )
    history.add(result("fast", 1, 2.2))
    made = adjust.recenter_entry(chosen(history), _read(text), WHY)
    after = edited(text, "f", THEIRS, [made.edit])
    numbers = "step_time_lower_bound: 2.13099344, step_time_upper_bound: 2.26900656, confidence_interval: 0.0690"
    assert numbers in after  # ±0.05 of 20 runs, as wide as one run as the center needs it
    assert "average: 2.2," in after
    assert "sample_size: 1," in after
    moved = _read(after)
    assert (moved.bound.runs, moved.bound.width_runs, moved.bound.since_s) == (1, 20, START_S + DAY_S)


def test_recenter_refuses_what_it_cannot_follow(history: History) -> None:
    fill(history, "r", 0, 20, 2.44)
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    with pytest.raises(Refused, match="nothing to change"):
        adjust.recenter_entry(chosen(history), entry, WHY)
    history.add(result("bad", 30, 2.6, Verdict.SLOWER))
    history.mark("bad", "train", "regression", "seen by a person", "me", START_S)
    with pytest.raises(Refused, match="marked as a regression"):
        adjust.recenter_entry(chosen(history), entry, WHY)
    assert adjust.recenter_entry(chosen(history), entry, replace(WHY, force=True)).edit.values["center"] == 2.6
    history.add(result("tiny", 31, 0.1))
    with pytest.raises(Refused, match="exceeds the cap of ±20%"):
        adjust.recenter_entry(chosen(history), entry, WHY)
    history.add(result("elsewhere", 32, 2.0, fingerprint="cccc"))
    with pytest.raises(Refused, match="1 of 5 runs needed for a bound"):  # and there is no width to keep
        new_bounds.recenter(chosen(history), entry, WHY)
    for text in ("{}", "{state: recording}", "{lower: 1, upper: 2, disabled: off}"):
        with pytest.raises(Refused, match=r"no bounds yet|disabled"):
            adjust.recenter_entry(chosen(history), _read(f"baselines: {{train: {{step_time: {text}}}}}"), WHY)


def test_widen_by_and_to_and_the_floor_that_keeps_it(history: History) -> None:
    entry = _read("baselines: {train: {step_time: {lower: 1.9, upper: 2.1, center: 2.0}}}")
    by = adjust.widen(entry, WHY, by=0.2).edit.values
    assert (by["lower"], by["upper"], by["floor"]) == (pytest.approx(1.88), pytest.approx(2.12), pytest.approx(0.06))
    to = adjust.widen(entry, WHY, to=0.1).edit.values
    assert (to["lower"], to["upper"]) == (pytest.approx(1.8), pytest.approx(2.2))
    with pytest.raises(Refused, match="not wider"):
        adjust.widen(entry, WHY, to=0.03)
    with pytest.raises(Refused, match="exceeds the cap"):
        adjust.widen(entry, WHY, to=0.3)
    assert adjust.widen(entry, replace(WHY, force=True), to=0.3).edit.values["cap"] == pytest.approx(0.3)
    fill(history, "r", 0, 30, 2.0)
    wide = entry_of(adjust.widen(entry, WHY, to=0.1), text="baselines: {train: {step_time: {lower: 1, upper: 3}}}")
    assert relative_half_width(entry_of(new_bounds.update(chosen(history), wide, WHY)).bound) == pytest.approx(0.1)


def test_one_sided_bounds_stay_one_sided() -> None:
    entry = _read("baselines: {train: {step_time: {upper: 2.1, center: 2.0}}}")
    values = adjust.widen(entry, WHY, by=1.0).edit.values
    assert (values["lower"], values["upper"]) == (None, pytest.approx(2.2))
    bare = _read("baselines: {train: {step_time: {upper: 2.1}}}")
    with pytest.raises(Refused, match="no bounds yet"):
        adjust.widen(bare, WHY, by=1.0)


def repeated(run: str, day: float, *values: float) -> RunResults:
    """One run with a metric of each of its repeats."""
    base = result(run, day, 0.0)
    cells = [
        msgspec.structs.replace(
            base.cells[0], id=f"train[repeat={n}]", hash=f"{n}", metrics=result(run, day, value).cells[0].metrics
        )
        for n, value in enumerate(values, 1)
    ]
    return msgspec.structs.replace(base, cells=cells)


@pytest.mark.parametrize("form", [OURS, THEIRS])
def test_metrics_of_repeats_are_called_metrics_and_their_run_is_counted_once(history: History, form: str) -> None:
    for number in range(6):
        history.add(repeated(f"r{number}", number, 2.44, 2.45))
    entry = entry_of(new_bounds.update(chosen(history), None, WHY, form=form), form)
    assert (entry.bound.runs, entry.bound.values) == (6, 12)
    assert entry.keys.reasons[0]["what"] == "updated from 12 of 12 values of 6 runs"
    (shown,) = describe.describe_baselines(as_place(entry), history)
    assert "(12 values of 6 runs since 1 Oct, 0.5 % false-alarm rate" in shown.sentence


def test_left_out_metrics_of_repeats_are_counted_one_by_one(history: History) -> None:
    for number in range(5):
        history.add(repeated(f"r{number}", number, 2.44, 2.45, 2.44, *([9.0] if number in (1, 3) else [2.45])))
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    assert entry.keys.reasons[0]["what"] == "updated from 18 of 20 values of 5 runs"
    assert "2 of 20 values left out" in entry.keys.method
    (shown,) = describe.describe_baselines(as_place(entry), history)
    assert "left out: 2 × outlier" in shown.details


def test_a_run_with_too_few_metrics_says_what_it_has(history: History) -> None:
    history.add(repeated("r1", 0, 2.44, 2.45, 2.46, 2.44, 2.45, 2.46))
    bound = entry_of(new_bounds.update(chosen(history), None, WHY)).bound
    assert (bound.state, bound.why) == (BoundState.RECORDING, "6 values of 1 run (bounds need 5 runs)")


def as_place(entry: BaselineEntry) -> SelectedFile:
    return SelectedFile("f", Path("f"), True, Baselines("f", OURS, {"train": {"step_time": entry}}), {"train": "train"})


def slower(history: History, first: int, count: int, level: float) -> None:
    fill(history, "slow", first, count, level, verdict=Verdict.SLOWER)


def test_recenter_is_never_narrower_than_the_floor(history: History) -> None:
    fill(history, "r", 0, 20, 2.0)
    entry = entry_of(new_bounds.update(chosen(history), None, WHY))
    assert relative_half_width(entry.bound) == pytest.approx(0.015)
    history.add(result("slow", 21, 3.0, Verdict.SLOWER))
    made = adjust.recenter_entry(chosen(history), entry, WHY)
    assert relative_half_width(entry_of(made).bound) == pytest.approx(0.015)
    assert any("widened to the floor of 1.50%" in note for note in made.notes)
    narrow = _read("baselines: {train: {step_time: {lower: 1.98, upper: 2.02, center: 2.0}}}")
    moved = entry_of(adjust.recenter_entry(chosen(history), narrow, WHY))
    assert relative_half_width(moved.bound) == pytest.approx(0.01)


@pytest.mark.parametrize("marked", ["slow20", "slow22", "slow25"])
def test_an_accepted_level_ends_a_regression_whichever_of_its_runs_is_marked(history: History, marked: str) -> None:
    fill(history, "r", 0, 20, 2.44)
    made = new_bounds.update(chosen(history), None, WHY)
    slower(history, 20, 6, 2.61)
    history.mark(marked, "train", "regression", "seen by a person", "me", START_S)
    text = edited("", "f", OURS, [made.edit])
    moved = adjust.recenter_entry(chosen(history), _read(text), replace(WHY, force=True))
    assert moved.accepted == "slow20"
    text = edited(text, "f", OURS, [moved.edit])
    updated = new_bounds.update(chosen(history), _read(text), WHY)
    bound = entry_of(updated, text=text).bound
    assert (bound.runs, bound.since_s) == (6, START_S + 20 * DAY_S)
    assert f"run {marked} is marked as a regression, but used: `baseline recenter` accepted that level" in updated.notes
    fill(history, "worse", 30, 6, 2.9, verdict=Verdict.SLOWER)
    history.mark("worse30", "train", "regression", "again", "me", START_S)
    later = new_bounds.update(chosen(history), _read(text), WHY)
    assert later.edit.values["left_out"]["after a regression, not yet fixed"] == 5


def test_a_refused_update_counts_what_was_left_out_and_names_what_helps(history: History) -> None:
    fill(history, "r", 0, 4, 2.44)
    entry = _read("baselines: {train: {step_time: {lower: 2.4, upper: 2.5}}}")
    history.add(result("broken", 5, 0.1, Verdict.FAILED), result("odd", 6, 2.6, Verdict.SLOWER))
    slower(history, 7, 3, 2.61)
    history.mark("slow7", "train", "regression", "seen by a person", "me", START_S)
    with pytest.raises(Refused) as caught:
        new_bounds.update(chosen(history), entry, WHY)
    for part in (
        "4 of 5 runs needed for a bound; bounds unchanged",
        "2 × after a regression, not yet fixed",
        "1 × marked as a regression",
        "1 × the run failed",
        "1 × out of bounds, unexplained",
        "a regression is open since run slow7; run `seatrial baseline recenter --force` to accept its level",
        "`seatrial history mark RUN --fixed`",
        "`seatrial history mark odd --false-alarm`",
    ):
        assert part in str(caught.value)


def test_the_advice_to_recenter_needs_force_only_where_a_mark_opened_the_regression(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    fill(history, "slow", 30, 12, 2.60)
    notes = new_bounds.update(chosen(history), None, WHY).notes
    assert any("`seatrial baseline recenter` to accept its level" in note for note in notes)


def test_show_names_the_newest_change_also_when_its_runs_are_alarms_or_were_accepted(history: History) -> None:
    fill(history, "old", 0, 20, 3.0)
    fill(history, "r", 20, 20, 2.44)
    made = new_bounds.update(chosen(history), None, WHY)
    text = edited("", "f", OURS, [made.edit])
    slower(history, 40, 8, 2.61)
    (shown,) = describe.describe_baselines(as_place(_read(text)), history)
    assert "the level changed at run slow40 (2.4" in shown.sentence
    text = edited(text, "f", OURS, [adjust.recenter_entry(chosen(history), _read(text), WHY).edit])
    fill(history, "new", 48, 8, 2.61)
    (shown,) = describe.describe_baselines(as_place(_read(text)), history)
    assert "the level changed at run slow40 (2.4" in shown.sentence


def test_a_recentered_entry_tells_the_runs_of_its_level_and_how_many_its_width_is_of(history: History) -> None:
    fill(history, "r", 0, 8, 2.44)
    history.add(result("broken", 9, 0.1, Verdict.FAILED))
    made = new_bounds.update(chosen(history), None, WHY)
    text = edited("", "f", OURS, [made.edit])
    history.add(result("fast1", 10, 2.2, Verdict.FASTER), result("fast2", 11, 2.21, Verdict.FASTER))
    text = edited(text, "f", OURS, [adjust.recenter_entry(chosen(history), _read(text), WHY).edit])
    entry = _read(text)
    assert (entry.keys.left_out, entry.bound.runs, entry.bound.width_runs) == ({}, 2, 8)
    (shown,) = describe.describe_baselines(as_place(entry), history)
    assert (
        "(center from 2 runs since 11 Oct, width of the bounds from 8 earlier ones, 0.5 % false-alarm rate"
        in shown.sentence
    )
    history.add(result("faster", 12, 2.0, Verdict.FASTER))
    again = edited(text, "f", OURS, [adjust.recenter_entry(chosen(history), entry, WHY).edit])
    assert (_read(again).bound.runs, _read(again).bound.width_runs) == (1, 8)
    fill(history, "s", 13, 8, 2.0)
    updated = _read(edited(again, "f", OURS, [new_bounds.update(chosen(history), _read(again), WHY).edit]))
    assert (updated.bound.runs, updated.bound.width_runs) == (9, None)


def test_a_width_by_hand_stays_one_by_hand(history: History) -> None:
    history.add(result("fast", 1, 2.2))
    entry = _read("baselines: {train: {step_time: {lower: 2.4, upper: 2.5}}}")
    moved = entry_of(
        adjust.recenter_entry(chosen(history), entry, WHY), text="baselines: {train: {step_time: {lower: 2.4}}}"
    )
    (shown,) = describe.describe_baselines(as_place(moved), history)
    assert "(center from 1 run since 2 Oct, width of the bounds set by hand)" in shown.sentence


def test_a_second_recenter_has_nothing_to_follow_and_the_accepted_change_stays(history: History) -> None:
    fill(history, "r", 0, 30, 2.44)
    text = edited("", "f", OURS, [new_bounds.update(chosen(history), None, WHY).edit])
    slower(history, 30, 12, 2.60)
    text = edited(text, "f", OURS, [adjust.recenter_entry(chosen(history), _read(text), WHY).edit])
    with pytest.raises(Refused, match=r"nothing to change: .*since run slow30"):
        adjust.recenter_entry(chosen(history), _read(text), WHY)
    fill(history, "later", 50, 12, 2.60)
    with pytest.raises(Refused, match="nothing to change"):
        adjust.recenter_entry(chosen(history), _read(text), WHY)


def test_large_metrics_are_told_in_plain_digits(history: History) -> None:
    fill(history, "r", 0, 12, 78350.0)
    text = edited("", "f", OURS, [new_bounds.update(chosen(history), None, WHY).edit])
    slower(history, 12, 12, 90000.0)
    told = [describe.describe_baselines(as_place(_read(text)), history)[0].sentence]
    told += new_bounds.update(chosen(history), _read(text), WHY).notes
    told += adjust.recenter_entry(chosen(history), _read(text), WHY).notes
    assert not any("e+" in line for line in told)
    assert "78,3" in told[0]
    fill(history, "s", 30, 12, 95000.0)
    left_out = new_bounds.update(chosen(history), None, WHY).edit.values["left_out"]
    assert any("since the level got worse (from 78,3" in reason for reason in left_out)


def place(path: Path) -> SelectedFile:
    exists = path.exists()
    read = read_baselines(path) if exists else Baselines(str(path))
    return SelectedFile("bounds.yaml", path, exists, read, {"train": "train"})


def test_a_file_is_written_whole_with_its_mode_and_through_its_link(tmp_path: Path, history: History) -> None:
    fill(history, "r", 0, 10, 2.44)
    real = tmp_path / "real.yaml"
    real.write_text("# mine\nbaselines: {other: {x: {upper: 1}}}\n")
    real.chmod(0o640)
    link = tmp_path / "bounds.yaml"
    link.symlink_to("real.yaml")
    changed = file_change.change(place(link), [new_bounds.update(chosen(history), None, WHY).edit])
    assert real.read_text().startswith("# mine\nbaselines: {other: {x: {upper: 1}}}")
    file_change.write_change(changed)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert read_baselines(link).entries["train"]["step_time"].bound.runs == 10
    assert "--- bounds.yaml" in changed.diff
    assert sorted(one.name for one in tmp_path.iterdir() if "yaml" in one.name) == ["bounds.yaml", "real.yaml"]


def test_what_somebody_else_wrote_meanwhile_is_left_alone(tmp_path: Path, history: History) -> None:
    fill(history, "r", 0, 10, 2.44)
    path = tmp_path / "bounds.yaml"
    made = new_bounds.update(chosen(history), None, WHY).edit
    first = file_change.change(place(path), [made])
    file_change.write_change(first)
    # There was no file when it was asked for.
    with pytest.raises(Refused, match="changed during the edit; nothing was written"):
        file_change.write_change(first)
    second = file_change.change(place(path), [made])
    path.write_text(path.read_text() + "# by hand\n")
    with pytest.raises(Refused, match="changed during the edit; nothing was written"):
        file_change.write_change(second)
    assert path.read_text().endswith("# by hand\n")


def test_of_many_writers_at_once_none_takes_anothers_change_away(tmp_path: Path, history: History) -> None:
    fill(history, "r", 0, 10, 2.44)
    path = tmp_path / "bounds.yaml"
    edit = new_bounds.update(chosen(history), None, WHY).edit
    written: list[str] = []

    def write(name: str) -> None:
        while True:
            try:
                file_change.write_change(file_change.change(place(path), [replace(edit, benchmark=name)]))
            except Refused:
                continue
            written.append(name)
            return

    writers = [threading.Thread(target=write, args=(f"b{n}",)) for n in range(8)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert sorted(read_baselines(path).entries) == sorted(written) == [f"b{n}" for n in range(8)]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, history: History) -> None:
    fill(history, "r", 0, 10, 2.44)
    path = tmp_path / "bounds.yaml"
    path.write_text("baselines: {other: {x: {upper: 1}}}\n")
    changed = file_change.change(place(path), [new_bounds.update(chosen(history), None, WHY).edit])
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from seatrial.baseline.edit import FileChange, write_change\n"
        "changed = FileChange('b', Path(sys.argv[1]), Path(sys.argv[1]).read_bytes(), sys.argv[2].encode(), '')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # a write beyond it fails, as on a full disk
        "write_change(changed)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), changed.after.decode()], capture_output=True, text=True, check=False
    )
    assert "OSError" in done.stderr
    assert path.read_text() == "baselines: {other: {x: {upper: 1}}}\n"
    assert not list(tmp_path.glob("*.part"))


def test_runs_of_another_tool_are_read_in_every_form(tmp_path: Path) -> None:
    forms = {
        "a.csv": "# from the old table\nrun,time,value,commit\nr1,2026-10-01T00:00:00Z,2.4,abc\nr2,1790899200,2.5,\n",
        "b.json": '[{"run": "r1", "time": "2026-10-01", "value": 2.4, "commit": "abc"},'
        ' {"run": "r2", "time": 1790899200, "value": 2.5}]',
        "c.jsonl": '{"run_id": "r1", "update_timestamp": "2026-10-01 00:00:00 UTC", "metrics_step_time": 2.4,'
        ' "commit": "abc"}\n{"run_id": "r2", "update_timestamp": "2026-10-02", "metrics_step_time": "2.5"}\n',
        "d.yaml": "- {run: r1, time: 2026-10-01, value: 2.4, commit: abc}\n- {run: r2, time: 2026-10-02, value: 2.5}\n",
    }
    for name, text in forms.items():
        path = tmp_path / name
        path.write_text(text)
        found = past_runs.read_runs(path).runs
        assert [(one.run, one.at_s, one.value, one.commit) for one in found] == [
            ("r1", START_S, 2.4, "abc"),
            ("r2", START_S + DAY_S, 2.5, ""),
        ], name


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "run,time,value\nr1,soon,fast\n", ["a.csv:2:1: invalid `value`", "a.csv:2:1: invalid `time`"]),
        (
            "a.csv",
            "run,time,value\nr1,2026-10-01,fast\n,2026-10-01,1\n",
            ["a.csv:2:1: invalid `value`", "a.csv:3:1: `run`"],
        ),
        ("a.csv", "", ["the file has no runs"]),
        ("a.json", '[{"run": 1}, 5]', ["a.json[1]", "a.json[2]"]),
        ("a.json", "[1, 2", ["a.json:1:6: not JSON"]),
        ("a.json", "[" * 100_000, ["not JSON"]),
        ("a.jsonl", '{"run": 1\n', ["a.jsonl:1"]),
        ("a.yaml", "runs: 5\n", ["expected a list of runs"]),
        ("a.yaml", "- {run: r1, time: 2026-10-01, value: x}\n", ["a.yaml:1:3: invalid `value`"]),
        ("a.csv", b"run,time,value\n\xff", ["not UTF-8"]),
    ],
)
def test_rows_that_are_no_runs_are_told_with_their_place(
    tmp_path: Path, name: str, text: str | bytes, told: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SuiteError) as caught:
        past_runs.read_runs(path)
    for part in told:
        assert part in str(caught.value)


def test_imported_runs_replace_no_run_of_ours_and_twice_is_once(tmp_path: Path, history: History) -> None:
    history.add(result("r1", 0, 9.0))
    path = tmp_path / "runs.csv"
    path.write_text("run,time,value,good\nr1,2026-10-01,2.4,true\nr2,2026-10-02,2.5,false\n")
    metric = imported.ImportedMetric("train", "step_time", "s", "lower", "train")
    for _ in range(2):
        kept = list(imported.past_results(past_runs.read_runs(path).runs, metric, "aaaa", WHY, "runs.csv"))
        history.add(*kept)
    assert (len(kept), kept[0].started_s) == (2, START_S)
    points = chosen(history).points
    assert sorted((point.value, point.good) for point in points) == [(2.4, True), (2.5, False), (9.0, True)]


def test_hardware_is_told_in_words_and_nothing_is_told_of_a_run_that_is_gone(tmp_path: Path, history: History) -> None:
    from seatrial.baseline.describe import hardware_text

    seen = {"cpu": "Some CPU", "cores": 8, "gpu": ["A100", "A100", "T4"], "memory_bytes": 1}
    assert hardware_text(seen) == "Some CPU, 8 cores, 2 × A100, 1 × T4"
    assert hardware_text({}) == ""
    history.add(result("gone", 0, 2.4))
    assert describe.hardware_of(tmp_path, chosen(history).points) == ""


THEIR_ROWS = """\
run_id,update_timestamp,metrics_step_time,result_success
llama-3-8b-ab12cd34-20250701080000-0123abcd,2025-07-01 08:00:00 UTC,2.7,true
llama-3dot1-8b-sa-zz12cd34-20250701090000-0123abcd,2025-07-01 09:00:00 UTC,3.1,true
"""


def test_a_table_of_several_benchmarks_is_told_apart_by_the_names_of_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(THEIR_ROWS)
    runs = past_runs.read_runs(path).runs
    assert {(one.metric, one.unit, one.better) for one in runs} == {("step_time", "s", "lower")}
    found = past_runs.assign_benchmarks(runs, ["llama-3-8b", "llama-3_1-8b-sa", "llama-3-8b-sft"])
    assert [(one.benchmark, one.value) for one in found] == [("llama-3-8b", 2.7), ("llama-3_1-8b-sa", 3.1)]
    with pytest.raises(Refused, match=r"jobs: llama-3-8b \(1\), llama-3dot1-8b-sa \(1\)"):
        past_runs.assign_benchmarks(runs, ["llama-3-8b"])
    with pytest.raises(Refused, match=r"cannot tell which benchmark the runs of llama-3dot1-8b-sa"):
        past_runs.assign_benchmarks(runs, ["llama-3-8b", "llama-3_1-8b-sa", "llama-3.1-8b-sa"])
    assert [one.benchmark for one in past_runs.assign_benchmarks(runs[:1], ["mine"])] == [
        ""
    ]  # one job: its owner is asked for
    others = [replace(one, run=f"night-{n}") for n, one in enumerate(runs)]
    assert past_runs.assign_benchmarks(others, ["a", "b"]) == others
