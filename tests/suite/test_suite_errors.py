"""Every problem of a suite is found at once, at its place, with the nearest known name."""

import os
import resource
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seatrial.plugins import models
from seatrial.suite import Suite, SuiteError, from_data, load
from seatrial.suite.yaml.problem import Problem, SourceMark

Problems = Callable[..., list[tuple[str, str]]]

SOUND = """\
machines:
  cpu: {cpu: 2}
runtimes:
  base: {python: "3.11"}
trials:
  t:
    kind: probe
"""

# What is added to SOUND (from line 8 on, inside the trial), where the problem is, and what is said of it.
IN_TRIAL = [
    ("    comands: [git]", "8:5", "unknown field 'comands'; known: kind"),
    ("    axes: {v: [1]}", "8:5", "unknown field 'axes'; did you mean 'matrix'?"),
    ("    rum: [git]", "8:5", "unknown field 'rum'; did you mean 'run'?"),
    ("    run: git", "8:10", "expected a list, got 'git'; write [\"git\"]"),
    ("    run: [3.10]", "8:11", 'YAML reads 3.10 as the number 3.1; write "3.10"'),
    ("    tags: [1]", "8:12", 'write "1"'),
    ("    env: {A: 1}", "8:14", 'YAML reads 1 as the number 1; write "1"'),
    ("    env: {A: true}", "8:14", 'YAML reads true as true; write "true"'),
    ("    env: {A: {secrt: B}}", "8:15", "unknown field 'secrt'; did you mean 'secret'?"),
    ("    timeout: 20m", "8:14", "expected a map with queue, run, stall, grace, got '20m'"),
    ("    timeout: {run: 20}\n    timeout: {run: 30}", "9:5", "duplicate 'timeout'; first at"),
    ("    timeout: {run: soon}", "8:20", "invalid duration 'soon'; use seconds (90) or units"),
    ("    timeout: {run: 0}", "8:20", "more than 0"),
    ("    repeat: 0", "8:13", "greater than or equal to 1"),
    ("    repeat: '3'", "8:13", "expected a whole number, got '3'"),
    ("    retry_on: [infar]", "8:16", "did you mean 'infra'?"),
    ("    matrix: {machine: cpuu}", "8:23", "unknown machine 'cpuu'; did you mean 'cpu'?"),
    ("    matrix: {runtime: [bsae]}", "8:24", "unknown runtime 'bsae'; did you mean 'base'?"),
    ("    matrix: {v: [3.9, 3.10]}", "8:23", 'YAML reads 3.10 as the number 3.1; write "3.10", or 3.1'),
    ("    zip: {v: [3.10], w: [1]}", "8:15", 'write "3.10"'),
    ("    matrix: {v: []}", "8:17", "axis 'v' has no values"),
    ("    matrix: {v: [[1]]}", "8:18", "got a list"),
    ("    matrix: {v: [1, '1']}", "8:21", "values 1 and 2 of axis 'v' have the same label '1'"),
    ("    matrix: {v: [{a: 1}, {a: 1}]}", "8:26", "give maps a different `name`"),
    ("    matrix: {tag: [1]}", "8:14", "axis name 'tag' is reserved"),
    ("    matrix: {'a b': [1]}", "8:14", "invalid axis name 'a b'"),
    ("    machine: cpu\n    matrix: {machine: cpu}", "9:23", "duplicate axis 'machine'"),
    ("    zip: {a: [1, 2], b: [1]}", "8:5", "the same number of values: a has 2, b has 1"),
    ("    matrix: {v: [{a: 1, needs: {cpu: '>=x'}}]}", "8:38", "invalid requirement"),
    ("    matrix: {v: [{a: 1, needs: {cpus: 2}}]}", "8:33", "unknown capability 'cpus'; did you mean 'cpu'?"),
    ("    needs: {gpu.cont: 1}", "8:13", "unknown capability 'gpu.cont'; did you mean 'gpu.count'?"),
    ("    needs: {features.ipu: 1}", "8:13", "unknown capability 'features.ipu'"),
    ("    needs: {memory: '>=16'}", "8:21", "invalid memory size '>=16'; use a unit"),
    ("    needs: {gpu.model: '>=A100'}", "8:24", "invalid requirement"),
    ("    needs: {gpu.model: '>=4'}", "8:24", "invalid gpu.model '>=4'"),
    ("    needs: {cpu: many}", "8:18", "invalid cpu 'many'"),
    ("    exclude: [{machine: cpu}]", "8:15", "`why` is missing"),
    ("    exclude: [{why: x}]", "8:15", "`exclude` needs at least one axis"),
    (
        "    exclude: [{machin: cpu, why: x}]\n    machine: cpu",
        "8:16",
        "unknown axis 'machin'; did you mean 'machine'?",
    ),
    (
        "    exclude: [{machine: gpu, why: x}]\n    machine: cpu",
        "8:25",
        "unknown value 'gpu' of axis 'machine'; known: cpu",
    ),
    ("    exclude: [{repeat: 3, why: x}]\n    repeat: 2", "8:24", "`repeat` must be from 1 to 2"),
    (
        "    xfail: [{step: run flase, why: x}]\n    run: ['false']",
        "8:20",
        "unknown step 'run flase'; did you mean 'run false'?",
    ),
    (
        "    run: ['echo ${modle}']\n    matrix: {model: [a]}",
        "8:11",
        "unknown name ${modle} (for a shell variable, write $${modle}); did you mean 'model'?",
    ),
    ("    run: ['echo ${HOME}']", "8:11", "for a shell variable, write $${HOME}"),
    (
        "    run: ['echo ${c.b}']\n    matrix: {c: [{a: 1}]}",
        "8:11",
        "unknown field ${c.b} of value 'a:1' of axis 'c'; did you mean 'c.a'?",
    ),
    ("    run: ['echo ${c.b}']\n    matrix: {c: [x]}", "8:11", "the value is not a map"),
    ("    parameters: {a: {b: ['${x}']}}", "8:26", "unknown name ${x}"),
    ("    baseline: bounds-${x}.yaml", "8:15", "unknown name ${x}"),
    ("  u: {kind: prob}", "8:13", "unknown kind 'prob'; did you mean 'probe'?"),
    ("  u: {}", "8:3", "`kind` is missing; use one of probe"),
    ("  u: probe", "8:6", "expected a map with `kind`"),
    ("  a/b: {kind: probe}", "8:3", "invalid name 'a/b'"),
]

