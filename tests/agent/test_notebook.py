"""Notebooks, driven in real kernels: each way to fail is told apart, and told truthfully."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from driven import NOTEBOOKS, StepRunner

from seatrial.targets.agent_file import agent_file

# Each is a cell that fails, and after which its kernel goes on.
FAILING_CELLS = {
    "shell": ("shell", "`exit 7` failed with exit code 7; `no-such-command-at-all` failed with exit code 127"),
    "shell_captured": ("shell", "`echo before; exit 5` failed with exit code 5"),
    "shell_raw": ("shell", "`exit 6` failed with exit code 6"),
    "shell_then_error": (
        "error",
        "No module named 'no_such_module_at_all' (before that, `exit 9` failed with exit code 9)",
    ),
    "bash": ("shell", "CalledProcessError"),
    "exits": ("error", "SystemExit: 3"),
    "asks": ("error", "StdinNotImplementedError"),
    "memory_error": ("memory", "MemoryError"),
    "gpu_memory": ("memory", "CUDA out of memory"),
    "raises_not": ("error", "tagged `raises-exception` but raised nothing"),
}
FAILURES = {
    "dies": ("dead", "cell 1: the kernel died: exited with code 0"),
    "killed": ("dead", "the kernel died: killed by signal 9; memory may have run out"),
    "other_language": ("broken", "unsupported kernel: the notebook is for r"),
    "other_kernel": ("broken", "kernel not found: 'no-such-kernel' is not installed"),
    "not_json": ("broken", "not JSON"),
    "no_cells": ("broken", "no list of `cells`"),
    "future": ("broken", "notebook format 5 (supported: 1 to 4)"),
    "bad_cell": ("broken", "the source of cell 1 is not text"),
    "nowhere_to_be_found": ("broken", "notebook not found: "),
}


@pytest.fixture
def runner(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> StepRunner:
    return StepRunner(tmp_path, agent_file(tmp_path_factory.getbasetemp() / "agent", compiled=True))


@pytest.mark.parametrize("name", FAILURES)
def test_each_way_to_fail_has_its_class_and_says_what_happened(name: str, runner: StepRunner) -> None:
    driven = runner.notebook(name, passes=["fresh", "rerun"])
    class_, message = FAILURES[name]
    for seen in driven.passes.values():
        assert (seen["state"], seen["class"]) == ("failed", class_)
        assert message in seen["message"]
    new_kernel = "in a new kernel, because the previous one had exited" in driven.passes["rerun"]["message"]
    assert new_kernel is (class_ == "dead")
    assert driven.ended.code == 1
    assert "Task exception" not in driven.output  # nothing of the driver's own insides


def test_each_cell_that_fails_has_its_class_and_says_what_happened_after_a_restart_too(runner: StepRunner) -> None:
    notebooks = [json.loads((NOTEBOOKS / f"{name}.ipynb").read_text()) for name in FAILING_CELLS]
    cells = [{**notebook["cells"][0], "source": "".join(notebook["cells"][0]["source"])} for notebook in notebooks]
    passes = ["fresh", "rerun", "restart"]
    driven = runner.cells(*cells, keep_going=True, passes=passes, metadata=notebooks[0]["metadata"])
    for name in passes:
        for cell, (class_, message) in zip(driven.cells(name), FAILING_CELLS.values(), strict=True):
            assert (cell["state"], cell["class"]) == ("failed", class_), (name, cell)
            assert message in cell["message"]
        first_class, first_message = FAILING_CELLS["shell"]
        assert (driven.passes[name]["state"], driven.passes[name]["class"]) == ("failed", first_class)
        assert driven.passes[name]["message"].startswith(f"cell 1: {first_message}")
    assert driven.ended.code == 1
    assert "Task exception" not in driven.output


def test_a_notebook_that_works_passes_and_each_cell_has_its_metrics(runner: StepRunner) -> None:
    """It requires what is there."""
    requires = {"paths": ["plain.ipynb"], "variables": ["PATH"], "commands": ["sh"]}
    driven = runner.notebook("plain", requires=requires)
    assert driven.ended.code == 0
    assert driven.passes["fresh"]["state"] == "passed"
    assert [cell["cell"] for cell in driven.cells()] == [2, 3, 4]
    for cell in driven.cells():
        assert cell["state"] == "passed"
        assert cell["seconds"] > 0
        assert cell["cpu_s"] >= 0
        assert cell["peak_memory_bytes"] > 10_000_000
    kept = driven.kept("plain")
    assert kept["cells"][2]["outputs"][0]["data"]["text/plain"] == "42"
    assert "hello" in driven.output  # and in the log, as it happens


def test_commands_that_end_well_change_nothing_and_see_local_variables(runner: StepRunner) -> None:
    driven = runner.notebook("shell_fine")
    assert driven.passes["fresh"]["state"] == "passed", driven.passes
    assert "said local local {braces}" in driven.output
    assert "kept local" in driven.output
    assert "said global" in driven.output
    assert "['a', 'b'] SList" in driven.output


def test_a_cell_that_failed_has_its_traceback_in_the_log_and_those_after_it_are_not_run(runner: StepRunner) -> None:
    driven = runner.notebook("error")
    seen = driven.passes["fresh"]
    assert (seen["state"], seen["class"], driven.ended.code) == ("failed", "error", 1)
    assert seen["message"] == "cell 2: ValueError: the number is wrong"
    assert "[cell 2 failed: ValueError: the number is wrong]\n" in driven.output
    assert "----> 3 inner()\n" in driven.output
    assert driven.output.rstrip().endswith("ValueError: the number is wrong")
    assert [cell["state"] for cell in driven.cells()] == ["passed", "failed", "skipped"]
    assert driven.cells()[2]["message"] == "not run: cell 2 failed"
    failed = driven.cells()[1]
    assert failed["error"] == "ValueError: the number is wrong"
    assert "inner()" in failed["traceback"]
    assert "\x1b" not in failed["traceback"]
    assert driven.kept("error")["cells"][1]["outputs"][0]["ename"] == "ValueError"


def test_rerun_is_in_the_same_kernel_and_restart_in_a_new_one(runner: StepRunner) -> None:
    driven = runner.notebook("once", passes=["fresh", "rerun", "restart"])
    assert {name: seen["state"] for name, seen in driven.passes.items()} == {
        "fresh": "passed",
        "rerun": "failed",
        "restart": "passed",
    }
    assert "AssertionError: run 2 in one kernel" in driven.passes["rerun"]["message"]
    assert sorted(path.name for path in (driven.files / "notebooks").iterdir()) == [
        "once.fresh.ipynb",
        "once.rerun.ipynb",
        "once.restart.ipynb",
    ]


def test_a_pass_that_was_not_asked_for_is_run_when_another_builds_on_it(runner: StepRunner) -> None:
    driven = runner.notebook("once", passes=["rerun"])
    assert driven.passes["fresh"]["implied"] is True
    assert driven.passes["rerun"]["state"] == "failed"
    assert "restart" not in driven.passes


def test_a_cell_over_its_limit_is_interrupted(runner: StepRunner) -> None:
    for _ in range(5):
        driven = runner.notebook("endless", cell_timeout_s=1, passes=["fresh", "rerun"])
        seen = driven.passes["fresh"]
        # A busy machine may not print it within the limit, nor heed the interrupt in time.
        if "begins" in json.dumps(driven.kept("endless")) and "was killed" not in seen["message"]:
            break
    assert seen["class"] == "timeout"
    assert seen["message"] == "cell 1: timed out after 1 s (cell limit); stopped by an interrupt"
    assert driven.passes["rerun"]["class"] == "timeout"
    assert "begins" in json.dumps(driven.kept("endless"))  # what it had printed is kept


def test_a_kernel_that_ignores_the_interrupt_is_killed(runner: StepRunner) -> None:
    for _ in range(5):
        seen = runner.notebook("stubborn", timeout_s=1).passes["fresh"]
        if "was killed" in seen["message"]:  # a busy machine may not get to ignore it within the limit
            break
    assert seen["class"] == "timeout"
    assert "timed out after 1 s (pass limit); killed after ignoring the interrupt" in seen["message"]


def test_silence_is_a_timeout_that_says_stalled(runner: StepRunner) -> None:
    seen = runner.notebook("silent", stall_s=1).passes["fresh"]
    assert seen["class"] == "timeout"
    assert seen["message"].startswith("cell 1: stalled: no output for 1 s")


def test_a_pass_in_another_kernel_than_the_notebooks_own_says_so(runner: StepRunner) -> None:
    own = {"kernelspec": {"name": "conda-env-demo", "language": "python"}}
    driven = runner.cells("1 + 1", metadata=own, passes=["fresh", "rerun"])
    for seen in driven.passes.values():
        assert seen["state"] == "passed"
        assert seen["message"] == (
            "kernel 'conda-env-demo' is not installed in the runtime; used its Python kernel instead"
        )


def test_parameters_follow_the_tagged_cell_as_python_values(runner: StepRunner) -> None:
    values = {"epochs": 1, "rate": math.nan, "nothing": None, "flags": [True, {"a": "it's"}], "name": "ä\n"}
    driven = runner.notebook("parameters", parameters=values)
    assert driven.passes["fresh"]["state"] == "passed"
    assert """(1, nan, None, [True, {'a': "it's"}], 'ä\\n')""" in driven.output
    kept = driven.kept("parameters")
    assert [cell["metadata"].get("tags") for cell in kept["cells"]] == [["parameters"], ["injected-parameters"], None]


def test_parameters_come_first_when_no_cell_is_tagged(runner: StepRunner) -> None:
    driven = runner.notebook("no_parameters", parameters={"epochs": -1.5})
    assert "-1.5" in driven.output
    assert driven.passes["fresh"]["state"] == "passed"


def test_tagged_cells_are_skipped_or_must_raise(runner: StepRunner) -> None:
    driven = runner.notebook("tags")
    assert driven.passes["fresh"]["state"] == "passed"
    assert [cell["state"] for cell in driven.cells()] == ["skipped", "passed", "passed", "passed"]
    assert driven.cells()[0]["message"] == "tagged `skip`"


def test_what_it_requires_and_is_not_there_skips_it_with_the_reasons(runner: StepRunner) -> None:
    requires = {"paths": ["/no/such/path"], "variables": ["NO_SUCH_VARIABLE"], "commands": ["no-such-command"]}
    driven = runner.notebook("plain", requires=requires, passes=["fresh", "restart"])
    reasons = "path not found: /no/such/path; variable not set: NO_SUCH_VARIABLE; command not found: no-such-command"
    assert [(seen["state"], seen["message"]) for seen in driven.passes.values()] == [
        ("skipped", f"skipped: {reasons}")
    ] * 2
    assert driven.ended.code == 0


def test_peak_memory_and_cpu_are_of_each_cell_and_of_its_children(runner: StepRunner) -> None:
    for _ in range(5):
        small, big, child, loop = runner.notebook("peaks").cells()
        base = small["peak_memory_bytes"]
        if child["peak_memory_bytes"] > base + 100_000_000:  # a busy machine may not look at it while it is there
            break
    assert big["peak_memory_bytes"] > base + 180_000_000
    assert base + 100_000_000 < child["peak_memory_bytes"] < base + 250_000_000
    assert loop["peak_memory_bytes"] < base + 50_000_000  # not the peak of a cell before
    assert loop["cpu_s"] > 0.02


@pytest.mark.parametrize(("apps", "peak", "source"), [("", 7 << 20, "device"), ("$PARENT, 5", 5 << 20, "process")])
def test_gpu_memory_is_of_the_kernel_or_of_the_device_and_a_cell_that_keeps_talking_does_not_stall(
    apps: str, peak: int, source: str, runner: StepRunner, tmp_path: Path
) -> None:
    """nvidia-smi as data; the one process that it may name is a child of the driver: the kernel."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    kernel = "PARENT=$(cat /proc/$PPID/task/$PPID/children | tr ' ' '\\n' | grep -vx $$ | head -n 1)"
    smi.write_text(f'#!/bin/sh\n{kernel}\ncase "$*" in *compute-apps*) echo "{apps}" ;; *) echo "0, 7" ;; esac\n')
    smi.chmod(0o755)
    runner.env = {"PATH": f"{smi.parent}:{os.environ['PATH']}"}
    for _ in range(10):
        driven = runner.notebook("talking", stall_s=2)
        (cell,) = driven.cells()
        # A busy machine may not ask before the cell is done, or may keep it from talking, and then it stalls.
        if cell["gpu_memory_source"] is not None and driven.passes["fresh"]["state"] == "passed":
            break
    assert driven.passes["fresh"]["state"] == "passed"
    assert (cell["gpu_peak_memory_bytes"], cell["gpu_memory_source"]) == (peak, source)


