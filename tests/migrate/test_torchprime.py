"""`seatrial import` of torchprime's workflows: a suite that runs the trainings themselves, with the same checks."""

import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.baseline import read_for_trials
from seatrial.migrate.torchprime import model_name
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import load
from world import World
from xplane_file import host_profile

# In the shape of torchprime's files: jobs submitted by steps, chosen by the name of their benchmark.
SUBMIT = """\
name: nightly
on: {push: {branches: [main]}, workflow_dispatch: {inputs: {docker_url: {type: string}}}}
jobs:
  submit:
    runs-on: ubuntu-24.04
    env: {ARTIFACT_DIR: 'gs://bucket/${{ github.run_id }}'}
    outputs:
      small-name: ${{ steps.run-small.outputs.name }}
      llama-3_1-8b-sa-name: ${{ steps.run-splash.outputs.name }}
      artifact-dir: ${{ steps.artifacts.outputs.artifact_dir }}
    steps:
      - uses: actions/checkout@v4
      - {name: Record, id: artifacts, run: 'echo "artifact_dir=$ARTIFACT_DIR" >> "$GITHUB_OUTPUT"'}
      - name: Run Small
        id: run-small
        env:
          HF_TOKEN: ${{ secrets.HF_TOKEN }}
          XLA_IR_DEBUG: 1
          RUN: ${{ github.run_id }}
        run: |
          name=$(e2e_testing/gen_name.py small)
          echo "name=$name" >> "$GITHUB_OUTPUT"
          tp run ${{ steps.docker.outputs.value }} \\
            --name $name \\
            torchprime/torch_xla_models/train.py \\
            model=small-1b \\
            'model.pure_modules=[A, B]' \\
            task.max_steps=15
      - name: Run Llama 3.1 8B (Splash Attention)
        id: run-splash
        run: |
          name=$(e2e_testing/gen_name.py llama-3dot1-8b-sa)
          tp run --name $name --num-slices=2 torchprime/torch_xla_models/train.py \\
            model=llama-3.1-8b run=$EXTRA \\ \n            profile_start_step=3
      - name: Run Llama 3.0 8B (2 slice)
        id: run-other
        run: |
          tp run --num-slices 2 torchprime/torch_xla_models/train.py model=llama-3-8b && echo submitted
      - {name: Run New, id: run-new-model, run: "tp run --use-hf train.py --config-name new"}
  bounds:
    steps:
      - {run: "yq -o=json '.benchmarks' e2e_testing/step_time_bounds.yaml"}
  validate:
    needs: [submit, bounds]
    uses: ./.github/workflows/reusable_e2e_check.yml
    with:
      jobset_name: >-
        ${{
          matrix.config.benchmark == 'tiny' && needs.submit.outputs.small-name ||
          matrix.config.benchmark == 'llama-3_1-8b-sa' && needs.submit.outputs.llama-3_1-8b-sa-name
        }}
"""
CHECK = """\
on: {workflow_call: {inputs: {jobset_name: {type: string}, target_loss: {type: number}}}}
jobs:
  results:
    steps:
      - {run: "kubectl logs -f $POD | tee /tmp/pod.log"}
      - {run: "e2e_testing/check_logs.py /tmp/pod.log"}
      - {run: 'e2e_testing/check_profile.py "$dir/profile/0-0"'}
      - {run: 'e2e_testing/check_step_time.py "$dir/outputs/0-0" 1 2'}
      - {if: "${{ inputs.target_loss }}", run: "e2e_testing/check_loss.py /tmp/pod.log 1 0.1"}
"""
BOUNDS = """\
benchmarks:
  tiny: {name: Small, step_time_lower_bound: 0.9, step_time_upper_bound: 1.1, confidence_interval: 0.1, average: 1,
    sample_size: 9, target_loss: 0.5, loss_tolerance: 0.1}
  llama-3_1-8b-sa: {name: Splash, step_time_lower_bound: 2, step_time_upper_bound: 3, confidence_interval: 0.5}
  llama-3-8b-2-slice: {name: Llama 3.0 8B (2 Slice), step_time_lower_bound: 3.8, step_time_upper_bound: 4}
  idle: {name: Idle, step_time_lower_bound: 1, step_time_upper_bound: 2}
"""
# A training job as the launcher starts it: it writes where its last two arguments say.
TRAIN = """\
import json, os, shutil, sys
from pathlib import Path
*words, profile, output = sys.argv[1:]
assert words == ["model=small-1b", "model.pure_modules=[A, B]", "task.max_steps=15"], words
assert os.environ["HF_TOKEN"] == "hush-hush" and os.environ["XLA_IR_DEBUG"] == "1" and "RUN" not in os.environ
for argument, start in ((profile, "profile_dir="), (output, "output_dir=")):
    Path(argument.removeprefix(start)).mkdir(parents=True)
shutil.copy("small.xplane.pb", profile.removeprefix("profile_dir="))
Path(output.removeprefix("output_dir="), "train_metrics.json").write_text(json.dumps({"step_execution_time": 1.05}))
print("step: 1, loss: 0.5\\nFinished training run")
"""


