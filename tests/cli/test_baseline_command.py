"""`seatrial baseline` as a user types it: what it prints, what it writes, and how it ends."""

import random
import re
from pathlib import Path

import pytest

from seatrial.record.history import Point, open_history
from world import World

SUITE = """\
trials:
  tiny:
    kind: training
    command: echo "step_time 2.45"
    matrix: {model: [a, b]}
    metrics: {step_time: {log: 'step_time (\\S+)', unit: s, better: lower}}
    baseline: bounds.yaml
"""
AB = ("--select", "model=a")


def runs(world: World, prefix: str, month: int, count: int, level: float) -> str:
    chance = random.Random(f"{prefix}{level}")
    rows = [
        f"{prefix}{n},2026-{month:02d}-{n:02d}T06:00:00Z,{chance.gauss(level, 0.01):.4f}" for n in range(1, count + 1)
    ]
    (world.folder / f"{prefix}.csv").write_text("\n".join(["run,time,value", *rows]) + "\n")
    return f"{prefix}.csv"


@pytest.fixture
def filled(world: World) -> World:
    world.suite(SUITE)
    said = ("--metric", "step_time", "--unit", "s", "--better", "lower", "--reason", "from the old table")
    file = runs(world, "oct", 10, 30, 2.44)
    done = world.seatrial("baseline", "import", "suite.yaml", str(file), *AB, *said, check=0)
    assert "tiny[model=a]: added 30 runs of step_time" in done.stdout
    return world


def bounds(world: World) -> str:
    return (world.folder / "bounds.yaml").read_text()


def test_from_runs_to_bounds_to_a_new_level(filled: World) -> None:
    dry = filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "first", "--dry-run", check=0)
    assert not (filled.folder / "bounds.yaml").exists()
    made = filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "first", check=0)
    assert "+++ bounds.yaml" in made.stdout
    assert [line for line in made.stdout.splitlines() if "at:" not in line] == [
        line for line in dry.stdout.splitlines() if "at:" not in line
    ]
    shown = filled.seatrial("baseline", "show", "suite.yaml", check=0).stdout
    assert "tiny[model=a] step_time: 2.4" in shown
    assert "(30 runs since 1 Oct, 0.5 % false-alarm rate" in shown
    assert "tiny[model=b]: no entry, and no run" in shown
    later = runs(filled, "nov", 11, 12, 2.61)
    filled.seatrial(
        "baseline", "import", "suite.yaml", later, *AB, "--metric", "step_time", "--reason", "more", check=0
    )
    shown = filled.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout
    assert " s is above 2.4" in shown
    assert "; the level changed at run imported-" in shown
    assert "-nov1 (2.4" in shown
    moved = filled.seatrial("baseline", "recenter", "suite.yaml", *AB, "--reason", "new compiler", check=0)
    assert "the new level is worse than before" in moved.stderr
    assert "why: new compiler" in bounds(filled)
    assert " is within 2.5" in filled.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout


def test_an_entry_that_has_to_stay_ends_with_1_and_the_others_are_made(filled: World) -> None:
    done = filled.seatrial("baseline", "update", "suite.yaml", "--reason", "first", check=1)
    assert "tiny[model=b]: no run has a metric that can have bounds yet" in done.stderr
    assert "tiny[model=a]" in bounds(filled)
    before = bounds(filled)
    done = filled.seatrial("baseline", "widen", "suite.yaml", *AB, "--to", "50%", "--reason", "x", check=1)
    assert "exceeds the cap of ±20%" in done.stderr
    assert bounds(filled) == before
    filled.seatrial("baseline", "widen", "suite.yaml", *AB, "--to", "50%", "--reason", "x", "--force", check=0)
    assert "cap: 0.5" in bounds(filled)


