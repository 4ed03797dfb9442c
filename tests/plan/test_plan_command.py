"""`seatrial plan`, `schema` and `init` as a user runs them."""

import json
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seatrial.cli.plan import _grid_lines
from seatrial.plugins import models
from seatrial.suite import load

ROOT = Path(__file__).resolve().parents[2]
GRADIENT = ROOT / "examples" / "gradient" / "suite.yaml"

SUITE = """\
machines: {small: {cpu: 1, price: 2}, large: {cpu: 4, price: 4}}
runtimes: {a: {interpreter: python3}, b: {interpreter: python3, needs: {cpu: ">=2"}}}
trials:
  t: {kind: runtime, matrix: {runtime: all, machine: all}, estimate: 30m, run: ["true"]}
"""


def test_a_plan_is_a_grid_with_its_holes_and_sums(world: Any) -> None:
    world.suite(SUITE)
    text = world.seatrial("plan", "suite.yaml", check=0).stdout
    assert re.search(r"^runtime \\ machine +small +large", text, re.M)
    assert re.search(r"^a +● +●", text, re.M)
    assert re.search(r"^b +– +●", text, re.M)
    assert "runtime b needs cpu >=2, machine small has 1" in text
    assert "3 cells, 1 excluded of 4 combinations; 1.50 hours, price 5.00" in text
    assert not (world.folder / "runs").exists()


@pytest.mark.parametrize(
    ("machines", "runtimes", "columns", "header", "legend"),
    [
        (3, 2, 80, "runtime \\ machine  machine-00  machine-01  machine-02", 0),
        (31, 4, 80, "machine \\ runtime  runtime-00  runtime-01  runtime-02  runtime-03", 0),  # turned
        (31, 12, 80, "machine \\ runtime a b c d e f g h i j k l", 3),
        (4, 31, 40, "runtime \\ machine a b c d", 2),
    ],
)
def test_a_wide_matrix_is_turned_or_gets_letters_to_fit(
    machines: int, runtimes: int, columns: int, header: str, legend: int
) -> None:
    axes = {
        "runtime": tuple(f"runtime-{n:02}" for n in range(runtimes)),
        "machine": tuple(f"machine-{n:02}" for n in range(machines)),
    }
    marks = {("t", runtime, machine): "●" for runtime in axes["runtime"] for machine in axes["machine"]}
    marks["t", "runtime-01", "machine-00"] = "x"
    lines = ["".join(text for text, _ in line) for line in _grid_lines("t", axes, marks, columns)]
    assert lines[1] == header
    assert max(map(len, lines)) <= columns
    rows = [line for line in lines if "●" in line]
    assert len(lines) == 2 + len(rows) + legend + 1
    (excluded,) = [line for line in rows if "x" in line]
    assert excluded.startswith("machine-00" if header.startswith("machine") else "runtime-01")


def test_the_matrix_of_the_gradient_service_has_its_102_pairs(world: Any) -> None:
    data = json.loads(world.seatrial("plan", str(GRADIENT), "--tag", "tested", "--json", check=0).stdout)
    assert data["counts"]["cells"] == len(data["cells"]) == 102
    assert len({(cell["axes"]["runtime"], cell["axes"]["machine"]) for cell in data["cells"]}) == 102
    per_runtime = Counter(cell["axes"]["runtime"] for cell in data["cells"])
    assert sorted(per_runtime.values()) == [1] * 3 + [11] * 9
    assert (per_runtime["scratch"], per_runtime["hf-ipu"]) == (11, 1)
    assert data["counts"]["combinations"] == 12 * 31
    assert all(combination["why"] for combination in data["holes"])
    text = world.seatrial("plan", str(GRADIENT), "--tag", "tested", check=0).stdout
    assert "102 cells, 123 excluded, 147 deselected of 372 combinations" in text
    assert len(text.splitlines()) < 60