@pytest.fixture(autouse=True)
def python_on_path(world: World) -> None:
    """The workflow calls `python`, which not every machine has."""
    program = world.folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    world.env["PATH"] = f"{program.parent}:{world.env['PATH']}"


@pytest.fixture
def checkout(world: World) -> Path:
    files = {
        ".github/workflows/e2e_test.yml": SUBMIT,
        ".github/workflows/reusable_e2e_check.yml": CHECK,
        "e2e_testing/step_time_bounds.yaml": BOUNDS,
        "torchprime/torch_xla_models/train.py": TRAIN,
    }
    root = world.folder / "torchprime"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "small.xplane.pb").write_bytes(host_profile([(n, 1.05) for n in range(2, 6)]))
    return root


WORKFLOW = "torchprime/.github/workflows/e2e_test.yml"


def trials(world: World, name: str = "suite.yaml") -> dict[str, Any]:
    return dict(load(world.folder / name, *models(), read_for_trials).trials)


@pytest.mark.parametrize("file", [WORKFLOW, WORKFLOW.replace("e2e_test", "reusable_e2e_check")])
def test_every_job_becomes_a_trial_with_its_arguments_checks_and_bounds(
    world: World, checkout: Path, file: str
) -> None:
    done = world.seatrial("import", file, "--out", "suite.yaml", check=0)
    assert "wrote suite.yaml: 4 training trials, checked against torchprime/e2e_testing/step_time_bounds" in done.stdout
    assert "each runs the training itself, because `tp run` returns as soon as the job is submitted" in done.stdout
    assert (
        "the hosts of jobs on several slices (`hosts`, `machine`): llama-3_1-8b-sa, llama-3-8b-2-slice" in done.stdout
    )
    assert "the bounds of new-model: run" in done.stdout
    assert "the command of idle: no step of the workflow runs it (left out)" in done.stdout
    assert "a space after `\\` ends the command, so 'profile_start_step=3' was never passed" in done.stderr
    assert "e2e_test.yml:20: left out, because its value is unknown: 'RUN'\n" in done.stderr
    assert "left out, because its value is unknown: 'run=$EXTRA'\n" in done.stderr
    assert "4 cells, 0 excluded of 4 combinations" in world.seatrial("plan", "suite.yaml", check=0).stdout
    suite = load(world.folder / "suite.yaml", *models(), read_for_trials)
    bounds = {cell.benchmark: [one.metric for one in cell.bounds] for cell in expand(suite).cells}
    step_time = ["step_time"]
    assert bounds == {
        "tiny": ["step_time", "loss"],
        "llama-3_1-8b-sa": step_time,
        "llama-3-8b-2-slice": step_time,
        "new-model": [],
    }
    commands = {name: trial.command.partition(' "profile_dir=')[0] for name, trial in trials(world).items()}
    script = "python torchprime/torch_xla_models/train.py"
    assert commands == {
        "tiny": f"{script} model=small-1b 'model.pure_modules=[A, B]' task.max_steps=15",
        "llama-3_1-8b-sa": f"{script} model=llama-3.1-8b",
        "llama-3-8b-2-slice": f"{script} model=llama-3-8b",
        "new-model": "python train.py --config-name new",
    }


def test_the_suite_runs_the_training_and_judges_it_as_torchprime_does(world: World, checkout: Path) -> None:
    world.seatrial("import", WORKFLOW, "--out", "suite.yaml", check=0)
    world.env["HF_TOKEN"] = "hush-hush"
    world.seatrial("run", "suite.yaml", "--select", "tiny", check=0)
    (cell,) = world.results().cells
    passed = {f"{one.step} {one.check}" for one in cell.findings if one.verdict == "passed"}
    wanted = {"train exit", "train must Finished training run", "files profile count", "train metric step_time"}
    assert wanted | {"figures bounds step_time", "figures bounds loss", "train loss"} <= passed
    assert cell.metrics["step_time"]["value"] == 1.05


def test_a_command_of_ones_own_gets_the_model_and_the_arguments(world: World, checkout: Path) -> None:
    command = "launch {benchmark} model={benchmark} {model} -- {arguments}"
    world.seatrial("import", WORKFLOW, "--out", "a.yaml", "--command", command, check=0)
    made = trials(world, "a.yaml")["llama-3_1-8b-sa"].command
    script = "torchprime/torch_xla_models/train.py model=llama-3.1-8b"
    assert made == f"launch llama-3_1-8b-sa model=llama-3.1-8b llama-3.1-8b -- {script}"
    # From the bounds alone, by the names of torchprime's benchmarks.
    world.seatrial(
        "import", "torchprime/e2e_testing/step_time_bounds.yaml", "--out", "b.yaml", "--command", command, check=0
    )
    assert (
        trials(world, "b.yaml")["llama-3_1-8b-sa"].command
        == "launch llama-3_1-8b-sa model=llama-3.1-8b llama-3.1-8b -- "
    )


