"""The kind `runtime`: what users write, the job that it becomes, and whole runs of it on this machine."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from seatrial.job import Exit, Job, Observation, Outcome, Place, Verdict, read_records
from seatrial.kinds.runtime.kind import kind
from seatrial.plan import Selection, expand
from seatrial.plugins import models
from seatrial.suite import Cell, SuiteError, load

if TYPE_CHECKING:
    from world import World

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def cells(tmp_path: Path, text: str) -> list[Cell]:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return list(expand(load(path, *models()), Selection()).cells)


def job(tmp_path: Path, text: str) -> Job:
    (cell,) = cells(tmp_path, text)
    return kind.parts(cell)[0].job.for_attempt("run-1", cell.hash, 2)


def names(made: Job) -> list[str]:
    return [step.name for step in made.steps]


def test_each_entry_becomes_a_step_in_the_order_in_which_they_can_work(tmp_path: Path) -> None:
    made = job(
        tmp_path,
        """
        runtimes:
          demo:
            workspace: {git: https://git.example/demo, ref: main}
            notebooks: [{path: own.ipynb}, {path: both.ipynb, timeout: 9m}]
        trials:
          t:
            kind: runtime
            runtime: demo
            notebooks: [{path: both.ipynb, passes: [fresh, restart], timeout: 1m}]
            run: ["nvidia-smi -q", {command: "python -V", name: version}]
            imports: [numpy, {module: PIL, version: ">=9"}]
            commands: [git]
        """,
    )
    assert names(made) == [
        "workspace",
        "facts",
        "command git",
        "import numpy",
        "import PIL",
        "run nvidia-smi -q",
        "run version",
        "notebook both.ipynb",
        "notebook own.ipynb",
    ]
    assert made.name == f"run-1-{made.cell}-2"
    assert made.inputs == ()  # the notebooks are in the workspace
    assert made.steps[7].args["passes"] == ["fresh", "restart"]
    assert made.steps[7].timeout_s is not None
    assert made.steps[7].timeout_s > 120


def test_notebooks_and_workspaces_of_this_machine_are_inputs(tmp_path: Path) -> None:
    text = """
        runtimes: {{demo: {{{workspace}}}}}
        trials: {{t: {{kind: runtime, runtime: demo, notebooks: [{{path: ../up/a.ipynb}}]}}}}
        """
    (one,) = job(tmp_path, text.format(workspace="")).inputs
    assert (one.source, one.path) == (str(tmp_path / "../up/a.ipynb"), "up/a.ipynb")
    (one,) = job(tmp_path, text.format(workspace="workspace: {path: demo}")).inputs
    assert (one.source, one.path) == (str(tmp_path / "demo"), ".")


def test_axes_secrets_and_limits_are_put_in(tmp_path: Path) -> None:
    made = job(
        tmp_path,
        """
        env: {LEVEL: low, TOKEN: {secret: API}}
        machines: {m: {cpu: 2, memory: 1Gi, gpu: {model: A100, count: 2}}}
        trials:
          t:
            kind: runtime
            matrix: {epochs: [3], machine: m}
            env: {LEVEL: "high ${epochs}"}
            timeout: {queue: 1m, run: 2m, stall: 3m, grace: 4s}
            run: ["train ${epochs}"]
            notebooks: [{path: "n${epochs}.ipynb", parameters: {epochs: "${epochs}"}}]
        """,
    )
    assert made.env == {"LEVEL": "high 3"}
    assert made.secrets == {"TOKEN": "API"}
    assert "run train 3" in names(made)
    assert made.steps[-1].args["path"] == "n3.ipynb"
    assert made.steps[-1].args["parameters"] == {"epochs": 3}
    assert (made.limits.queue_s, made.limits.run_s, made.limits.stall_s, made.limits.grace_s) == (60, 120, 180, 4)
    assert made.resources.gpu.count == 2
    assert made.resources.memory_bytes == 1 << 30


@pytest.mark.parametrize(
    ("fields", "gathered"),
    [
        ("run: ['true']", False),
        ("run: ['true'], facts: true", True),
        ("run: ['true'], machine: m", True),
        ("commands: [git]", True),
        ("commands: [git], facts: false", False),
        ("commands: [git], facts: {gpu: false}", True),
    ],
)
def test_facts_are_gathered_unless_they_would_tell_nothing(fields: str, gathered: bool, tmp_path: Path) -> None:
    made = job(tmp_path, f"machines: {{m: {{cpu: 1}}}}\ntrials: {{t: {{kind: runtime, {fields}}}}}")
    assert ("facts" in names(made)) is gathered


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("imports: [scikit-learn]", "invalid module name 'scikit-learn'"),
        ("imports: ['numpy>=1.2']", "with the version apart"),
        (f"imports: [{'a' * 5000}-]", "invalid module name"),
        ("imports: [{module: numpy, version: newest}]", "invalid version specifier 'newest'"),
        ("imports: [{modul: numpy}]", "module"),
        ("run: [{command: x, matches: '('}]", "invalid regular expression '('"),
        ("run: [{command: x, exit: 256}]", "255"),
        ("run: [x, x]", "duplicate `x` (2 times)"),
        ("notebooks: [{path: a.ipynb}, {path: a.ipynb}]", "duplicate `a.ipynb` (2 times)"),
        ("notebooks: [{path: a.ipynb, name: n}, {path: b.ipynb, name: n}]", "duplicate `n` (2 times)"),
        ("notebooks: [{path: a, name: n}]", "`name` needs the path of one notebook"),
        ("notebooks: [{path: a.ipynb, passes: [twice]}]", "fresh"),
        ("facts: {gpus: true}", "gpu"),
        ("command: [git]", "commands"),
        ("xfail: [{step: import scipi, why: w}], imports: [scipy]", "import scipy"),
    ],
)
def test_what_cannot_be_meant_is_an_error_that_says_what_could(fields: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as error:
        cells(tmp_path, f"trials: {{t: {{kind: runtime, {fields}}}}}")
    assert message in str(error.value)


def test_a_path_too_long_for_any_file_system_is_not_there(world: "World") -> None:
    long = "a" * 3000
    world.suite(f"""
name: long
runtimes: {{r: {{workspace: {{path: {long}}}}}}}
trials: {{t: {{kind: runtime, runtime: r, baseline: {long}.yaml, notebooks: [{{path: {long}.ipynb}}]}}}}
""")
    assert (
        f"workspace not found: '{long}' (relative to the suite)" in world.seatrial("plan", "suite.yaml", check=2).stderr
    )


def test_a_job_that_was_lost_has_a_finding_for_every_step_and_pass(tmp_path: Path) -> None:
    text = """
        trials:
          t:
            kind: runtime
            commands: [git]
            run: ["true"]
            notebooks: [{path: a.ipynb, passes: [fresh, rerun]}]
        """
    (cell,) = cells(tmp_path, text)
    made = kind.parts(cell)[0].job.for_attempt("r", cell.hash, 1)
    steps = read_records([], made.steps).steps
    seen = Observation(made.name, 1, Place("here", "here"), Exit(Outcome.LOST, message="host gone"), steps=steps)
    judgement = kind.judge(cell, {"job": seen})
    assert [finding.step for finding in judgement.findings] == [
        "job",
        "facts",
        "command git",
        "run true",
        "notebook a.ipynb fresh",
        "notebook a.ipynb rerun",
    ]
    assert {finding.verdict for finding in judgement.findings} == {Verdict.INFRA}
    assert judgement.metrics == {}


def bring(world: "World", *notebooks: str) -> None:
    for name in notebooks:
        shutil.copy(NOTEBOOKS / f"{name}.ipynb", world.folder)


def test_a_whole_cell_is_judged_step_by_step_and_nothing_hides_anything(world: "World") -> None:
    bring(world, "once", "shell", "plain", "parameters")
    same = "path: parameters.ipynb, parameters: {nothing: 0, flags: 0, name: x, epochs: "
    world.suite(
        f"""
        runtimes: {{mine: {{interpreter: {sys.executable}}}}}
        trials:
          t:
            kind: runtime
            runtime: mine
            commands: [sh, no-such-command]
            imports: [json, no_such_module]
            run: ["exit 4", {{command: "echo 12 GPUs", matches: '\\d+ GPUs'}}]
            notebooks:
              - {{path: once.ipynb, passes: [fresh, rerun, restart]}}
              - {{path: shell.ipynb}}
              - {{path: plain.ipynb, requires: {{variables: [NO_SUCH_VARIABLE]}}}}
              - {{name: few, {same} 3}}}}
              - {{name: many, {same} 50}}}}
            xfail: [{{step: notebook once.ipynb rerun, why: counts its runs}}]
        """
    )
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    found = {(finding.step, finding.check): (finding.verdict.value, finding.class_) for finding in cell.findings}
    assert found == {
        ("facts", "facts"): ("passed", ""),
        ("facts", "python"): ("passed", ""),
        ("command sh", "command"): ("passed", ""),
        ("command no-such-command", "command"): ("failed", "absent"),
        ("import json", "import"): ("passed", ""),
        ("import no_such_module", "import"): ("failed", "absent"),
        ("run exit 4", "exit"): ("failed", "exit"),
        ("run echo 12 GPUs", "exit"): ("passed", ""),
        ("run echo 12 GPUs", "matches \\d+ GPUs"): ("passed", ""),
        ("notebook once.ipynb fresh", "notebook"): ("passed", ""),
        ("notebook once.ipynb rerun", "notebook"): ("xfail", "error"),
        ("notebook once.ipynb restart", "notebook"): ("passed", ""),
        ("notebook shell.ipynb fresh", "notebook"): ("failed", "shell"),
        ("notebook plain.ipynb fresh", "notebook"): ("skipped", ""),
        ("notebook few fresh", "notebook"): ("passed", ""),
        ("notebook many fresh", "notebook"): ("passed", ""),
    }
    assert cell.metrics["notebook once.ipynb fresh"]["seconds"]["value"] > 0
    assert cell.metrics["notebook once.ipynb fresh"]["peak_memory"]["value"] > 10_000_000
    assert cell.metrics["run exit 4"]["seconds"]["unit"] == "s"
    kept = world.run().attempt(cell.hash, 1) / "files" / "notebooks"
    assert (kept / "once.rerun.ipynb").exists()
    assert "(3, 0.1" in (kept / "few.fresh.ipynb").read_text()
    assert "(50, 0.1" in (kept / "many.fresh.ipynb").read_text()
    assert world.left() == []


def _memory_groups() -> bool:
    places = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
    return os.geteuid() == 0 and any(os.access(f"{place}/cgroup.procs", os.W_OK) for place in places)


@pytest.mark.skipif(not _memory_groups(), reason="needs a memory cgroup that this user may make")
def test_a_notebook_over_the_machines_memory_is_out_of_memory_and_the_rest_goes_on(world: "World") -> None:
    bring(world, "greedy", "plain")
    world.suite(
        f"""
        machines: {{small: {{memory: 300Mi}}}}
        runtimes: {{mine: {{interpreter: {sys.executable}}}}}
        trials:
          t:
            kind: runtime
            runtime: mine
            machine: small
            notebooks: [{{path: greedy.ipynb, passes: [fresh, restart]}}, {{path: plain.ipynb}}]
        """
    )
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    found = {finding.step: (finding.verdict.value, finding.class_) for finding in cell.findings}
    assert found["notebook greedy.ipynb fresh"] == ("failed", "memory")
    assert found["notebook greedy.ipynb restart"] == ("failed", "memory")
    assert found["notebook plain.ipynb fresh"] == ("passed", "")


def problems(tmp_path: Path, text: str) -> list[str]:
    """What `plan` and `run` have to say of a suite, without the folder that it is in."""
    path = tmp_path / "suite.yaml"
    path.write_text(dedent(text).lstrip())
    with pytest.raises(SuiteError) as caught:
        load(path, *models(), look_for_files=True)
    return [f"{one.where}: {one.message}".replace(f"{tmp_path}/", "") for one in caught.value.problems]


def test_notebooks_and_workspaces_that_are_not_there_are_told_at_their_places(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "intro.ipynb").touch()
    found = problems(
        tmp_path,
        """
        runtimes:
          a: {workspace: {path: there}, notebooks: [intor.ipynb, intro.ipynb]}
          b: {workspace: {path: nowhere}, notebooks: [never.ipynb]}
          c: {workspace: {git: "https://git.example/demo"}, notebooks: [cloned.ipynb]}
        trials:
          t: {kind: runtime, runtime: all, notebooks: [intro.ipynb]}
          u: {kind: runtime, notebooks: [lost.ipynb, "no/*.ipynb", "${x}.ipynb"], matrix: {x: [1, 2]}}
          v: {kind: runtime, runtime: c, notebooks: ["*.ipynb"]}
        """,
    )
    clone = "a folder or glob cannot be used with the git workspace of runtime 'c'"
    assert found == [
        "suite.yaml:2:45: notebook not found: 'intor.ipynb' in the workspace 'there' of runtime 'a' or next to "
        "the suite; did you mean 'intro.ipynb'?",
        "suite.yaml:3:25: workspace not found: 'nowhere' (relative to the suite)",
        "suite.yaml:7:34: notebook not found: 'lost.ipynb' next to the suite",
        "suite.yaml:7:46: notebook not found: 'no/*.ipynb' next to the suite",
        f"suite.yaml:8:46: {clone}; list each notebook",
    ]


def test_folders_and_globs_of_notebooks_are_each_of_their_notebooks_once(tmp_path: Path) -> None:
    for name in ("d/b.ipynb", "d/a.ipynb", "d/in/c.ipynb", "d/.ipynb_checkpoints/a.ipynb", "g[1]x.ipynb", "one.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (cell,) = cells(
        tmp_path,
        """
        trials:
          t:
            kind: runtime
            notebooks: [one.ipynb, d, "g[1]*", "d/in/?.ipynb", {path: d/a.ipynb, passes: [restart]}]
            xfail: [{step: notebook d/b.ipynb fresh, why: x}, {step: notebook d/in/c.ipynb fresh, why: x}]
        """,
    )
    cell = replace(cell, gathered=kind.gather(cell))
    made = kind.parts(cell)[0].job.for_attempt("r", cell.hash, 1)
    wanted = ["one.ipynb", "d/b.ipynb", "d/in/c.ipynb", "g[1]x.ipynb", "d/a.ipynb"]
    assert names(made)[1:] == [f"notebook {name}" for name in wanted]
    assert made.steps[-1].args["passes"] == ["restart"]
    assert [given.source for given in made.inputs] == [str(tmp_path / name) for name in wanted]


def test_a_notebook_that_is_beside_the_suite_goes_along_with_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    for name in ("own.ipynb", "both.ipynb", "ws/both.ipynb", "ws/in.ipynb"):
        (tmp_path / name).touch()
    text = """
        runtimes:
          copied: {{workspace: {{path: ws}}}}
          cloned: {{workspace: {{git: "https://git.example/demo"}}}}
        trials: {{t: {{kind: runtime, runtime: {0}, notebooks: [own.ipynb, both.ipynb, in.ipynb]}}}}
        """
    for runtime, inputs in (("copied", ["ws", "own.ipynb"]), ("cloned", ["own.ipynb", "both.ipynb"])):
        (cell,) = cells(tmp_path, text.format(runtime))
        cell = replace(cell, gathered=kind.gather(cell))
        made = kind.parts(cell)[0].job
        assert [given.source for given in made.inputs] == [str(tmp_path / name) for name in inputs]


def test_packages_without_python_are_for_the_python_that_seatrial_runs_on(tmp_path: Path) -> None:
    made = job(tmp_path, "runtimes: {r: {packages: [x]}}\ntrials: {t: {kind: runtime, runtime: r, commands: [sh]}}")
    assert made.environment.python == "{}.{}".format(*sys.version_info)


def test_what_only_a_cell_knows_to_be_missing_is_told_before_anything_starts(world: "World") -> None:
    world.suite(
        """
        runtimes: {r: {workspace: {path: "work-${n}"}, notebooks: ["${n}.ipynb"]}}
        trials: {t: {kind: runtime, runtime: r, matrix: {n: [1, 2]}}}
        """
    )
    (world.folder / "work-1").mkdir()
    done = world.seatrial("run", "suite.yaml", check=2)
    assert f"t[runtime=r,n=1]: notebook not found: 1.ipynb in {world.folder}/work-1" in done.stderr
    assert f"t[runtime=r,n=2]: input not found: {world.folder}/work-2" in done.stderr
    assert "2 problems" in done.stderr
    assert not (world.folder / "runs").exists()


def test_an_empty_command_line_is_refused_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text('name: n\ntrials: {t: {kind: runtime, run: [""]}}\n')
    with pytest.raises(SuiteError, match=r"suite\.yaml:2:35: empty command line"):
        load(tmp_path / "suite.yaml", *models())


def test_metrics_logs_and_files_of_a_run_entry_are_judged_as_those_of_a_training(world: "World") -> None:
    world.suite(
        """
        trials:
          bench:
            kind: runtime
            run:
              - name: good
                command: |
                  for n in 1 2 3; do echo "rate: $((n + 5))"; done
                  echo '{"speed": 7}' > $SEATRIAL_FILES/out.json
                log: {must: rate}
                files: {out: {match: out.json, valid: json}}
                metrics:
                  rate: {log: 'rate: (\\S+)', unit: 1/s, better: higher, aggregate: last}
                  speed: {file: out.json, key: speed, max: 5}
              - {name: bad, command: "echo Traceback; exec sleep 100", log: {must: never, never: Traceback}}
            xfail: [{step: run good files out, why: to be named}]
        """
    )
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    found = {(finding.step, finding.check): finding.verdict.value for finding in cell.findings}
    assert (
        found.items()
        >= {
            ("run good", "exit"): "passed",
            ("run good", "must rate"): "passed",
            ("run good", "metric rate"): "passed",
            ("run good", "metric speed"): "failed",
            ("run bad", "exit"): "skipped",
            ("run bad", "must never"): "skipped",
            ("run bad", "never Traceback"): "failed",
        }.items()
    )
    assert ("run good files out", "valid") in found
    assert cell.metrics["run good"]["rate"]["value"] == 8
    assert {"seconds", "rate", "speed"} <= set(cell.metrics["run good"])
    assert "run good files" not in cell.metrics


def test_what_a_profile_shows_is_for_a_training_trial(tmp_path: Path) -> None:
    run = "{command: x, files: {p: {match: '*.pb', valid: xplane, steps: 3}}}"
    with pytest.raises(SuiteError, match="applies only to trials of kind training"):
        cells(tmp_path, f"trials: {{t: {{kind: runtime, run: [{run}]}}}}")