def test_a_metric_with_too_much_noise_is_left_out_beside_others_and_makes_no_good_run_invalid(filled: World) -> None:
    rows = [f"n{n},2026-10-{n:02d}T06:00:00Z,{0.1 * (1 + n % 5)}" for n in range(1, 31)]
    (filled.folder / "noise.csv").write_text("\n".join(["run,time,value", *rows]) + "\n")
    noise = ("--metric", "seconds", "--unit", "s", "--better", "lower", "--reason", "x")
    filled.seatrial("baseline", "import", "suite.yaml", "noise.csv", *AB, *noise, check=0)
    done = filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "first", check=0)
    assert "tiny[model=a]: 1 metric left out, because bounds from these runs would be useless:\n" in done.stderr
    assert "\n  seconds: too noisy: good runs need bounds of ±" in done.stderr
    assert "\n  To add one anyway, use `--metric NAME --force`.\n" in done.stderr
    assert "step_time" in bounds(filled)
    assert "seconds" not in bounds(filled)
    named = ("--metric", "seconds", "--reason", "wanted")
    filled.seatrial("baseline", "update", "suite.yaml", *AB, *named, "--force", check=0)
    assert "seconds" in bounds(filled)


def test_update_removes_an_entry_that_is_still_too_noisy_and_says_why(filled: World) -> None:
    rows = [f"n{n},2026-10-{n:02d}T06:00:00Z,{0.1 * (1 + n % 5)}" for n in range(1, 31)]
    (filled.folder / "noise.csv").write_text("\n".join(["run,time,value", *rows]) + "\n")
    noise = ("--metric", "seconds", "--unit", "s", "--better", "lower", "--reason", "x")
    filled.seatrial("baseline", "import", "suite.yaml", "noise.csv", *AB, *noise, check=0)
    (filled.folder / "bounds.yaml").write_text(
        "version: 1\nbaselines:\n  tiny[model=a]:\n    seconds: {upper: 9.0, unit: s, better: lower, state: unusable}\n"
    )
    only = filled.seatrial("baseline", "update", "suite.yaml", *AB, *noise[:2], "--reason", "x", check=0)
    assert "removed" not in only.stderr  # nothing else would be checked
    done = filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "again", check=0)
    assert "tiny[model=a]: 1 metric removed, because bounds from these runs would be useless:\n" in done.stderr
    assert "\n  seconds: too noisy: good runs need bounds of ±" in done.stderr
    assert "seconds" not in bounds(filled)
    assert "step_time" in bounds(filled)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("update", "suite.yaml"), "Missing option '--reason'"),
        (("update", "suite.yaml", "--reason", "  "), "--reason is empty"),
        (("widen", "suite.yaml", "--reason", "x"), "exactly one of --by"),
        (("widen", "suite.yaml", "--reason", "x", "--by", "wide"), "invalid percentage 'wide'"),
        (("widen", "suite.yaml", "--reason", "x", "--to", "-3%"), "invalid percentage '-3%'"),
        (("update", "suite.yaml", "--reason", "x", "--since", "long"), "invalid duration"),
        (("update", "suite.yaml", "--reason", "x", "--select", "model=c"), "no model 'c'"),
        (("show", "none.yaml"), "cannot read"),
        (("import", "suite.yaml", "none.csv", "--reason", "x"), "cannot read"),
    ],
)
def test_what_is_typed_wrong_ends_with_2_and_says_what_is_expected(
    world: World, args: tuple[str, ...], told: str
) -> None:
    world.suite(SUITE)
    assert told in world.seatrial("baseline", *args, check=2).stderr


def test_a_suite_without_a_baseline_says_how_to_get_one(world: World) -> None:
    world.suite(SUITE.replace("    baseline: bounds.yaml\n", ""))
    assert (
        "add `baseline: bounds.yaml` to its trial" in world.seatrial("baseline", "show", "suite.yaml", check=2).stderr
    )


