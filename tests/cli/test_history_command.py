"""`seatrial history` as a user types it: what it draws, what it keeps of a person's word, what it says to mistakes."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from record.past import cell, run, timed
from seatrial.cli import main
from seatrial.job import Verdict
from seatrial.record.history import History, TimeWindow, open_history
from seatrial.report.view.series import open_regressions
from world import World

DAY_S = 86_400.0


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks that both got worse at the 30th of 40 runs; the last of one of them was called slower."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    history = open_history(path)
    noise = random.Random(3)
    for number in range(40):
        level = 1.1 if number >= 30 else 1.0
        verdict = Verdict.SLOWER if number == 39 else Verdict.PASSED
        at_s = 1.79e9 + number * DAY_S
        cells = [
            timed(2.4 * level * noise.gauss(1, 0.005), "a", verdict, at_s, id="llama[model=8b]", trial="llama"),
            timed(9.0 * level * noise.gauss(1, 0.005), "b", at_s=at_s, id="llama[model=70b]", trial="llama"),
            cell("c", 1.0, id="works[runtime=host]", trial="works", started_s=at_s),
        ]
        history.add(run(f"nightly-{number:03}", *cells, started_s=at_s, commit=f"c0ffee{number:02}"))
    return path


@pytest.fixture
def past(world: World, made: Path) -> History:
    """The same as the history of this test's world."""
    path = world.folder / "runs" / "history.db"
    path.parent.mkdir()
    shutil.copy(made, path)
    return open_history(path)


def test_a_trial_is_drawn_with_bound_change_and_what_moved_together(past: History, world: World) -> None:
    done = world.seatrial("history", "llama", check=0, COLUMNS="90")
    lines = done.stdout.splitlines()
    assert "llama[model=8b]  step_time (s, lower is better)" in lines
    assert sum("open regression since run nightly-030" in line for line in lines) == 2
    assert any(line.startswith("  1  21 Oct 2026, 2.") and "commit c0ffee30" in line for line in lines)
    assert any("At commit c0ffee30 (21 Oct 2026), 2 series changed: 2 worse by" in line for line in lines)
    assert any("0.5 % false-alarm rate; from the history" in line for line in lines)
    assert lines[-1].startswith("1 alert, none reviewed")
    assert "\x1b" not in done.stdout
    drawn = [line for line in lines if "│" in line]
    assert len(drawn) == 16
    assert all(len(line) <= 90 for line in drawn)


def test_bounds_can_be_those_of_a_suite(past: History, world: World) -> None:
    bound = "{lower: 2.3, upper: 2.5, unit: s, better: lower, runs: 41, since: 2026-10-03, state: usable}"
    world.suite(f"version: 1\nbaselines:\n  llama[model=8b]:\n    step_time: {bound}\n", "bounds.yaml")
    trial = "{kind: runtime, matrix: {model: [8b]}, run: ['true'], baseline: bounds.yaml}"
    suite = world.suite(f"name: s\ntrials:\n  llama: {trial}\n")
    said = world.seatrial("history", "llama", "--suite", str(suite), check=0).stdout
    assert "bounds 2.3 to 2.5 s (41 runs since 3 Oct 2026; from " in said
    assert "bounds.yaml:4)" in said
    assert "from the history" not in said