def test_every_notebook_that_the_gradient_service_executed_is_in_the_example() -> None:
    """By the number of each runtime; and all runtimes have the tool's own."""
    suite = load(GRADIENT, *models(), look_for_files=True)
    counts = {
        name: len([one for one in runtime.notebooks if "/" in one.path or "shared" not in one.path])
        for name, runtime in suite.runtimes.items()
    }
    assert counts == {
        "pytorch": 1, "tensorflow": 2, "fastai": 1, "dalle-mini": 1, "transformers-nlp": 3, "scratch": 0, "clipit": 1,
        "rapids": 7, "hf-ipu": 3, "pytorch-ipu": 6, "tf2-ipu": 4, "stable-diffusion": 1,
    }  # fmt: skip
    assert sum(counts.values()) == 30
    trial = suite.trials["generic"]
    assert trial.notebook_paths() == ("run_testing.ipynb",)
    assert suite.runtimes["fastai"].notebooks[0].path == "shared_dataset.ipynb"
    assert {"run nvidia-smi", "run CUDA"} <= set(trial.step_names(suite.runtimes["pytorch"]))


def test_a_list_of_cells_has_their_hashes(world: Any) -> None:
    world.suite(SUITE)
    text = world.seatrial("plan", "suite.yaml", "--list", "--select", "machine=large", check=0).stdout
    assert len(re.findall(r"^[0-9a-f]{8}  t\[runtime=[ab],machine=large\]$", text, re.M)) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--select", "runtme=a"), "unknown axis 'runtme'; did you mean 'runtime'?"),
        (("--tag", "quick"), "--tag 'quick' matches nothing"),
        (("--max-cost", "4.99"), "may cost up to 5.00 (limit 4.99)"),
    ],
)
def test_what_cannot_be_planned_exits_2_and_says_why(world: Any, args: tuple[str, ...], said: str) -> None:
    world.suite(SUITE)
    assert said in world.seatrial("plan", "suite.yaml", *args, check=2).stderr


def test_a_cost_limit_of_the_suite_holds_until_the_command_line_says_another(world: Any) -> None:
    world.suite(SUITE + "max_cost: 1\n")
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert "3 cells" in done.stdout
    assert "may cost up to 5.00 (limit 1.00)" in done.stderr
    world.seatrial("plan", "suite.yaml", "--max-cost", "5", check=0)


def test_a_bad_suite_exits_2_with_places(world: Any) -> None:
    world.suite(SUITE.replace("run:", "rum:"))
    done = world.seatrial("plan", "suite.yaml", check=2)
    assert "suite.yaml:4:75: unknown field 'rum'; did you mean 'run'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_ten_million_cells_are_refused_with_the_count(world: Any) -> None:
    axes = ", ".join(f"{name}: [{', '.join(map(str, range(220)))}]" for name in "abc")
    world.suite(f"trials: {{t: {{kind: runtime, run: ['true'], matrix: {{{axes}}}}}}}")
    assert "10,648,000 combinations" in world.seatrial("plan", "suite.yaml", check=2).stderr


def test_a_broken_history_takes_the_estimates_not_the_plan(world: Any) -> None:
    world.suite(SUITE)
    (world.folder / "runs").mkdir()
    (world.folder / "runs" / "history.db").write_bytes(b"garbage" * 1000)
    done = world.seatrial("plan", "suite.yaml", check=0)
    assert "planned without history" in done.stderr
    assert "3 cells" in done.stdout


def test_pairwise_prints_its_proof(world: Any) -> None:
    world.suite("trials: {t: {kind: runtime, run: ['true'], matrix: {a: [1, 2, 3], b: [1, 2, 3], c: [1, 2, 3]}}}")
    text = world.seatrial("plan", "suite.yaml", "--pairwise", check=0).stdout
    assert re.search(r"pairwise: \d+ of 27 cells, pairs covered 27 / 27 possible; pairs in no valid cell: 0", text)


