"""`seatrial compare`: what moved between two runs, by how much and how sure, and what could not be compared."""

import json
import random
from pathlib import Path

import msgspec
import pytest

from record.past import run, timed
from seatrial.job import CellResult, RunResults, Verdict
from seatrial.record.history import open_history
from seatrial.report.view.compare import RunComparison, RunPair
from world import World


def values(*metrics: float, name: str = "llama", better: str = "lower", **changes: str) -> list[CellResult]:
    """One cell for each repeat."""
    return [
        timed(value, f"{name}{number}", better=better, id=f"{name}[repeat={number}]", benchmark=name, **changes)
        for number, value in enumerate(metrics, 1)
    ]


def kept(world: World, results: RunResults) -> Path:
    folder = world.folder / "runs" / results.run
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    (folder / "results.json").write_bytes(msgspec.json.encode(results))
    return folder


def compared(before: list[CellResult], after: list[CellResult]) -> RunComparison:
    return RunPair(run("before", *before), run("after", *after)).compare()


def test_repeats_of_both_sides_tell_a_move_from_noise() -> None:
    noise = random.Random(2)
    before = values(*(noise.gauss(2.0, 0.02) for _ in range(10)))
    found = compared(before, values(*(noise.gauss(2.2, 0.02) for _ in range(10))))
    (one,) = found.metrics
    assert one.moved
    assert one.way == "worse"
    assert one.size == pytest.approx(0.1, abs=0.02)
    assert one.low is not None
    assert one.high is not None
    assert one.low < 0.1 < one.high
    assert (one.n_before, one.n_after) == (10, 10)
    (same,) = compared(before, values(*(noise.gauss(2.0, 0.02) for _ in range(10)))).metrics
    assert not same.moved