WHOLE = [
    ("trials: {t: {kind: probe}}\ntarget: {}", "2:1", "unknown field 'target'; did you mean 'targets'?"),
    ("trials: {t: {kind: probe}}\ntargets: {a: {kind: locl}}", "2:21", "unknown kind 'locl'; did you mean 'local'?"),
    ("trials: {t: {kind: probe}}\ntargets: {a: {kind: local, paralel: 1}}", "2:28", "did you mean 'parallel'?"),
    (
        "trials: {t: {kind: probe}}\nmachines: {a: {target: claster}}\ntargets: {cluster: {kind: far}}",
        "2:24",
        "unknown target 'claster'; did you mean 'cluster'?",
    ),
    (
        "trials: {t: {kind: probe}}\nmachines: {a: {gpu: {memory: 16}}}",
        "2:30",
        "invalid size 16; use a number with a unit",
    ),
    ("trials: {t: {kind: probe}}\nmachines: {all: {}}", "2:12", "`all` is reserved"),
    ("trials: {t: {kind: probe}}\nmachines: [a]", "2:1", "`machines` must be a map"),
    (
        "trials: {t: {kind: probe}}\nruntimes: {a: {python: 3.10}}",
        "2:24",
        'YAML reads 3.10 as the number 3.1; write "3.10"',
    ),
    ("trials: {t: {kind: probe}}\nruntimes: {a: {image: x, python: '3'}}", "2:12", "at most one of"),
    (
        "trials: {t: {kind: probe}}\nruntimes: {a: {image: i, packages: [x]}}",
        "2:12",
        "`packages` cannot be combined with `image`",
    ),
    ("trials: {t: {kind: probe, timeout: 5m}}", "1:36", "got '5m'; write {run: 5m}"),
    ("trials: {t: {kind: probe, run: [{secret: A}]}}", "1:33", "a secret cannot be used here"),
    ("trials: {t: {kind: probe, matrix: {n: [{secret: A}]}}}", "1:40", "an axis value cannot be a secret"),
    (
        "trials: {t: {kind: probe}}\nruntimes: {a: {notebooks: [{path: a.ipynb, parameters: {t: [{secret: A}]}}]}}",
        "2:44",
        "parameter 't' cannot be a secret",
    ),
    ("trials: {t: {kind: probe}}\nruntimes: {3.10: {}}", "2:12", 'write "3.10"'),
    ("trials: {t: {kind: probe}}\nsecrets: {A: {}}", "2:14", "exactly one of `env`, `file`"),
    ("trials: {t: {kind: probe}}\nmax_cost: -1", "2:11", "greater than or equal to 0"),
    (
        "runtimes: {a: {image: 'x:${y}'}}\ntrials: {t: {kind: probe, runtime: a}}",
        "1:23",
        "unknown name ${y} in trial 't', which uses this runtime",
    ),
    ("runtimes: {}\ntrials: {t: {kind: probe, runtime: all}}", "2:36", "the suite has no runtimes"),
    ("name: x", "1:1", "a suite needs at least one trial"),
    ("", "1:1", "the file is empty"),
    ("- a", "1:1", "not a map"),
    ("a: [", "2:1", "invalid YAML: a `[` or `{` is not closed, or a value is missing"),
    ("a: [b\nc: d", "1:4", "invalid YAML: a `[` is not closed, or a comma is missing"),
    ('a: "b\nc: d', "1:4", "invalid YAML: a quoted text is not closed"),
    ("a: b: c", "1:5", "invalid YAML: a second `: ` in one line; quote the text that contains it"),
    ("a:\n\t- b", "2:1", "indented with a tab; indent with spaces"),
    ("a:\n  \tb: c", "2:3", "indented with a tab; indent with spaces"),
    ("a:\n    b: c\n   d: e", "3:4", "wrong indentation: 3 spaces; the lines above use 0 or 4"),
    ("a:\n  b: c\n    d: e", "3:5", "wrong indentation: 4 spaces; the line above uses 2"),
    ("a:\n  b\n  d: e", "3:3", "the line above has no `: `; write `key: value`"),
    ("a: [echo ${b}, c]", "1:10", 'quote text that contains ${…} inside [ ] or { }: "${…}"'),
    ("a:\n- b\n - c", "3:2", "wrong indentation: this `- ` continues the text above; align it with the other items"),
    ("a: b\nc", "2:1", "invalid YAML: expected `key: value`; this has no `: `"),
    ("a: @b", "1:4", "invalid YAML: quote text that starts with this character"),
    ("  a: b\nc: d", "2:1", "invalid YAML: text after the end of the file's map; check its indentation"),
    ("trials: {t: {kind: probe}}\n---\nx: 1", "2:1", "second YAML document"),
    ("a: *b", "1:4", "alias *b has no anchor before it"),
    ("a: &b [*b]", "1:8", "alias *b is inside its own anchor"),
    ("trials: !!python/object:os.system {t: {kind: probe}}", "1:9", "unknown YAML tag"),
    ("name: !!python/name:os.system x\ntrials: {t: {kind: probe}}", "1:7", "unknown YAML tag"),
    ("trials: {t: {kind: probe}}\n<<: 3", "2:5", "`<<` needs a map"),
    ("trials: {t: {kind: probe}}\n? [a]\n: b", "2:3", "expected text as a key"),
]


