"""What a sound suite means once it is loaded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.suite import Suite, from_data, load

Make = Callable[[Any], Suite]


def test_everything_has_a_default(suite_of: Make) -> None:
    suite = suite_of("trials: {t: {kind: probe}}")
    assert suite.name == "suite"
    assert suite.targets["here"].kind == "local"
    assert suite.machine("here").target == "here"
    assert (suite.max_cells, suite.max_cost, suite.estimate_s) == (100_000, None, None)
    assert suite.trials["t"].retries == 1
    assert suite.trials["t"].retry_on == ("infra",)
    assert suite.trials["t"].timeout.run_s == 6 * 3600


def test_words_that_older_yaml_bends_stay_words(suite_of: Make) -> None:
    words = "no, on, yes, 2026-12-01, 12:30, 010, 0x1f, 1_000, .inf, 99999999999999999999"
    text = "trials: {t: {kind: probe, run: [" + words + "]}}"
    assert suite_of(text).trials["t"].model_dump()["run"] == tuple(words.split(", "))


def test_anchors_aliases_and_merges_work(suite_of: Make) -> None:
    suite = suite_of("""
x-shared: &gpu {gpu: {count: 1, memory: 8Gi}, price: 1}
machines:
  a: *gpu
  b: {<<: *gpu, price: 2}
  c: {<<: [{price: 3}, *gpu], cpu: 4}
trials: {t: {kind: probe, machine: all}}
""")
    assert [machine.price for machine in suite.machines.values()] == [1, 2, 3]
    assert suite.machines["c"].capability("gpu.memory") == 8 * 2**30


def test_the_data_of_a_suite_is_json_and_makes_the_same_suite(tmp_path: Path, kinds: Any) -> None:
    (tmp_path / "more.yaml").write_text("machines: {big: {cpu: 8, memory: 1.5Gi}}\n")
    path = tmp_path / "suite.yaml"
    path.write_text(
        'include: [more.yaml]\ntrials: {t: {kind: probe, machine: all, matrix: {v: [1, 0.5, true, null, "3.10"]}}}\n'
    )
    suite = load(path, *kinds)
    again = from_data(json.loads(json.dumps(suite.data)), suite.directory, kinds[0], kinds[1], path)
    assert again == suite


def test_a_retry_count_and_the_times_are_read_with_their_units(suite_of: Make) -> None:
    trial = suite_of(
        "trials: {t: {kind: probe, estimate: 1h30m, timeout: {queue: 1d, run: null, stall: 500ms, grace: 2.5}}}"
    ).trials["t"]
    assert trial.estimate_s == 5400
    assert (trial.timeout.queue_s, trial.timeout.run_s, trial.timeout.stall_s, trial.timeout.grace_s) == (
        86400,
        None,
        0.5,
        2.5,
    )


def test_a_machine_tells_what_it_has(suite_of: Make) -> None:
    suite = suite_of({
        "machines": {
            "a": {"gpu": {"model": "A100", "memory": "40Gi"}, "features": {"ipu": 4}, "select": {"pool": "x"}},
            "b": {},
        },
        "trials": {"t": {"kind": "probe"}},
    })  # fmt: skip
    a, b = suite.machines["a"], suite.machines["b"]
    assert [a.capability(name) for name in ("gpu.count", "gpu.model", "gpu.memory", "features.ipu", "cpu")] == [
        *(1, "A100", 40 * 2**30, 4, None),
    ]
    assert [b.capability(name) for name in ("gpu.count", "gpu.model", "features.ipu")] == [0, 0, 0]
    assert a.resources().gpu.memory_bytes == 40 * 2**30
    assert a.resources().select == {"pool": "x"}


def test_repeating_a_suite_reaches_its_data_too(suite_of: Make, kinds: Any) -> None:
    suite = suite_of("trials: {t: {kind: probe}, u: {kind: probe, repeat: 7}}").repeated(3)
    again = from_data(suite.data, suite.directory, *kinds)
    assert {trial.repeat for trial in again.trials.values()} == {3}
    assert again.trials == suite.trials


@pytest.mark.parametrize("step", ["run true", "run t*", "run ${cmd}", "run echo ${cmd} a", "run echo x a", "*"])
def test_an_xfail_may_name_a_step_by_glob_and_by_what_a_placeholder_becomes(suite_of: Make, step: str) -> None:
    trial = {"kind": "probe", "matrix": {"cmd": ["x", "y"]}, "run": ["true", "${cmd}", "echo ${cmd} a"]}
    suite = suite_of({"trials": {"t": {**trial, "xfail": [{"step": step, "why": "known"}]}}})
    assert suite.trials["t"].xfail[0].step == step