def test_a_broken_file_of_bounds_is_told_with_line_and_column_and_left_alone(world: World) -> None:
    world.suite(SUITE)
    path = world.folder / "bounds.yaml"
    path.write_text("baselines:\n  tiny[model=a]:\n    step_time: {lower: 3, upper: 2}\n")
    done = world.seatrial("baseline", "update", "suite.yaml", "--reason", "x", check=2)
    assert "bounds.yaml:3:24: the lower bound 3 is above the upper bound 2" in done.stderr
    assert "upper: 2}" in path.read_text()


def test_a_broken_history_ends_with_3(world: World) -> None:
    world.suite(SUITE)
    (world.folder / "history.db").write_bytes(b"garbage" * 1000)
    done = world.seatrial("baseline", "show", "suite.yaml", "--history", "history.db", check=3)
    assert "history.db" in done.stderr


def test_bounds_of_another_tool_are_taken_over_and_what_is_too_wide_is_refused(world: World) -> None:
    world.suite(SUITE)
    (world.folder / "step_time_bounds.yaml").write_text(
        "benchmarks:\n"
        "  tiny[model=a]: {name: A, step_time_lower_bound: 2.4, step_time_upper_bound: 2.5, confidence_interval: 0.05,"
        " average: 2.45, sample_size: 20}\n"
        "  tiny[model=b]: {name: B, step_time_lower_bound: 1, step_time_upper_bound: 12}  # dummy number\n"
        "  other: {name: C, step_time_lower_bound: 1, step_time_upper_bound: 1.1}\n"
    )
    done = world.seatrial("baseline", "import", "suite.yaml", "step_time_bounds.yaml", "--reason", "as before", check=1)
    assert "refused: tiny[model=b] step_time: ±84.6% exceeds the cap" in done.stderr
    assert "not imported: other" in done.stderr
    assert "dummy number" in done.stderr
    text = bounds(world)
    assert "upper: 2.5" in text
    assert "method: as in step_time_bounds.yaml" in text
    assert "model=b" not in text
    shown = world.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout
    assert "no run yet; bounds 2.4 to 2.5 s" in shown


def test_runs_that_do_not_say_what_they_are_of_are_asked_for_it(world: World) -> None:
    world.suite(SUITE)
    file = runs(world, "oct", 10, 3, 2.44)
    arguments = ("baseline", "import", "suite.yaml", file, "--reason", "x")
    assert "the runs have no `benchmark`" in world.seatrial(*arguments, check=2).stderr
    assert "the runs have no `metric`" in world.seatrial(*arguments, *AB, check=2).stderr
    done = world.seatrial(*arguments, *AB, "--metric", "steptime", check=2)
    assert "unknown metric 'steptime' of trial 'tiny'; did you mean 'step_time'?" in done.stderr
    done = world.seatrial(*arguments, *AB, "--metric", "loss", check=2)
    assert "use --better lower" in done.stderr
    done = world.seatrial(*arguments, *AB, "--metric", "step_time", "--better", "higher", check=2)
    assert "contradicts the suite" in done.stderr
    done = world.seatrial(*arguments, *AB, "--metric", "step_time", "--unit", "GiB", check=2)
    assert "cannot convert step_time from GiB (runs) to s (suite)" in done.stderr
    done = world.seatrial(*arguments, *AB, "--metric", "step_time", "--better", "lower", "--dry-run", check=0)
    assert "would add 3 runs" in done.stdout
    assert not (world.folder / "runs" / "history.db").exists()