@pytest.mark.parametrize(("added", "where", "said"), IN_TRIAL)
def test_a_problem_of_a_trial_is_told_at_its_place(problems_of: Problems, added: str, where: str, said: str) -> None:
    problems = problems_of(SOUND + added + "\n")
    assert [place for place, message in problems if said in message] == [f"suite.yaml:{where}"], problems


@pytest.mark.parametrize(("text", "where", "said"), WHOLE)
def test_a_problem_of_a_suite_is_told_at_its_place(problems_of: Problems, text: str, where: str, said: str) -> None:
    problems = problems_of(text)
    assert f"suite.yaml:{where}" in [place for place, message in problems if said in message], problems


def test_all_problems_are_told_at_once_in_the_order_of_lines(problems_of: Problems) -> None:
    parts = [added for added, _, said in IN_TRIAL if "unknown field" in said or "why" in said or "unknown name" in said]
    text = "machines: {cpu: {cp: 1}}\nruntimes: {base: {python: 3.1}}\ntrials:\n"
    text += "".join(f"  t{n}:\n    kind: probe\n{part}\n" for n, part in enumerate(parts))
    places = [place for place, _ in problems_of(text)]
    assert len(places) >= len(parts) + 2
    lines = [int(place.split(":")[1]) for place in places]
    assert lines == sorted(lines)
    assert set(range(1, 3)) <= set(lines)