def test_single_runs_are_compared_with_the_noise_of_the_history(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    noise = random.Random(4)
    for number in range(30):
        history.add(run(f"r{number}", *values(noise.gauss(2.0, 0.02))))
    before, after, near = (run(name, *values(value)) for name, value in (("b", 2.0), ("a", 2.2), ("n", 2.03)))
    for results in (before, after, near):
        history.add(results)
    (one,) = RunPair(before, after).compare(history.filled(history.names(run="a"))).metrics
    assert one.moved
    assert one.noise == pytest.approx(0.01, abs=0.005)
    assert one.noise_runs >= 29
    assert not RunPair(before, near).compare(history.filled(history.names(run="n"))).metrics[0].moved


def test_single_runs_without_history_are_never_called_sure() -> None:
    (one,) = compared(values(2.0), values(3.0)).metrics
    assert not one.moved
    assert one.maybe
    assert "no history" in one.why


def test_the_surest_and_biggest_moves_come_first() -> None:
    noise = random.Random(5)

    def ten(level: float) -> list[float]:
        return [noise.gauss(level, 0.01 * level) for _ in range(10)]

    before = [*values(*ten(1.0), name="same"), *values(*ten(1.0), name="small"), *values(*ten(1.0), name="big")]
    after = [*values(*ten(1.0), name="same"), *values(*ten(1.06), name="small"), *values(*ten(2.0), name="big")]
    assert [one.benchmark for one in compared(before, after).metrics] == ["big", "small", "same"]


def test_metrics_of_other_hardware_are_not_compared() -> None:
    found = compared(values(2.0), values(9.0, fingerprint="beef0000"))
    assert found.metrics == []
    assert [(one.benchmark, one.before, one.after) for one in found.fingerprints] == [
        ("llama", ["f00d0000"], ["beef0000"])
    ]


def test_a_failed_cell_gives_no_metric_but_another_verdict() -> None:
    failed = timed(0.1, "llama1", Verdict.FAILED, id="llama[repeat=1]", benchmark="llama", why="loss is nan")
    found = compared(values(2.0), [failed])
    assert found.metrics == []
    assert [(one.before, one.after, one.why) for one in found.verdicts] == [("passed", "failed", "loss is nan")]


def test_metrics_in_other_units_are_converted_before_they_are_compared() -> None:
    metrics = {"step_time": {"value": 2600.0, "unit": "ms", "better": "lower"}}
    (one,) = compared([timed(2.4)], [timed(0.0, metrics=metrics)]).metrics
    assert (one.unit, one.before, one.after) == ("s", 2.4, 2.6)
    other = {"step_time": {"value": 2.6, "unit": "GiB", "better": "lower"}}
    assert compared([timed(2.4)], [timed(0.0, metrics=other)]).metrics == []


def test_a_metric_that_was_zero_can_move() -> None:
    (one,) = compared(values(*[0.0] * 6), values(*[1.0] * 6)).metrics
    assert (one.moved, one.way, one.size) == (True, "worse", None)


def test_a_plain_sentence_comes_first_then_all_that_differs(world: World) -> None:
    before = run("before", *values(*[2.0, 2.01, 1.99] * 3), *values(1.0, name="gone"), commit="c0ffee")
    slow = [timed(2.2, f"llama{n}", Verdict.SLOWER, id=f"llama[repeat={n}]", benchmark="llama") for n in range(1, 10)]
    after = run("after", *slow, *values(1.0, name="new"))
    kept(world, before)
    kept(world, after)
    lines = world.seatrial("compare", "before", "after", check=0).stdout.splitlines()
    assert lines[0].startswith("1 of 1 metric changed (1 worse), for example step_time of llama: +10 %; 1 verdict")
    assert lines[1] == "before (commit c0ffee) → after, 1 cell in both"
    assert any("2 → 2.2 s  +10 %" in line and "confidence" in line for line in lines)
    assert "only in before" in lines
    assert "  gone" in lines
    assert "only in after" in lines
    assert any("passed → slower" in line for line in lines)


def test_a_run_with_repeats_and_one_without_have_their_cells_in_common(world: World) -> None:
    repeats = [
        timed(value, f"r{number}", id=f"llama[model=8b,repeat={number}]")
        for number, value in enumerate((2.0, 2.01, 1.99, 2.0, 2.01), 1)
    ]
    once = [timed(3.0, "once", id="llama[model=8b]")]
    kept(world, run("before", *once))
    kept(world, run("after", *repeats))
    said = world.seatrial("compare", "before", "after", check=0).stdout
    assert said.startswith("1 of 1 metric changed (1 better), for example step_time of llama[model=8b]: -33 %; no")
    assert "1 cell in both" in said
    assert "only in" not in said


def test_of_repeats_the_worst_verdict_counts_and_how_many_had_it_is_said() -> None:
    after = values(2.0, 2.0, 2.0)
    after[1] = timed(2.0, "llama2", Verdict.FAILED, id="llama[repeat=2]", benchmark="llama", why="loss is nan")
    (other,) = compared(values(2.0, 2.0), after).verdicts
    assert (other.id, other.before, other.after, other.why) == (
        "llama",
        "passed",
        "failed",
        "1 of 3 repeats: loss is nan",
    )


def test_a_cell_that_was_renamed_and_kept_its_benchmark_is_the_same_cell() -> None:
    before = [timed(2.0, "a", id="old[model=8b]", benchmark="llama"), timed(1.0, "b", id="old[model=70b]")]
    after = [timed(2.0, "c", id="new[model=8b]", benchmark="llama"), timed(1.0, "d", id="new[model=70b]")]
    found = compared(before, after)
    assert (found.cells, found.only_before, found.only_after) == (1, ["old[model=70b]"], ["new[model=70b]"])


def test_runs_may_be_paths_of_folders_or_results(world: World) -> None:
    folders = [kept(world, run(name, *values(2.0))) for name in ("before", "after")]
    (folders[1] / "plan.json").unlink()
    said = world.seatrial("compare", str(folders[0]), str(folders[1] / "results.json"), check=0).stdout
    assert said.startswith("No significant change in 1 metric; no verdict changed.")


def test_json_tells_the_same(world: World) -> None:
    kept(world, run("before", *values(*[2.0, 2.01, 1.99] * 3)))
    kept(world, run("after", *values(*[2.5, 2.51, 2.49] * 3)))
    told = json.loads(world.seatrial("compare", "before", "after", "--json", check=0).stdout)
    assert (told["version"], told["before"], told["after"]) == (1, "before", "after")
    assert [(one["moved"], one["way"]) for one in told["figures"]] == [(True, "worse")]


@pytest.mark.parametrize("args", [("nowhere", "before"), ("before", "x" * 5000)])
def test_a_run_that_is_not_there_is_named(world: World, args: tuple[str, str]) -> None:
    kept(world, run("before", *values(2.0)))
    missing = "nowhere" if "nowhere" in args else "x" * 80
    assert missing in world.seatrial("compare", *args, check=2).stderr


def test_a_broken_history_takes_the_noise_not_the_comparison(world: World) -> None:
    kept(world, run("before", *values(2.0)))
    kept(world, run("after", *values(3.0)))
    (world.folder / "runs" / "history.db").write_bytes(b"garbage" * 1000)
    done = world.seatrial("compare", "before", "after", check=0)
    assert "compared without the history" in done.stderr
    assert "possible changes" in done.stdout


def test_runs_with_nothing_in_common_say_so(world: World) -> None:
    kept(world, run("before", *values(2.0, name="a")))
    kept(world, run("after", *values(3.0, name="b")))
    assert world.seatrial("compare", "before", "after", check=0).stdout.startswith(
        "The two runs have no cells in common."
    )


def test_cells_with_one_change_and_one_reason_are_one_entry(world: World) -> None:
    cells = [(f"{n:02}", f"t[n={n:02}]") for n in range(27)]
    kept(world, run("before", *(timed(1.0, name, id=id_) for name, id_ in cells)))
    bad = (timed(1.0, name, Verdict.FAILED, id=id_, why="exited 3 (expected 0)") for name, id_ in cells)
    kept(world, run("after", *bad))
    said = world.seatrial("compare", "before", "after", check=0).stdout
    assert "  ✗ passed → failed  t[n=00], t[n=01], t[n=02] and 24 more cells" in said
    assert said.count("exited 3 (expected 0)") == 1