def test_secrets_are_masked_in_notes_and_in_the_kept_notebook(runner: StepRunner) -> None:
    runner.env, runner.secrets = {"TOKEN": "hunter2-sesame"}, ["hunter2-sesame"]
    driven = runner.notebook("secret")
    assert driven.passes["fresh"]["message"].endswith("RuntimeError: sent •••")
    told = json.dumps([*driven.notes, driven.kept("secret")], ensure_ascii=False)
    assert "hunter2" not in told
    assert "the token is •••" in told


def test_nothing_of_a_secret_is_in_a_command_line(runner: StepRunner) -> None:
    from seatrial.agent.steps.kinds import prepare

    runner.secrets = ["hunter2-sesame"]
    prepared = prepare({"name": "n", "kind": "notebook", "args": {"path": "a.ipynb"}}, runner.context())
    assert prepared.argv
    assert "hunter2" not in " ".join(prepared.argv)
    for memory in prepared.memory:
        os.close(memory)


def test_what_a_cell_prints_is_bounded_in_the_kept_notebook(runner: StepRunner) -> None:
    driven = runner.notebook("loud")
    assert driven.passes["fresh"]["state"] == "passed"
    size = (driven.files / "notebooks" / "loud.fresh.ipynb").stat().st_size
    assert size < 5 << 20
    assert "more characters omitted" in json.dumps(driven.kept("loud"))