def test_a_bad_field_does_not_hide_bad_names_beside_it(problems_of: Problems) -> None:
    said = " | ".join(
        m for _, m in problems_of(SOUND + "    repeat: x\n    machine: cpuu\n    exclude: [{machine: cpuu}]\n")
    )
    assert "whole number" in said
    assert "unknown machine 'cpuu'" in said
    assert "`why` is missing" in said


def test_a_bad_need_does_not_hide_the_names_of_others(problems_of: Problems) -> None:
    text = "runtimes: {r: {needs: {cpu: '=> 2', gpus: 1}}}\ntrials: {t: {kind: probe, needs: {cpu: [], vram: 4}}}"
    said = " | ".join(message for _, message in problems_of(text))
    assert "did you mean '>=2'?" in said
    assert "unknown capability 'gpus'; did you mean 'gpu.count'?" in said
    assert "unknown capability 'vram'; did you mean 'gpu.memory'?" in said


def test_a_map_that_was_meant_as_text_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("trials:\n  t:\n    kind: runtime\n    run: [echo a: b]\n")
    with pytest.raises(SuiteError) as caught:
        load(path, *models())
    (problem,) = caught.value.problems
    assert problem.message.startswith("unknown field 'echo a'; if this is text, quote it")


def test_the_text_shows_the_line_with_a_caret_under_the_place(tmp_path: Path, kinds: Any) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("trials:\n  t: {kind: probe, rum: [ls]}\n")
    with pytest.raises(SuiteError) as caught:
        load(path, *kinds)
    assert str(caught.value) == textwrap.dedent(f"""\
        {path}:2:20: unknown field 'rum'; did you mean 'run'?
            2 |   t: {{kind: probe, rum: [ls]}}
              |                    ^^^
        1 problem""")


@pytest.mark.parametrize(
    ("line", "column", "marked"),
    [
        ("    timeout: ten minutes  # too long", 14, "ten minutes"),
        ("    timeout: [1, 2]", 14, "[1, 2]"),
        ("    needs: {cpu: 4, gpus: 2}", 21, "gpus"),
        ("    needs: {cpu: many, gpu: 2}", 18, "many"),
        ("    run: ['it''s: x', b]", 11, "'it''s: x'"),
        ('    run: "a # b"  # c', 10, '"a # b"'),
        ("    image: a:b", 12, "a:b"),
        ("    a", 1, "    a"),
        ("\t a", 1, "\t"),
        ("    a", 9, " "),
    ],
)
def test_carets_mark_the_whole_key_or_value(line: str, column: int, marked: str) -> None:
    carets = str(Problem("x", SourceMark("f", 1, column, line))).splitlines()[2]
    assert carets == f"      | {' ' * min(column - 1, len(line))}{'^' * len(marked)}"


def test_hostile_text_cannot_move_the_cursor_of_a_terminal(tmp_path: Path, kinds: Any) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text('trials: {t: {kind: "\\e[2J\\x07", "\\e]0;x\\a": 1}} # \u202e' + "x" * 5000)
    with pytest.raises(SuiteError) as caught:
        load(path, *kinds)
    text = str(caught.value)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(map(len, text.splitlines())) < 400