def test_runs_in_another_unit_are_converted_to_that_of_the_suite(world: World) -> None:
    world.suite(SUITE)
    file = world.folder / "ms.csv"
    file.write_text("run,time,value\nr1,1790812800,2440\nr2,1790899200,\nr3,1790985600,2450\n")
    said = ("--metric", "step_time", "--unit", "ms", "--reason", "x")
    done = world.seatrial("baseline", "import", "suite.yaml", str(file), *AB, *said, check=0)
    assert "added 2 runs of step_time" in done.stdout
    assert f"skipped 1 row without a value, first at {file}:3:1\n" in done.stderr
    (series,) = open_history(world.folder / "runs" / "history.db").series()
    assert (series.unit, series.better, series.values) == ("s", "lower", [2.44, 2.45])
    bounds_file = world.folder / "other.yaml"
    bounds_file.write_text(
        "baselines: {'tiny[model=a]': {step_time: {lower: 2400, upper: 2500, unit: ms}, mfu: {lower: 1, upper: 2}}}\n"
    )
    done = world.seatrial("baseline", "import", "suite.yaml", str(bounds_file), "--reason", "x", check=1)
    assert "unknown metric 'mfu' of trial 'tiny'" in done.stderr
    assert "upper: 2.5\n" in bounds(world)
    assert "unit: s\n" in bounds(world)


def test_a_reason_that_is_hostile_text_is_kept_and_moves_no_cursor(filled: World) -> None:
    hostile = "a: {b} # c\n'\"\x1b[31m\udcff"
    filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", hostile, check=0)
    text = bounds(filled)
    assert "\x1b" not in text
    shown = filled.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout
    assert "a: {b} # c '\"\\x1b[31m" in shown


def test_real_runs_give_bounds_that_judge_what_is_under_test_and_other_conditions_are_no_pass(world: World) -> None:
    text = SUITE.replace("    matrix: {model: [a, b]}\n", "    env: {STEP: '2.00'}\n").replace("2.45", "$STEP")
    world.suite(text)
    for _ in range(5):
        world.seatrial("run", "suite.yaml", check=0)
    world.seatrial("baseline", "update", "suite.yaml", "--reason", "first", check=0)
    written = bounds(world)
    assert "runs: 5\n" in written
    assert " cores" in written
    assert "hardware.cores: " in written
    assert "env.STEP: " in written
    assert world.results().run not in written
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert [finding.verdict for finding in cell.findings if "bounds step_time" in finding.check] == ["passed"]
    good = world.results().run
    world.suite(text.replace("2.00", "3.00"))
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert cell.verdict == "slower"
    assert "changed since then: env.STEP 2.00 → 3.00" in cell.why
    assert (
        len({point.at_s for point in points(world) if point.run == world.results().run}) == 2
    )  # with its confirmation
    compared = world.seatrial("compare", good, "last", check=0).stdout
    assert "env.STEP 2.00 → 3.00" in compared
    assert "2 → 3 s" in compared
    world.seatrial("baseline", "update", "suite.yaml", "--reason", "again", check=0)
    assert "center: 2.0\n" in bounds(world)
    other = text.replace('echo "', 'echo "the ')
    world.suite(other)
    done = world.seatrial("run", "suite.yaml", check=1)
    assert "step_time was not checked: the bounds are for other conditions: command echo" in done.stdout
    (cell,) = world.results().cells
    assert (cell.verdict, cell.attempts[-1].unjudged) == ("invalid", True)
    assert points(world)[-1].good  # it counts for bounds of those conditions
    world.suite(other.replace("    env:", "    unjudged: record\n    env:"))
    world.seatrial("run", "suite.yaml", check=0)
    assert "different conditions" in world.seatrial("compare", good, "last", check=0).stdout
    world.suite(other.replace("    env:", "    under_test: [command]\n    env:"))
    world.seatrial("run", "suite.yaml", check=0)


def points(world: World) -> list[Point]:
    found = open_history(world.folder / "runs" / "history.db").series(benchmark="tiny", metric="step_time")
    return sorted((point for one in found for point in one.points), key=lambda point: point.at_s)


