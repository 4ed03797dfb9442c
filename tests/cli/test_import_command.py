"""`seatrial import`: a suite from torchprime's bounds, which loads as it is, and what is said of other files."""

from pathlib import Path

import pytest

from seatrial.baseline import read_for_trials
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import load
from world import World

THEIR = """\
benchmarks:
  llama-3-8b:
    name: Llama 3.0 8B
    step_time_lower_bound: 2.68109009
    step_time_upper_bound: 2.789223
    confidence_interval: 0.05407
    average: 2.7352
    sample_size: 427
  llama-3_1-8b-sft:
    name: 'Llama 3.1: "SFT" # 1'
    step_time_lower_bound: 0.75
    step_time_upper_bound: 0.85
    confidence_interval: 0.05
    average: 0.8
    sample_size: 11
    target_loss: 0.4735
    loss_tolerance: 0.001
  ds-v3-shallow:  # dummy number
    name: DeepSeek
    step_time_lower_bound: 1
    step_time_upper_bound: 12
    disabled: no TPUs this week
  half: {name: Half, step_time_lower_bound: 1, step_time_upper_bound: 1.1, target_loss: 2}
metadata: {confidence_level: 0.999}
"""


def their(world: World, text: str = THEIR) -> Path:
    path = world.folder / "step_time_bounds.yaml"
    path.write_text(text)
    return path


def test_the_suite_plans_as_it_is_with_every_benchmark_and_its_bounds(world: World) -> None:
    path = their(world)
    done = world.seatrial("import", "step_time_bounds.yaml", check=0)
    assert path.read_text() == THEIR
    assert "wrote seatrial.yaml: 4 training trials" in done.stdout
    assert "the command of each job" in done.stdout
    assert "the target or the tolerance of the loss of half (check left out)" in done.stdout
    assert "invented ones: ds-v3-shallow" in done.stdout
    assert "step_time_bounds.yaml:18:19" in done.stderr
    plan = world.seatrial("plan", "seatrial.yaml", check=0).stdout
    assert "3 cells, 1 excluded of 4 combinations" in plan
    assert "no TPUs this week" in plan
    suite = load(world.folder / "seatrial.yaml", *models(), read_for_trials)
    sft = suite.trials["llama-3_1-8b-sft"]
    assert sft.loss is not None  # type: ignore[attr-defined]
    loss = next(bound for cell in expand(suite).cells for bound in cell.bounds if bound.metric == "loss")
    assert (loss.center, loss.better) == (0.4735, None)
    assert (sft.benchmark, sft.baseline) == ("llama-3_1-8b-sft", "step_time_bounds.yaml")
    assert suite.baselines["step_time_bounds.yaml"].bounds("llama-3-8b")[0].upper == 2.789223


def test_a_job_whose_command_nobody_wrote_fails_and_says_so(world: World) -> None:
    their(world)
    world.seatrial("import", "step_time_bounds.yaml", check=0)
    world.seatrial("run", "seatrial.yaml", "--select", "llama-3-8b", check=1)
    (cell,) = world.results().cells
    log = (world.run().attempt(cell.hash, 1) / "log.txt").read_text()
    assert "set the command for llama-3-8b in this suite" in log


def test_a_command_gets_the_names_as_one_word_each_whatever_is_in_them(world: World) -> None:
    their(world, 'benchmarks:\n  "a b; touch ${x} $(id) \'":\n    {name: "N\\tx", step_time_upper_bound: 1}\n')
    command = "python3 -c 'import sys; print(sys.argv[1:])' {benchmark} {name} {other}"
    (world.folder / "sub").mkdir()
    done = world.seatrial("import", "step_time_bounds.yaml", "--command", command, "--out", "sub/out.yaml", check=0)
    assert "1 training trial, checked against ../step_time_bounds.yaml" in done.stdout
    suite = load(world.folder / "sub" / "out.yaml", *models(), read_for_trials)
    (trial,) = suite.trials.values()
    assert trial.baseline == "../step_time_bounds.yaml"
    world.seatrial("run", "sub/out.yaml")
    (cell,) = world.results().cells
    log = (world.run().attempt(cell.hash, 1) / "log.txt").read_text()
    assert """["a b; touch ${x} $(id) '", 'N x', '{other}']""" in log