def test_a_python_notebook_of_another_kernel_name_gets_the_runtimes_kernel_with_a_remark(runner: StepRunner) -> None:
    driven = runner.notebook("other_name")
    assert driven.passes["fresh"]["state"] == "passed"
    assert any("'my-environment' is not installed" in note.get("message", "") for note in driven.notes)
    assert sys.prefix in driven.output


def test_an_old_format_is_read(runner: StepRunner) -> None:
    driven = runner.notebook("old_format")
    assert driven.passes["fresh"]["state"] == "passed"
    assert "from 2013" in driven.output


def test_a_notebook_runs_in_its_own_folder_even_where_names_are_long(runner: StepRunner, tmp_path: Path) -> None:
    deep = "/".join(["a-folder-with-quite-a-long-name"] * 5)
    (tmp_path / "work" / deep).mkdir(parents=True)
    (tmp_path / "work" / deep / "deep.ipynb").write_bytes((NOTEBOOKS / "plain.ipynb").read_bytes())
    driven = runner.do("notebook", path=f"{deep}/deep.ipynb")
    assert driven.passes["fresh"]["state"] == "passed", driven.passes
    assert "a-folder-with-quite-a-long-name" in driven.output
    assert (driven.files / "notebooks" / deep / "deep.fresh.ipynb").exists()