def test_the_last_run_of_a_real_suite_is_what_show_judges(world: World) -> None:
    world.suite(SUITE.replace("    matrix: {model: [a, b]}\n", ""))
    path = world.folder / "bounds.yaml"
    path.write_text("baselines:\n  tiny:\n    step_time: {lower: 1.0, upper: 2.0, center: 1.9, unit: s, cap: 0.5}\n")
    world.seatrial("run", "suite.yaml")
    shown = world.seatrial("baseline", "show", "suite.yaml", check=0).stdout
    assert "tiny step_time: 2.45 s is above 2 s" in shown
    moved = world.seatrial("baseline", "recenter", "suite.yaml", "--reason", "it is like that now", check=0)
    assert Path(path).read_text().count("reasons: [") == 1
    assert "-    step_time: {lower: 1.0" in moved.stdout
    assert "2.45 s is within" in world.seatrial("baseline", "show", "suite.yaml", check=0).stdout


def test_one_run_is_told_as_one(world: World) -> None:
    world.suite(SUITE)
    said = ("--metric", "step_time", "--better", "lower", "--reason", "x", "--dry-run")
    done = world.seatrial("baseline", "import", "suite.yaml", runs(world, "one", 10, 1, 2.44), *AB, *said, check=0)
    assert "would add 1 run of step_time" in done.stdout


def test_a_file_that_cannot_be_written_is_told_with_its_reason_and_no_folder_is_made(filled: World) -> None:
    (filled.folder / "bounds.yaml").symlink_to("disk/bounds.yaml")
    done = filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "x", check=3)
    assert "seatrial: cannot write bounds.yaml: link target not found: disk/bounds.yaml" in done.stderr
    assert not (filled.folder / "disk").exists()


def test_a_forced_recenter_of_a_marked_level_lets_the_next_update_count_it_and_settles_its_alarms(world: World) -> None:
    world.suite(SUITE.replace("    matrix: {model: [a, b]}\n", "    repeat: 6\n"))
    path = world.folder / "bounds.yaml"
    path.write_text("baselines:\n  tiny:\n    step_time: {lower: 2.0, upper: 2.1, center: 2.05, unit: s}\n")
    world.seatrial("run", "suite.yaml", check=1)
    run = world.results().run
    world.seatrial("history", "mark", run, "--regression", "--reason", "seen", check=0)
    refused = world.seatrial("baseline", "update", "suite.yaml", "--reason", "x", check=1).stderr
    assert "0 of 5 runs needed for a bound; bounds unchanged; left out: 12 × marked as a" in refused
    assert "`seatrial baseline recenter --force` to accept its level" in refused
    assert "`seatrial history mark RUN --fixed`" in refused
    world.seatrial("baseline", "recenter", "suite.yaml", "--reason", "so be it", check=1)
    world.seatrial("baseline", "recenter", "suite.yaml", "--reason", "so be it", "--force", check=0)
    again = world.seatrial("baseline", "recenter", "suite.yaml", "--reason", "again", check=1)
    assert "nothing to change" in again.stderr
    counted = world.seatrial("baseline", "update", "suite.yaml", "--reason", "the new level", check=1)
    assert "12 values of 1 run (bounds need 5 runs)" in counted.stderr
    series = open_history(world.folder / "runs" / "history.db").series(benchmark="tiny", metric="step_time")
    assert all(point.accepted for point in series[0].points)