def test_init_writes_a_suite_that_can_be_planned_and_never_writes_over_one(world: Any) -> None:
    world.seatrial("init", check=0)
    assert "2 cells, 0 excluded" in world.seatrial("plan", "seatrial.yaml", check=0).stdout
    (world.folder / "seatrial.yaml").write_text("mine")
    assert "already exists" in world.seatrial("init", check=2).stderr
    assert (world.folder / "seatrial.yaml").read_text() == "mine"
    world.seatrial("init", "runtime", "--force", check=0)
    assert (world.folder / "seatrial.yaml").read_text() != "mine"
    assert (
        "no starter suite for kind 'trainin'; did you mean 'training'?"
        in world.seatrial("init", "trainin", check=2).stderr
    )


def test_init_where_nothing_can_be_written_says_so(world: Any) -> None:
    (world.folder / "first.ipynb").mkdir()
    done = world.seatrial("init", "--force", check=2)
    assert "cannot write first.ipynb" in done.stderr
    assert stat.S_ISDIR((world.folder / "first.ipynb").stat().st_mode)
    assert not (world.folder / "seatrial.yaml").exists()


def test_a_plan_says_which_metrics_nobody_will_judge(world: Any) -> None:
    world.suite("trials: {t: {kind: training, command: 'true', baseline: b.yaml, matrix: {n: [1, 2]}}}")
    told = world.seatrial("plan", "suite.yaml", check=0).stdout
    assert "metrics of 2 cells will not be checked: b.yaml does not exist yet" in told


WRONG = "sed -i s/reversed// *.py; exec python3 first_server.py"  # answers with the prompt itself


@pytest.mark.parametrize(
    ("kind", "shown", "broken"),
    [
        ("runtime", "1 passed", ["trials.works.commands[0]=no-such-command"]),
        ("training", "1 metric not checked", ["trials.small.loss.target=9"]),
        (
            "serving",
            "2 cases: 2 exact; 60 requests",
            [f"trials.answers.server.command={WRONG}", "trials.answers.load="],
        ),
        ("scale", "40 of 40 workloads", ['trials.burst.workload.command=["false"]', "trials.burst.count=4"]),
    ],
)
def test_init_writes_a_suite_that_runs_here_as_it_is_and_can_fail(
    world: Any, kind: str, shown: str, broken: list[str]
) -> None:
    done = world.seatrial("init", kind, check=0)
    for name in done.stdout.splitlines()[0].removeprefix("wrote ").split(", "):
        assert (world.folder / name).stat().st_size > 0
    # tests/docs/test_install.py runs the runtime that is built.
    chosen = ["--select", "runtime=host"] if kind == "runtime" else []
    assert shown in world.seatrial("run", *chosen, check=0).stdout, "the default is seatrial.yaml"
    world.seatrial("run", *chosen, *(word for one in broken for word in ("--set", one)), check=1)


def test_the_scale_suite_of_init_needs_a_cluster_only_if_it_is_asked_to(world: Any) -> None:
    world.seatrial("init", "scale", check=0)
    world.env["HOME"] = str(world.folder)
    moved = ("--target", "kubernetes")
    assert "1 cell" in world.seatrial("plan", *moved, check=0).stdout
    done = world.seatrial("run", *moved, check=2)
    assert "kubeconfig not found, and this is not a pod; set KUBECONFIG or `kubeconfig`\nnothing was run" in done.stderr


def test_a_run_without_a_suite_says_which_file_is_missing(world: Any) -> None:
    for command in ("plan", "run"):
        done = world.seatrial(command, check=2)
        assert done.stderr.startswith("seatrial.yaml: cannot read the file: No such file or directory")


def test_schema_prints_a_schema(world: Any) -> None:
    data = json.loads(world.seatrial("schema", check=0).stdout)
    kinds = data["properties"]["trials"]["additionalProperties"]["properties"]["kind"]["enum"]
    assert kinds == sorted(models()[0])
    assert {"runtime", "training"} <= set(kinds)
