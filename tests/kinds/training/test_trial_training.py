"""The kind `training`: what users write, and the job that it becomes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.job import Job, Step, Unreadable
from seatrial.kinds.training.curve import curve_text, read_curve
from seatrial.kinds.training.kind import kind
from seatrial.kinds.training.model import LOSS, STEP, STEP_TIME_PATTERN
from seatrial.plan import Selection, expand
from seatrial.plugins import models
from seatrial.suite import Cell, SuiteError, load
from seatrial.suite.patterns import longest_literal


def cells(tmp_path: Path, text: str) -> list[Cell]:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    return list(expand(load(path, *models()), Selection()).cells)


def job(tmp_path: Path, text: str) -> Job:
    (cell, *_) = cells(tmp_path, text)
    return kind.parts(cell)[0].job.for_attempt("run-1", cell.hash, 1)


def step(made: Job, name: str) -> Step:
    return next(one for one in made.steps if one.name == name)


def problems(tmp_path: Path, trial: str) -> str:
    with pytest.raises(SuiteError) as caught:
        cells(tmp_path, f"trials: {{t: {{kind: training, command: x, {trial}}}}}")
    return str(caught.value)


FULL = """
machines: {cpu: {}}
trials:
  llama:
    kind: training
    matrix: {model: [llama-3.1, "c++"], machine: cpu}
    command: python train.py model=${model}
    hosts: 2
    timeout: {queue: 1h, run: 3h, stall: 10m}
    workspace: {path: code}
    log: {must: ["Finished ${model}"], never: Traceback}
    loss: {target: 0.4735, tolerance: 0.001}
    steps: {count: ">=15"}
    stall: {factor: 30, least: 1m, after: 3}
    files: {profile: {match: "**/*.xplane.pb", count: 1, valid: xplane, window: [3, 8]}}
    metrics:
      step_time: {file: "**/train_metrics.json", key: step_execution_time, unit: s, better: lower}
      rate: {log: 'tokens/s: (\\S+)', unit: tokens/s, better: higher}
    xfail: [{model: "c++", step: files profile, why: its profiler is broken}]