def test_show_says_once_what_is_odd_about_the_file_and_why_an_entry_or_its_trial_is_switched_off(world: World) -> None:
    trial = SUITE.removeprefix("trials:\n")
    world.suite(
        "trials:\n"
        + trial.replace("    matrix: {model: [a, b]}\n", "")
        + trial.replace("tiny", "old").replace("    matrix:", "    disabled: no hardware for it\n    matrix:")
    )
    (world.folder / "bounds.yaml").write_text(
        "baselines:\n"
        "  tiny: {step_time: {lower: 2.0, upper: 2.9, center: 9.0, disabled: too noisy}}\n"
        "  old[model=a]: {step_time: {lower: 2.0, upper: 2.1}}\n"
        "  old[model=b]: {step_time: {lower: 2.0, upper: 2.1, disabled: broken since May}}\n"
        "  gone: {step_time: {lower: 2.0, upper: 2.1}}\n"
    )
    shown = world.seatrial("baseline", "show", "suite.yaml", check=0)
    assert shown.stderr.count("is outside its bounds") == 1
    assert "tiny step_time: no run yet; bounds 2 to 2.9; disabled: too noisy" in shown.stdout
    assert "old[model=a] step_time: trial is disabled: no hardware for it" in shown.stdout
    assert "old[model=b] step_time: disabled: broken since May" in shown.stdout
    assert "gone step_time: not used by any cell" in shown.stdout
    world.suite("trials:\n" + trial.replace("    matrix:", "    disabled: all of it\n    matrix:"))
    shown = world.seatrial("baseline", "show", "suite.yaml", check=0)
    assert "tiny step_time: disabled: too noisy" in shown.stdout


def test_a_table_of_torchprime_goes_to_the_benchmarks_that_its_runs_are_called_after(world: World) -> None:
    world.suite(SUITE.replace("    matrix:", "    benchmark: big-${model}\n    matrix:"))
    rows = [
        f"big-{model}-ab12cd3{n}-2025070{n}080000-0123abcd,2025-07-0{n} 08:00:00 UTC,2.{n}"
        for model in "ab"
        for n in range(1, 4)
    ]
    path = world.folder / "rows.csv"
    path.write_text("\n".join(["run_id,update_timestamp,metrics_step_time", *rows]) + "\n")
    arguments = ("baseline", "import", "suite.yaml", "rows.csv", "--reason", "from their table")
    refused = world.seatrial(*arguments, *AB, check=2).stderr
    assert "jobs: big-a (3), big-b (3)" in refused
    done = world.seatrial(*arguments, check=0).stdout
    assert "big-a: added 3 runs of step_time" in done
    assert "big-b: added 3 runs of step_time" in done


def test_runs_that_add_up_to_a_shift_fail_a_run_and_are_shown_where_bounds_are(filled: World) -> None:
    filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "first", check=0)
    values = [2.473, 2.472, 2.474, 2.473]
    rows = [f"nov{n},2026-11-0{n}T06:00:00Z,{value}" for n, value in enumerate(values, 1)]
    (filled.folder / "nov.csv").write_text("\n".join(["run,time,value", *rows]) + "\n")
    said = ("--metric", "step_time", "--reason", "more")
    filled.seatrial("baseline", "import", "suite.yaml", "nov.csv", *AB, *said, check=0)
    shown = filled.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout
    text = r"1\.\d+ % above its baseline since run imported-\w+-nov1 \(4 runs\)"
    assert re.search(rf"2\.473 s is within .*; it has been {text}", shown)
    assert re.search(text, filled.seatrial("history", "tiny", "--suite", "suite.yaml", check=0).stdout)
    filled.suite(SUITE.replace("2.45", "2.473"))
    done = filled.seatrial("run", "suite.yaml", *AB, check=1)
    assert filled.verdicts() == {"tiny[model=a]": "slower"}
    (cell,) = filled.results().cells
    assert len(cell.attempts) == 2  # confirmed, as for a single run out of bounds
    assert re.search(
        r"step_time has been .* above its baseline since run imported-\w+-nov1 \(5 runs\); this run alone: 2\.473 s",
        cell.why,
    )
    assert "(5 runs)" in done.stdout
    assert "above its baseline" in (filled.run().path / "report.html").read_text()
    filled.seatrial("history", "mark", "last", "--false-alarm", "--reason", "looked at it", check=0)
    filled.seatrial("run", "suite.yaml", *AB, check=0)