def test_a_runtime_without_nbclient_is_driven_by_another_python(runner: StepRunner, tmp_path: Path) -> None:
    """The kernel is still the runtime's own: a Python that has ipykernel's modules, but no nbclient."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    site = next((bare / "lib").glob("python*/site-packages"))
    ours = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    for entry in ours.iterdir():
        if not entry.name.startswith(("nbclient", "nbformat")) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    runner.python, runner.driver = str(bare / "bin" / "python"), sys.executable
    driven = runner.notebook("other_name")
    assert driven.passes["fresh"]["state"] == "passed", (driven.notes, driven.output)
    assert str(bare) in driven.output


def test_a_runtime_without_any_kernel_is_broken_and_says_what_to_add(runner: StepRunner, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    runner.python, runner.driver = str(bare / "bin" / "python"), sys.executable
    seen = runner.notebook("plain", passes=["fresh", "rerun"]).passes
    assert [one["class"] for one in seen.values()] == ["broken", "broken"]
    assert "has no ipykernel; add it to the runtime" in seen["fresh"]["message"]


def test_a_kernel_killed_for_memory_is_told_from_one_that_died(runner: StepRunner, tmp_path: Path) -> None:
    """The counter of the memory group, as data: the notebook raises it before it dies."""
    runner.oom_file = tmp_path / "memory.oom_control"
    runner.oom_file.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    runner.env = {"COUNTER": str(runner.oom_file)}
    raised = "open(os.environ['COUNTER'], 'w').write('oom_kill 4\\n')"
    driven = runner.cells(f"import os, signal\n{raised}\nos.kill(os.getpid(), signal.SIGKILL)")
    seen = driven.passes["fresh"]
    assert seen["class"] == "memory"
    assert seen["message"].startswith("cell 1: out of memory")


def test_a_disk_that_takes_no_copy_leaves_the_verdict(runner: StepRunner, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file where the folder should be")
    seen = runner.notebook("plain").passes["fresh"]
    assert seen["state"] == "passed"
    assert "cannot save the executed notebook" in seen["message"]


def test_ended_from_outside_it_keeps_what_there_is_and_leaves_no_kernel(runner: StepRunner, tmp_path: Path) -> None:
    from seatrial.agent.steps.kinds import prepare

    context = runner.context()
    (tmp_path / "work" / "silent.ipynb").write_bytes((NOTEBOOKS / "silent.ipynb").read_bytes())
    prepared = prepare({"name": "n", "kind": "notebook", "args": {"path": "silent.ipynb"}}, context)
    assert prepared.argv
    process = subprocess.Popen(prepared.argv, cwd=context.work, env=context.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    while "begins" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    process.stdout.close()
    kept = json.loads((tmp_path / "files" / "notebooks" / "silent.fresh.ipynb").read_text())
    assert "begins" in json.dumps(kept)
    assert list((tmp_path / "tmp").iterdir()) == []  # its sockets went with it
    assert not _children_in(context.work)


def _children_in(work: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == work:
                found.append(entry.name)
        except OSError:
            continue
    return found