"""


def test_a_suite_becomes_what_the_agent_runs_and_reads(tmp_path: Path) -> None:
    made = job(tmp_path, FULL)
    assert [one.name for one in made.steps] == ["train", "files"]
    args = step(made, "train").args
    assert (args["command"], args["hosts"]) == ("python train.py model=llama-3.1", 2)
    follow = args["follow"]
    assert follow["must"] == [{"pattern": r"Finished llama\-3\.1", "literal": "Finished llama-3.1"}]
    assert follow["never"] == [{"pattern": "Traceback", "literal": "Traceback"}]
    assert set(follow["values"]) == {"step", "step_time", "loss", "metric rate"}
    assert follow["finite"] == ["loss"]
    assert follow["stall"] == {"factor": 30.0, "least_s": 60.0, "steps": 3}
    files = step(made, "files").args
    assert files["roots"] == [".", "files"]
    assert files["entries"]["profile"]["reader"] == "xplane"
    assert files["entries"]["metric step_time"]["keys"] == ["step_execution_time"]
    assert made.limits.stall_s == 600.0
    assert [(one.source, one.path) for one in made.inputs] == [(str(tmp_path / "code"), ".")]


def test_the_agent_keeps_the_losses_of_the_steps_of_a_recorded_curve(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text("[[40, 2.0], [0, 5.5], [10, 4.5]]")
    suite = "trials: {t: {kind: training, command: x, loss: {curve: good.json, tolerance: 1%}}}"
    (cell,) = cells(tmp_path, suite)
    (part,) = kind.parts(replace(cell, gathered=kind.gather(cell)))
    assert step(part.job.for_attempt("run-1", cell.hash, 1), "train").args["follow"]["wanted"] == [0, 10, 40]


def test_values_of_axes_stand_for_themselves_in_patterns(tmp_path: Path) -> None:
    (_, second) = cells(tmp_path, FULL)
    (must,) = step(kind.parts(second)[0].job, "train").args["follow"]["must"]
    assert re.search(must["pattern"], "Finished c++")
    assert not re.search(must["pattern"], "Finished cc")


def test_a_command_alone_is_a_trial(tmp_path: Path) -> None:
    made = job(tmp_path, "trials: {t: {kind: training, command: sleep 1}}")
    assert [one.name for one in made.steps] == ["train"]
    follow = step(made, "train").args["follow"]
    assert set(follow["values"]) == {"step", "step_time"}
    assert follow["finite"] == []  # what a log calls loss is not judged unasked
    assert follow["stall"] == {"factor": 100.0, "least_s": 300.0, "steps": 5}
    patient = job(tmp_path, "trials: {t: {kind: training, command: x, stall: false}}")
    assert step(patient, "train").args["follow"]["stall"] is None
    assert "any" not in follow
    one_is_enough = job(tmp_path, "trials: {t: {kind: training, command: x, log: {hosts: any}}}")
    assert step(one_is_enough, "train").args["follow"]["any"]


def test_a_repository_is_cloned_first_and_the_trials_own_wins(tmp_path: Path) -> None:
    made = job(
        tmp_path,
        """
        runtimes: {r: {workspace: {path: theirs}}}
        trials: {t: {kind: training, runtime: r, command: x, workspace: {git: "https://git.example/t", ref: main}}}
        """,
    )
    assert [one.name for one in made.steps] == ["workspace", "train"]
    assert made.inputs == ()


def test_what_only_judges_does_not_change_what_metrics_depend_on(tmp_path: Path) -> None:
    plain = "trials: {{t: {{kind: training, command: x, {0}}}}}"
    base = cells(tmp_path, plain.format("hosts: 1"))[0].spec.work()
    for judged in ("log: {must: a}", "loss: {}", "stall: false", "files: {a: {match: b}}", "metrics: {m: {log: (a)}}"):
        assert cells(tmp_path, plain.format(judged))[0].spec.work() == base, judged
    for matters in ("hosts: 2", "workspace: {path: .}"):
        assert cells(tmp_path, plain.format(matters))[0].spec.work() != base, matters


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        ("log: {must: '('}", "invalid regular expression"),
        ("log: {never: ''}", "matches every line"),
        ("loss: {pattern: 'loss: .*'}", "has no group"),
        ("loss: {target: 1}", "need `tolerance`"),
        ("loss: {tolerance: 1}", "`tolerance` needs `target` or `curve`"),
        ("loss: {target: .nan, tolerance: 1}", "expected a number"),
        ("loss: {target: 1, tolerance: much}", "invalid tolerance"),
        ("steps: {count: many}", "invalid amount"),
        ("stall: {factor: 0.5}", "greater than 1"),
        ("stall: {after: 1}", "greater than or equal to 2"),
        ("files: {p: {match: a, steps: 3}}", "`steps` needs a profile"),
        ("files: {p: {match: a, valid: xplane, devices: 4}}", "`devices` needs `device`"),
        ("files: {p: {match: a, valid: xplane, window: [8, 3]}}", "invalid `window` [8, 3]"),
        ("files: {p: {match: a, valid: xplane, agrees: 200%}}", "invalid share"),
        ("files: {p: {match: a, valid: protobuf}}", "expected one of json, xplane, kineto"),
        ("files: {'a b': {match: a}}", "invalid name"),
        ("metrics: {m: {unit: s}}", "exactly one of `file`, `log`, `profile`"),
        ("metrics: {m: {file: a}}", "set both `file` and `key`, or neither"),
        ("metrics: {m: {profile: p}}", "needs an entry 'p' in `files`"),
        ("metrics: {m: {log: (a), min: 2, max: 1}}", "more than `max`"),
        ("metrics: {m: {log: (a), better: faster}}", "expected one of lower, higher"),
        ("metrics: {m: {log: (a), file: b, key: c}}", "got 2"),
        ("hosts: 0", "greater than or equal to 1"),
        ("los: {}", "unknown field 'los'; did you mean 'loss'?"),
        ("metrics: {m: {pattern: (a)}}", "unknown field 'pattern'; known: "),
        ("metrics: {m: {bettr: lower, log: (a)}}", "unknown field 'bettr'; did you mean 'better'?"),
        ("log: {must: '${nothing}'}", "unknown name ${nothing}"),
        ("xfail: [{step: trian, why: x}]", "unknown step 'trian'; did you mean 'train'?"),
    ],
)
def test_what_makes_no_sense_is_told_where_it_stands(tmp_path: Path, trial: str, message: str) -> None:
    told = problems(tmp_path, trial)
    assert message in told
    assert "suite.yaml:1:" in told


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("{'loss': 2.31, 'grad_norm': 4}", "2.31"),
        ('{"loss":2.31}', "2.31"),
        ("loss=2.31", "2.31"),
        ("Epoch: 0.1, step: 10, loss: 4.1234, lr: 1e-3", "4.1234"),
        ("loss: nan", "nan"),
        ("loss: -NaN", "-NaN"),
        ("loss: -inf,", "-inf"),
        ("Loss: 1e-05", "1e-05"),
        ("loss: -0.5", "-0.5"),
        ("loss: .5", ".5"),
        ("iter 5: loss 4.2, time 3ms", "4.2"),
        ("lm loss: 6.1E+00 | loss scale: 1.0", "6.1E+00"),
        ("loss: tensor(2.5, device='cuda:0')", "2.5"),
        ('{"loss": "NaN"}', "NaN"),
        ("{'loss': '2.31'}", "2.31"),
        ("loss: [nan]", "nan"),
        ("loss=[[-inf]]", "-inf"),
        ("loss: tensor([nan], device='cuda:0')", "nan"),
        ("loss Array(nan, dtype=float32)", "nan"),
        ("{'loss': np.float32(2.31)}", "2.31"),
        ("loss: INFINITY", "INFINITY"),
        ("loss: -Infinity", "-Infinity"),
        ("Loss=1,234.5", "1,234.5"),
        ("loss: 12,345,678", "12,345,678"),
        ("loss: 1,2", "1"),
        ("loss: 2.5, 300 steps", "2.5"),
        ("loss [12/100] 3", None),
        ("loss: nanny", None),
        ("val_loss: 3 loss: 2", "2"),
        ("val_loss: 3", None),
        ("val/loss: 3", None),
        ("val loss: 3", None),
        ("Validation loss: 3", None),
        ("loss_scale: 3", None),
        ("loss scale: 3", None),
        ("train_loss: 3", None),
        ("no loss of generality", None),
        ("floss: 3", None),
    ],
)
def test_the_loss_is_read_and_nothing_else_is_taken_for_it(line: str, loss: str | None) -> None:
    match = re.search(LOSS, line)
    assert (match[1] if match else None) == loss
    assert (re.search(LOSS.encode(), line.encode()) is None) == (match is None)  # the agent reads bytes


def test_steps_and_their_times_are_read() -> None:
    steps = {"step: 12": "12", "Step 3/100": "3", "'step': 4,": "4", "global_step=7": "7", "step_time: 4": None,
             "step: 1.5": None, "multi-step: 3": None, "max_steps: 9": None}  # fmt: skip
    times = {"step_time: 0.0123s": "0.0123", "step time = 1e-3 s": "1e-3", "step_time: 12.5ms": None,
             "step_time: 12.5 ms": None}  # fmt: skip
    for pattern, lines in ((STEP, steps), (STEP_TIME_PATTERN, times)):
        for line, wanted in lines.items():
            match = re.search(pattern, line)
            assert (match[1] if match else None) == wanted, line


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("Finished training run", "Finished training run"),
        (r"loss: (\S+)", "loss: "),
        (r"\bTraceback\b", "Traceback"),
        ("ab(?:cd)?efg", "efg"),
        ("(?:abc)+d", "abc"),
        ("foo(?=bar)baz", "foobaz"),
        ("one|two", ""),
        ("(?i)error", ""),
        ("(?i:error) at", " at"),
        (r"x{2,}y", "x"),
        ("[ab]c", "c"),
        (".*", ""),
        ("a\nb", ""),
        ("(", ""),
    ],
)
def test_the_literal_of_a_pattern_is_in_every_match(pattern: str, text: str) -> None:
    assert longest_literal(pattern) == text


def test_curves_are_read_in_the_forms_that_people_have(tmp_path: Path) -> None:
    forms = {
        "a.json": '{"0": 5.5, "10": 4.5, "20": null}',
        "b.json": "[[0, 5.5], [10, 4.5]]",
        "c.csv": "0,5.5\n10,4.5\n",
        "d.csv": "time,step,lr,loss\n1,0,9,5.5\n2,10,9,4.5\n\n",
    }
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        assert read_curve(tmp_path / name) == {0: 5.5, 10: 4.5}, name
    (tmp_path / "e.json").write_text("[5.5, 4.5]")
    assert read_curve(tmp_path / "e.json") == {0: 5.5, 1: 4.5}
    for name, as_csv, first in (("f.csv", True, "step,loss"), ("f.json", False, "[")):
        (tmp_path / name).write_text(curve_text({10: 4.5, 0: 5.5}, as_csv))
        assert (tmp_path / name).read_text().splitlines()[0] == first
        assert read_curve(tmp_path / name) == {0: 5.5, 10: 4.5}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("step,loss\n1,1\n2,nan\n3,1\n", ":3: the loss at step 2 is nan"),
        ("1,1\n2,-Infinity\n", ":2: the loss at step 2 is -inf"),
        ('{"1": 1.0,\n "2": NaN}', ":2: the loss at step 2 is nan"),
        ("[[1, 1.0], [2, 1e999]]", ": the loss at step 2 is inf"),
        ("[1.0, Infinity]", ":1: the loss at step 1 is inf"),
    ],
)
def test_a_loss_of_a_recorded_curve_that_is_no_number_is_told_with_its_line(
    tmp_path: Path, text: str, where: str
) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(Unreadable) as caught:
        read_curve(tmp_path / "c")
    assert f"{tmp_path / 'c'}{where}" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1, {}]", "{", "step,loss\n1,x\n", '{"a": 1}', "[" * 100_000, "\x00", "1\n2"]
)
def test_what_is_no_curve_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(Unreadable, match=str(tmp_path)):
        read_curve(tmp_path / "c")
    with pytest.raises(Unreadable, match="No such file"):
        read_curve(tmp_path / "none")