def test_it_draws_in_ascii_where_the_output_can_show_nothing_else(past: History, world: World) -> None:
    done = world.seatrial("history", "llama", check=0, PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()
    assert "*" in done.stdout


def test_one_series_can_be_chosen_by_name_or_glob(past: History, world: World) -> None:
    exact = world.seatrial("history", "llama", "--benchmark", "llama[model=8b]", check=0).stdout
    assert "model=8b" in exact
    assert "model=70b" not in exact
    assert "model=70b" in world.seatrial("history", "llama", "--benchmark", "*70b?", "--last", "10", check=0).stdout
    assert "steps.import numpy.seconds" in world.seatrial("history", "works", "--metric", "steps.*", check=0).stdout


def test_json_has_all_that_is_drawn(past: History, world: World) -> None:
    told: dict[str, Any] = json.loads(world.seatrial("history", "llama", "--json", check=0).stdout)
    assert (told["version"], told["trial"]) == (1, "llama")
    assert [one["benchmark"] for one in told["series"]] == ["llama[model=70b]", "llama[model=8b]"]
    assert len(told["series"][0]["points"]) == 40
    assert told["series"][0]["changes"][0]["run"] == "nightly-030"
    assert told["series"][0]["bound"]["state"] == "usable"
    assert [len(group["moved"]) for group in told["together"]] == [2]
    assert told["precision"] == {
        "alarms": 1,
        "confirmed": 0,
        "false": 0,
        "accepted": 0,
        "unjudged": 1,
        "precision": None,
    }


def test_an_empty_history_says_so_and_is_not_created_by_asking(world: World) -> None:
    assert "is empty" in world.seatrial("history", check=0).stdout
    assert "is empty" in world.seatrial("history", "llama", check=2).stderr
    assert not (world.folder / "runs").exists()


def test_without_a_trial_it_lists_what_there_is(past: History, world: World) -> None:
    said = world.seatrial("history", check=0).stdout
    assert "40 runs, 21 Sep 2026 to 30 Oct 2026, latest nightly-039" in said
    assert "llama  40 runs, 2 benchmarks with 2 metrics, last 30 Oct 2026" in said
    told = json.loads(world.seatrial("history", "--json", check=0).stdout)
    assert [one["trial"] for one in told["trials"]] == ["llama", "works"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["lama"], "trial not found: 'lama'; did you mean llama?"),
        (["llama", "--metric", "step"], "metric not found in this trial: 'step'; did you mean step_time?"),
        (["llama", "--benchmark", "llama[model=9b]"], "did you mean llama[model="),
        (["--metric", "step_time"], "need a TRIAL"),
        (["mark", "nightly-0", "--fixed", "--reason", "x"], "ambiguous run 'nightly-0': matches 40 runs: nightly-"),
        (
            ["mark", "weekly", "--fixed", "--reason", "x"],
            "run not found: 'weekly' in the history; did you mean nightly-",
        ),
        (["mark", "last", "--fixed"], "--reason is required"),
        (["mark", "last", "--fixed", "--reason", "  "], "--reason is required"),
        (["mark", "last", "--reason", "x"], "--false-alarm, --regression, --accepted, --fixed, --clear"),
        (
            ["mark", "last", "--fixed", "--reason", "x", "--benchmark", "llama"],
            "benchmark not found in run nightly-039: 'llama'; did you mean",
        ),
        (["llama", "--history", "mysql://x/y"], "neither a file nor a PostgreSQL server"),
        (["llama", "--last", "0"], "0 is not in the range"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(made: Path, args: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["history", *args], env={"SEATRIAL_HISTORY": str(made)})
    assert done.exit_code == 2
    assert says in done.stderr
    assert open_history(made).marks() == []


def test_a_trial_called_like_a_command_can_still_be_shown(world: World) -> None:
    history = open_history(world.folder / "runs" / "history.db")
    history.add(run("r1", timed(1.0, trial="alarms", id="alarms[n=a]")))
    assert "alarms[n=a]" in world.seatrial("history", "show", "alarms", check=0).stdout
    assert "no alerts" in world.seatrial("history", "alarms", check=0).stdout


def test_a_word_is_about_the_benchmark_that_raised_the_alarm(past: History, world: World) -> None:
    done = world.seatrial("history", "mark", "last", "--false-alarm", "--reason", "the host was busy", check=0)
    assert done.stdout == "llama[model=8b] of nightly-039: false-alarm\n"
    (mark,) = past.marks()
    assert (mark.run, mark.benchmark, mark.label, mark.reason) == (
        "nightly-039",
        "llama[model=8b]",
        "false-alarm",
        "the host was busy",
    )
    assert mark.by
    said = world.seatrial("history", "llama", check=0).stdout
    assert "false-alarm  run nightly-039: the host was busy" in said
    assert "1 alert: 0 confirmed, 1 false alarm; precision 0 % of those reviewed" in said
    listed = world.seatrial("history", "alarms", check=0).stdout
    assert f"run nightly-039, commit c0ffee39: false-alarm ({mark.by}): the host was busy" in listed


def test_a_regression_that_no_alarm_found_can_be_marked_fixed_and_taken_back(past: History, world: World) -> None:

    def words() -> list[str]:
        (series,) = past.series(benchmark="llama[model=70b]")
        return [point.mark for point in series.points if point.mark]

    done = world.seatrial("history", "mark", "nightly-030", "--regression", "--reason", "driver", check=0)
    assert "has no alerts" in done.stderr
    world.seatrial("history", "mark", "nightly-035", "--fixed", "--reason", "driver 2", check=0)
    assert words() == ["regression", "fixed"]
    world.seatrial("history", "mark", "nightly-030", "--clear", "--reason", "it was not", check=0)
    assert words() == ["fixed"]


def test_an_accepted_level_is_known_without_the_suite(past: History, world: World) -> None:
    at_s = 1.79e9 + 50 * DAY_S
    past.mark("nightly-030", "llama[model=8b]", "accepted", "we keep the driver", "ann", at_s, "step_time")
    said = world.seatrial("history", "llama", "--benchmark", "llama[model=8b]", check=0).stdout
    assert "open regression" not in said
    assert "unreviewed" not in said
    assert "accepted  run nightly-030: we keep the driver" in said
    assert "(10 runs since 21 Oct 2026, 0.5 % false-alarm rate" in said
    assert "1 alert, accepted as a new level" in said
    assert "accepted (ann): we keep the driver" in world.seatrial("history", "alarms", check=0).stdout
    assert "open regression" in world.seatrial("history", "llama", "--benchmark", "llama[model=70b]", check=0).stdout


def test_a_very_long_reason_is_kept_whole_and_told_in_short(past: History, world: World) -> None:
    reason = "why " * 25_000
    world.seatrial("history", "mark", "last", "--regression", "--reason", reason, check=0)
    assert past.marks()[0].reason == reason
    assert len(world.seatrial("history", "alarms", check=0).stdout) < 5_000


def test_a_broken_history_is_infrastructure(world: World) -> None:
    (world.folder / "runs").mkdir()
    (world.folder / "runs" / "history.db").write_bytes(b"garbage" * 1000)
    for args in (["llama"], [], ["alerts"], ["mark", "r", "--fixed", "--reason", "x"]):
        assert "Move it away" in world.seatrial("history", *args, check=3).stderr


def test_each_cell_of_a_trial_shows_what_it_came_to_in_each_run(world: World) -> None:
    """Passes, failures with the last reason, retries and runs without the cell; no metric is drawn unasked."""
    history = open_history(world.folder / "runs" / "history.db")
    for number, (first, second) in enumerate(
        [("passed", "passed"), ("failed", "flaky"), ("infra", ""), ("passed", "skipped")]
    ):
        cells = [
            cell(
                hash_,
                1.0,
                verdict=Verdict.PASSED if word == "flaky" else Verdict(word),
                flaky=word == "flaky",
                why="" if word in ("passed", "flaky") else f"because {number}",
            )
            for hash_, word in (("a", first), ("b", second))
            if word
        ]
        history.add(run(f"r{number}", *cells, cell("c", 1.0), started_s=1.79e9 + number * DAY_S))
    lines = world.seatrial("history", "t", check=0).stdout.splitlines()
    assert lines == [
        "t  3 cells over 4 runs, newest on the right",
        "  t[n=a]  ✓✗!✓  2 of 4 passed, 1 failed, 1 infra",
        "      last infra 23 Sep 2026 14:13, run r2: because 2",
        "  t[n=b]  ✓↻ ○  2 of 2 passed, 1 flaky, 1 not run",
        "  t[n=c]  ✓✓✓✓  4 of 4 passed",
        "",
        "6 unchecked metrics not shown; use --all for all of them, --metric NAME for one",
    ]
    told = json.loads(world.seatrial("history", "t", "--json", check=0).stdout)
    assert [(one["run"], one["verdict"], one["flaky"]) for one in told["cells"] if one["id"] == "t[n=b]"] == [
        ("r0", "passed", False),
        ("r1", "passed", True),
        ("r3", "skipped", False),
    ]


def test_of_many_cells_those_with_a_failure_are_listed_and_the_others_counted(world: World) -> None:
    history = open_history(world.folder / "runs" / "history.db")
    verdicts = {7: Verdict.FAILED, 30: Verdict.TIMEOUT}
    cells = [cell(f"{n:02}", 1.0, verdict=verdicts.get(n, Verdict.PASSED), metrics={}) for n in range(40)]
    history.add(run("r1", *cells))
    lines = world.seatrial("history", "t", check=0).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  t[")] == ["t[n=07]", "t[n=30]"]
    assert "  38 cells passed in every run" in lines


def test_one_failure_of_many_cells_is_named_once(world: World) -> None:
    history = open_history(world.folder / "runs" / "history.db")
    why = {n: "out of memory" if n else "no such file" for n in range(27)}
    cells = [cell(f"{n:02}", 1.0, verdict=Verdict.FAILED, why=text, metrics={}) for n, text in why.items()]
    history.add(run("r1", *cells))
    lines = world.seatrial("history", "t", check=0).stdout.splitlines()
    assert [line.split(":")[-1] for line in lines if " last failed " in line] == [" no such file", " out of memory"]
    assert sum(line.startswith("      these 26 last failed ") for line in lines) == 1


def test_metrics_that_nobody_judges_are_counted_and_shown_when_asked(world: World) -> None:
    history = open_history(world.folder / "runs" / "history.db")
    metrics = {"loss": 0.5, "step_time": {"value": 1.0, "unit": "s", "better": "lower"}}
    history.add(run("r1", timed(1.0, metrics=metrics)))
    assert "1 unchecked metric not shown" in world.seatrial("history", "t", check=0).stdout
    assert "t[n=a] loss  " in world.seatrial("history", "t", "--all", check=0).stdout
    assert "loss (no unit)" in world.seatrial("history", "t", "--metric", "loss", check=0).stdout


def test_series_of_few_runs_get_a_line_each_and_one_sentence_about_bounds(world: World) -> None:
    history = open_history(world.folder / "runs" / "history.db")
    for number in (1, 2):
        history.add(run(f"r{number}", *(timed(number, f"{n:02}") for n in range(27))))
    said = world.seatrial("history", "t", check=0).stdout
    assert said.count("runs needed for a bound") == 1
    assert "27 metrics: no bounds yet" in said
    assert "└" not in said  # no chart
    assert "27 cells passed in every run" in said


def test_help_shows_the_options_of_the_trial_and_the_other_commands(world: World) -> None:
    said = world.seatrial("history", "--help", check=0).stdout
    assert all(word in said for word in ("--benchmark", "--last", "mark", "alerts"))


def test_alarms_is_a_hidden_alias_of_alerts(past: History, world: World) -> None:
    listed = world.seatrial("history", "alerts", check=0).stdout
    assert "run nightly-039, commit c0ffee39" in listed
    assert world.seatrial("history", "alarms", check=0).stdout == listed
    asked = json.loads(world.seatrial("history", "alerts", "--json", check=0).stdout)
    assert json.loads(world.seatrial("history", "alarms", "--json", check=0).stdout) == asked
    assert "alarms" not in world.seatrial("history", "--help", check=0).stdout


def test_runs_of_seatrial_are_in_its_history(world: World, tmp_path: Path) -> None:
    suite = world.suite("name: s\ntrials:\n  shell: {kind: runtime, run: ['true']}\n")
    world.seatrial("run", str(suite), check=0)
    assert "shell  1 run" in world.seatrial("history", check=0).stdout
    assert "1 run" in world.seatrial("history", "shell", check=0).stdout


def test_history_until_a_day_knows_nothing_of_later_runs(made: Path) -> None:
    arguments = ["history", "llama", "--metric", "step_time", "--json", "--history", str(made)]
    whole, before, since = (
        json.loads(CliRunner().invoke(main, [*arguments, *options]).stdout)["series"]
        for options in ([], ["--until", "2026-10-16"], ["--since", "2026-10-16T00:00"])
    )
    assert [len(one["points"]) for one in whole] == [40, 40]
    assert [len(one["points"]) for one in before] == [26, 26]  # that day included
    assert [len(one["points"]) for one in since] == [15, 15]
    assert all(one["changes"] for one in whole)
    assert not any(one["changes"] for one in before)
    wrong = CliRunner().invoke(main, [*arguments, "--until", "soon"])
    assert (wrong.exit_code, "use 2026-10-03" in wrong.stderr) == (2, True)


def test_history_of_a_period_without_runs_says_so(made: Path) -> None:
    done = CliRunner().invoke(main, ["history", "llama", "--until", "2020-01-01", "--history", str(made)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing to show for this period; the runs of llama are from " in done.stderr


def test_a_regression_that_is_open_is_one_of_a_strict_run(made: Path) -> None:
    history = open_history(made)
    found = open_regressions(history.filled(history.names(run="nightly-039", judged=True)))
    assert found == [
        f"llama[model={model}] step_time: open regression since run nightly-030" for model in ("70b", "8b")
    ]
    before = TimeWindow(until_s=1.79e9 + 28 * DAY_S)
    assert open_regressions(history.filled(history.names(judged=True), window=before)) == []