@pytest.mark.parametrize(
    ("benchmark", "model"),
    [
        ("llama-3-8b", "llama-3-8b"),
        ("llama-3_1-8b-scan-offload", "llama-3.1-8b"),
        ("llama-3-8b-2-slice", "llama-3-8b"),
        ("llama-3-8b-fsdp-cp", "llama-3-8b-cp"),
        ("mixtral-8x7b", "mixtral-8x7b"),
        ("ds-v3-shallow", "deepseek-v3-shallow"),
        ("of_my_own", "of_my_own"),
    ],
)
def test_the_model_of_each_of_torchprimes_benchmarks(benchmark: str, model: str) -> None:
    assert model_name(benchmark) == model


def test_checks_that_the_workflow_does_not_make_are_not_in_the_suite(world: World, checkout: Path) -> None:
    checks = checkout / ".github/workflows/reusable_e2e_check.yml"
    lines = CHECK.replace("check_loss", "check_magic").splitlines(keepends=True)
    checks.write_text("".join(line for line in lines if "check_profile" not in line))
    assert "not imported: check_magic.py" in world.seatrial("import", WORKFLOW, "--out", "suite.yaml", check=0).stderr
    tiny = trials(world)["tiny"]
    assert (tiny.files, tiny.loss, tiny.log.must) == ({}, None, ("Finished training run",))


def test_the_suite_is_not_written_where_github_would_read_it(world: World, checkout: Path) -> None:
    assert "wrote torchprime/seatrial.yaml: " in world.seatrial("import", WORKFLOW, check=0).stdout
    world.seatrial("plan", "torchprime/seatrial.yaml", check=0)


def test_files_that_are_missing_are_told_and_the_suite_plans(world: World, checkout: Path) -> None:
    (checkout / ".github/workflows/reusable_e2e_check.yml").unlink()
    (checkout / "e2e_testing/step_time_bounds.yaml").unlink()
    done = world.seatrial("import", WORKFLOW, "--out", "suite.yaml", check=0)
    assert "reusable_e2e_check.yml not found; the suite has all checks of torchprime" in done.stderr
    assert "no bounds found at torchprime/e2e_testing/step_time_bounds.yaml" in done.stdout
    plan = world.seatrial("plan", "suite.yaml", check=0).stdout
    assert "metrics of 4 cells will not be checked: torchprime/e2e_testing/step_time_bounds.yaml" in plan


def workflow(run: str, step: str = "") -> str:
    return f"jobs:\n  a:\n    steps:\n      - {step}\n        run: |\n          {run}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs: {a: {steps: [{run: echo hello}]}}", "no step of e2e_test.yml runs `tp run`"),
        ("jobs:", "no step of e2e_test.yml runs `tp run`"),
        ("jobs: [1, {a: b}]", "no step of e2e_test.yml runs `tp run`"),
        (
            "jobs: {a: {steps: {run: tp run x}}, b: 3, c: {steps: [1, {run: [2]}, null]}}",
            "no step of e2e_test.yml runs",
        ),
        (
            workflow("tp run 'a", "name: x"),
            "e2e_test.yml:5: cannot split the command of `tp run`: No closing quotation",
        ),
        ("jobs: {a: {steps: [{run: 'tp run x'}]}\n", "e2e_test.yml:"),
        ("jobs: &a {a: *a}", "alias *a is inside its own anchor"),
        (f"jobs: {'[' * 100}{']' * 100}", "e2e_test.yml:1:"),
        (workflow("tp run x", 'env: {"A B": 1}'), "e2e_test.yml:5:1: cannot create a suite from this"),
    ],
)
def test_other_and_broken_workflows_are_told_for_what_they_are(world: World, text: str, told: str) -> None:
    (world.folder / "e2e_test.yml").write_text(text)
    assert told in world.seatrial("import", "e2e_test.yml", check=2).stderr
    assert not (world.folder / "seatrial.yaml").exists()


def test_hostile_text_stays_one_word_of_the_command_and_one_value_of_the_suite(world: World) -> None:
    words = "'; touch pwned' \"'{benchmark}\" '#{' '&anchor'"
    (world.folder / "e2e_test.yml").write_text(workflow(f"tp run train.py {words}", 'name: "Run ${x}: \\"#\\x1b[1m"'))
    world.seatrial("import", "e2e_test.yml", check=0)
    world.seatrial("plan", "seatrial.yaml", check=0)
    (world.folder / "train.py").write_text("import sys; print(sys.argv[1:-2])")
    suite = world.folder / "seatrial.yaml"
    suite.write_text(suite.read_text().replace("python train.py", f"python {world.folder}/train.py"))
    world.seatrial("run", "seatrial.yaml")
    (cell,) = world.results().cells
    log = (world.run().attempt(cell.hash, 1) / "log.txt").read_text()
    assert """['; touch pwned', "'{benchmark}", '#{', '&anchor']""" in log