def test_recenter_accepts_a_shift_within_bounds(filled: World) -> None:
    filled.seatrial("baseline", "update", "suite.yaml", *AB, "--reason", "first", check=0)
    again = filled.seatrial("baseline", "recenter", "suite.yaml", *AB, "--reason", "x", check=1)
    assert "within the bounds" in again.stderr
    assert "run `seatrial baseline update`" in again.stderr
    rows = [f"nov{n},2026-11-0{n}T06:00:00Z,2.473" for n in range(1, 6)]
    (filled.folder / "nov.csv").write_text("\n".join(["run,time,value", *rows]) + "\n")
    said = ("--metric", "step_time", "--reason", "more")
    filled.seatrial("baseline", "import", "suite.yaml", "nov.csv", *AB, *said, check=0)
    moved = filled.seatrial("baseline", "recenter", "suite.yaml", *AB, "--reason", "new driver", check=0)
    assert "new level of 5 runs since run imported-" in moved.stderr
    assert "above its baseline" not in filled.seatrial("baseline", "show", "suite.yaml", *AB, check=0).stdout


def test_an_entry_that_existed_in_an_earlier_run_and_is_gone_is_a_warning(world: World) -> None:
    entry = "baselines: {'tiny[model=a]': {step_time: {lower: 2, upper: 3, unit: s}}}\n"
    world.suite(SUITE)
    world.suite(entry, "bounds.yaml")
    world.seatrial("run", "suite.yaml", *AB, check=0)
    ran = world.run().run
    assert "warning" not in world.seatrial("plan", "suite.yaml", "--strict", check=0).stderr
    world.suite(entry.replace("step_time", "step_tiem"), "bounds.yaml")
    told = f"warning: tiny[model=a] step_time is no longer checked: it had bounds in run {ran}, but bounds.yaml has no"
    for _ in range(2):  # it is remembered, not only compared with the run before
        assert told in world.seatrial("run", "suite.yaml", *AB, check=1).stderr  # step_tiem was not measured
    assert told not in world.seatrial("plan", "suite.yaml", "--select", "model=b", check=0).stderr
    for command in ("plan", "run"):
        runs = len(list((world.folder / "runs").iterdir()))
        done = world.seatrial(command, "suite.yaml", "--strict", check=2)
        assert told in done.stderr
        assert "--strict: 1 warning" in done.stderr
        assert len(list((world.folder / "runs").iterdir())) == runs
    world.suite(entry.replace("unit: s", "unit: s, disabled: moved to another suite"), "bounds.yaml")
    assert "had bounds" not in world.seatrial("plan", "suite.yaml", check=0).stderr


def test_several_warnings_are_one_line_except_where_they_are_listed(world: World) -> None:
    entries = "".join(f"    x{number}: {{lower: 1}}\n" for number in range(7))
    world.suite(SUITE)
    world.suite(f"baselines:\n  other:\n{entries}", "bounds.yaml")
    for command in (("run", "suite.yaml"), ("baseline", "update", "suite.yaml", "--reason", "x")):
        told = world.seatrial(*command).stderr
        assert "7 warnings about checks of suite.yaml; `seatrial plan suite.yaml` lists them" in told
        assert "never reported" not in told
    for listing in (("plan", "suite.yaml"), ("baseline", "show", "suite.yaml")):
        assert world.seatrial(*listing, check=0).stderr.count("so a slower run is never reported") == 7


def test_a_tolerance_that_accepts_any_loss_is_a_warning(world: World) -> None:
    loss = "    loss: {pattern: 'step_time (\\S+)', target: 2.0, tolerance: 0.9}\n    metrics"
    for tolerance, told in (("0.9", False), ("90%", False), ("30.0", True), ("1500%", True)):
        world.suite(SUITE.replace("    metrics", loss.replace("0.9", tolerance)))
        stderr = world.seatrial("plan", "suite.yaml", check=0).stderr
        assert (f"trial tiny: `loss.tolerance` {tolerance} accepts almost any loss" in stderr) is told
    world.seatrial("plan", "suite.yaml", "--strict", check=2)