def test_nothing_is_written_over_unless_told(world: World) -> None:
    their(world)
    world.suite("mine", "seatrial.yaml")
    assert "already exists" in world.seatrial("import", "step_time_bounds.yaml", check=2).stderr
    assert (world.folder / "seatrial.yaml").read_text() == "mine"
    world.seatrial("import", "step_time_bounds.yaml", "--force", check=0)
    assert (world.folder / "seatrial.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("trials: {a: {kind: runtime}}", "is already a suite"),
        ("baselines: {}", "is a Seatrial baseline"),
        (
            "images: {}\nnotebooks: []\n",
            "`worker` and `tests` (tgis-tester's config.yaml), found images, notebooks",
        ),
        ("- 1", "found no map"),
        ("benchmarks: {a: {step_time_lower_bound: nan, step_time_upper_bound: 1}}", "step_time_bounds.yaml:1:41"),
        ("metadata: {}\nbenchmarks:\n", "step_time_bounds.yaml:2:1: `benchmarks` is empty"),
        (
            "benchmarks: {a: {step_time_upper_bound: 1, target_loss: 2, loss_tolerance: -1}}",
            "step_time_bounds.yaml:1:76: invalid `loss_tolerance`: expected a distance",
        ),
    ],
)
def test_other_files_are_told_for_what_they_are(world: World, text: str, told: str) -> None:
    their(world, text)
    assert told in world.seatrial("import", "step_time_bounds.yaml", check=2).stderr
    assert not (world.folder / "seatrial.yaml").exists()


def test_a_suite_that_could_not_be_loaded_is_told_by_the_lines_of_its_source_and_not_written(world: World) -> None:
    their(world, "benchmarks:\n  a: {step_time_upper_bound: 1}\n  a.b: {step_time_upper_bound: 1}\n")
    done = world.seatrial("import", "step_time_bounds.yaml", "--command", "train ${size}", check=2)
    for line, trial in ((2, "a"), (3, "a.b")):
        told = f"step_time_bounds.yaml:{line}:1: cannot create a suite from this: unknown name ${{size}}"
        assert told in done.stderr
        assert f" (trials.{trial}.command)" in done.stderr
    assert not (world.folder / "seatrial.yaml").exists()


def test_a_folder_that_is_not_there_is_told_and_not_made(world: World) -> None:
    their(world)
    done = world.seatrial("import", "step_time_bounds.yaml", "--out", "nowhere/suite.yaml", check=2)
    assert "cannot write nowhere/suite.yaml: folder not found: nowhere" in done.stderr
    assert not (world.folder / "nowhere").exists()


def test_tgis_testers_config_becomes_a_suite_that_plans(world: World) -> None:
    (world.folder / "config").mkdir()
    (world.folder / "cases.yaml").write_text("- {name: a, request: {}, response: {}}\n")
    (world.folder / "config" / "small.yaml").write_text("""\
cluster: {api_endpoint: https://api.example:6443, namespace: tests, service_account_name: tester}
worker:
  {image_uri: registry.example/tgis, tls_secret: tls, ready_timeout_secs: 60, scheduled_timeout_secs: 60,
   max_parallel_workers: 2, max_connection_retries: 3, ingress_hostname: 'apps.example:443',
   transformers_cache_path: /models}
runner: {object_store_secret: s, object_store_bucket: b, object_store_endpoint: e, object_store_region: r}
tests: [{model: org/small, configs: [{}, {dtype_str: float32}], cases: [cases.yaml]}]
""")
    done = world.seatrial("import", "config/small.yaml", "--out", "suite.yaml", check=0)
    assert "wrote suite.yaml: 2 serving trials, one per model configuration" in done.stdout
    assert "`seatrial run --set runtimes.server.image=registry.example/tgis:TAG`" in done.stdout
    plan = world.seatrial("plan", "suite.yaml", check=0).stdout
    assert plan.startswith(
        "   trial                  runtime  machine  cases  requests\n●  small.tgis_native-f16  server"
    )
    assert "small.tgis_native-f16: 1 case" not in plan
    assert "2 cells, 0 excluded of 2 combinations" in plan
    again = world.seatrial("import", "config/small.yaml", "--out", "other.yaml", check=2)
    assert "tgis-tester.kubeconfig already exists; use --force" in again.stderr
    assert not (world.folder / "other.yaml").exists()
    options = ("--map", "/app=.", "--image-tag", "v7", "--force")
    world.seatrial("import", "config/small.yaml", "--out", "suite.yaml", *options, check=0)
    assert 'image: "registry.example/tgis:v7"' in (world.folder / "suite.yaml").read_text()
    assert "invalid --map '/app'" in world.seatrial("import", "config/small.yaml", "--map", "/app", check=2).stderr
    their(world)
    other = world.seatrial("import", "step_time_bounds.yaml", "--image-tag", "v7", check=2)
    assert "--image-tag are for tgis-tester's config.yaml" in other.stderr