def test_thousands_of_problems_are_counted_not_all_printed(tmp_path: Path, kinds: Any) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("trials: {t: {kind: probe}}\n" + "".join(f"bad{n}: 1\n" for n in range(3000)))
    with pytest.raises(SuiteError) as caught:
        load(path, *kinds)
    assert len(caught.value.problems) == 3000
    assert str(caught.value).endswith("and 2950 more\n3000 problems")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"name: a\nb: \xe9", "not UTF-8 (byte 11: 0xe9)"),
        (b"name: a\x00b", "invalid YAML:"),
        (b"trials: {t: {kind: probe}}\n" + b"# padding\n" * 1_050_000, "larger than 1 MiB"),
        (b"[" * 200_000, "nested too deeply (limit 50 levels)"),
        (b"{a: " * 200_000, "nested too deeply (limit 50 levels)"),
        (b"a: [" + b"1," * 300_000 + b"]", "too many values, including aliases (limit 200,000)"),
        (
            b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(
                b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (c, c, *[c - 1] * 10) for c in range(98, 110)
            ),
            "too many values, including aliases (limit 200,000)",
        ),
    ],
    ids=["utf-16", "latin-1", "nul", "10 MB", "deep lists", "deep maps", "many values", "alias bomb"],
)
def test_what_is_no_suite_is_refused_with_bounded_memory(problems_of: Problems, content: bytes, said: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert said in problems_of(content)[0][1]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KiB


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.yaml", "cannot read the file: No such file or directory"),
        (".", "cannot read the file: Is a directory"),
        ("pipe", "not a regular file"),
        ("endless", "not a regular file"),
        ("loop", "cannot read the file: Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kinds: Any, name: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SuiteError, match=said):
        load(tmp_path / name, *kinds)


def test_data_without_a_file_has_paths_instead_of_lines(tmp_path: Path, kinds: Any) -> None:
    with pytest.raises(SuiteError) as caught:
        from_data({"trials": {"t": {"kind": "probe", "run": ["ls", 3]}}}, tmp_path, *kinds)
    assert str(caught.value).startswith("trials.t.run[1]: expected text")


def _loads_or_says_why(loading: Callable[[], Suite]) -> None:
    said = "a suite"
    try:
        loading()
    except SuiteError as error:
        said = str(error)
    assert said


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_suite_gives_a_suite_error_or_a_suite_and_nothing_else(
    tmp_path: Path, kinds: Any, data: st.DataObject
) -> None:
    text = SOUND + "\n".join(data.draw(st.lists(st.sampled_from([added for added, _, _ in IN_TRIAL]), max_size=3)))
    at = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text(alphabet="{}[]:,&*!|>'\"%@`-?#\n\t aé0.~<", max_size=6))
    path = tmp_path / "suite.yaml"
    path.write_text(text[:at] + junk + text[at + data.draw(st.integers(0, 10)) :])
    _loads_or_says_why(lambda: load(path, *kinds))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["trials", "t", "kind", "matrix", "machine", "exclude", "why", "needs", "zip", "gpu", "env", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_data_gives_a_suite_error_or_a_suite_and_nothing_else(tmp_path: Path, kinds: Any, data: Any) -> None:
    for written in (data, {"trials": {"t": {"kind": "probe", "matrix": data, "exclude": [data], "zip": data}}}):
        _loads_or_says_why(partial(from_data, written, tmp_path, *kinds))


# Each has one mistake, and what would follow from it elsewhere.
ONE_MISTAKE = {
    "a runtime": """
        runtimes: {a: {python: "3.11", image: x}}
        trials:
          one: {kind: probe, runtime: a, run: [x], exclude: [{runtime: a, why: no}]}
          two: {kind: probe, matrix: {runtime: [a]}, run: ["echo ${runtime}"], xfail: [{runtime: a, why: no}]}
        """,
    "an entry that is no map": """
        machines: {m: 4}
        trials: {one: {kind: probe, machine: m, run: [x]}, two: {kind: probe, matrix: {machine: m}, run: [x]}}
        """,
    "features": """
        machines: {m: {features: {ipu: [16]}}}
        runtimes: {r: {needs: {features.ipu: ">=4"}}}
        trials: {one: {kind: probe, runtime: r, machine: m, run: [x], needs: {features.ipu: 1}}}
        """,
    "a matrix": """
        trials: {one: {kind: probe, matrix: [a, b], run: ["echo ${a}", "echo ${b}"], exclude: [{a: 1, why: no}]}}
        """,
    "a name in a matrix": """
        runtimes: {base: {}}
        trials: {one: {kind: probe, runtime: bas, run: [x], xfail: [{runtime: base, why: no}]}}
        """,
    "a field that steps are made of": """
        trials: {one: {kind: probe, run: x, xfail: [{step: run x, why: no}]}}
        """,
    "an include": """
        include: [shraed.yaml]
        trials: {one: {kind: probe, runtime: base, machine: m, run: [x]}}
        """,
    "a target": """
        targets: {t: {kind: local, parallel: [2]}}
        machines: {m: {target: t}}
        trials: {one: {kind: probe, machine: m, run: [x]}}
        """,
}


@pytest.mark.parametrize("mistake", ONE_MISTAKE)
def test_one_mistake_is_one_message(problems_of: Problems, mistake: str) -> None:
    problems = problems_of(dedent(ONE_MISTAKE[mistake]))
    assert len(problems) == 1, problems
