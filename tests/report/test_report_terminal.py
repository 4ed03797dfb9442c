"""The summary on a terminal: everything that happened, in the width there is."""

import io
from pathlib import Path

import msgspec
import pytest
import sample

from seatrial.checks.causes import find_causes
from seatrial.job import Excluded, Finding, RunResults, Verdict
from seatrial.report.markdown import render_markdown
from seatrial.report.terminal.lines import paint
from seatrial.report.terminal.summary import print_summary, summary_lines
from seatrial.report.view.run import RunView
from seatrial.report.view.words import width


def told(run: RunResults, folder: Path, columns: int = 120) -> str:
    return paint(summary_lines(RunView(run, sample.write_run(folder, run)), columns))


def test_each_failure_has_its_step_message_first_line_of_evidence_log_and_the_way_to_run_it_again(
    tmp_path: Path,
) -> None:
    text = told(sample.small(), tmp_path)
    block = text[text.index("✗ failed  generic[runtime=base,machine=large]") :].split("\n\n")[0].splitlines()
    assert block[3:5] == [
        "  ✗ import scipy  crashed  scipy is installed but does not import",
        "    │ ImportError: libgfortran.so.5: cannot open shared object file: No such file or directory",
    ]
    assert any(line.startswith("  log ") and line.endswith("cells/a1b2c3d4/1/log.txt") for line in block)
    assert block[-1] == "  rerun  seatrial run 'examples/my suite.yaml' --select /a1b2c3d4"
    assert sum("✗" in line for line in block) == 4  # the cell and all three of its findings


def test_steps_that_a_job_did_not_reach_are_said_once(tmp_path: Path) -> None:
    before = "before this step the job could not finish: infrastructure failure"
    steps = ("facts", "command sh", "import json", "run a", "run b")
    missed = [Finding(step, "check", Verdict.INFRA, "infra", before) for step in steps]
    other = Finding("run c", "exit", Verdict.FAILED, "exit", "exited 1 (expected 0)")
    cell = sample.cell("a1b2c3d4", "base", "large", Verdict.INFRA, *missed, other)
    run = sample.results("s", Verdict.INFRA, [cell], [])
    text = told(run, tmp_path)
    assert f" facts, command sh, import json and 2 more  infra  {before}\n" in text
    assert "run c  exit  exited 1 (expected 0)" in text
    assert text.count(before) == 1
    markdown = render_markdown(RunView(run, tmp_path))
    assert markdown.count(f"**facts, command sh, import json and 2 more** (infra) {before}") == 1


def test_nothing_vanishes(tmp_path: Path) -> None:
    text = told(sample.small(), tmp_path)
    assert "attempt 1: infra, cluster/large on gpu-node-17 (the node was drained while the job ran)" in text
    assert "attempt 2: passed, cluster/large on gpu-node-04" in text
    assert "1 × notebook" in text
    assert "the kernel was killed: out of memory at 512 MiB (issue 41: the sample needs 2 GiB)" in text
    assert "1 × stopped after 5 failures (--max-failures 5)" in text
    assert "1 × notebook big.ipynb fresh: needs the command nvidia-smi" in text
    assert "2 × needs gpu.count >=1, the machine has 0" in text
    assert "no space left on device while the environment was built" in text
    assert "≠ import flax  it imports, although issue 52 says that it cannot" in text
    last = " ".join(text.splitlines()[-2:])  # it is wrapped
    for count in (
        "9 cells",
        "2 failed",
        "1 timeout",
        "1 xpass",
        "1 infra",
        "2 passed (1 flaky)",
        "1 xfail",
        "3 excluded",
    ):
        assert count in last


def test_deselected_cells_are_not_counted_as_excluded(tmp_path: Path) -> None:
    run = sample.small()
    others = [Excluded("t", {"n": str(n)}, "not selected", "select") for n in range(2)]
    text = told(msgspec.structs.replace(run, excluded=[*run.excluded, *others]), tmp_path)
    assert "3 excluded, 2 deselected" in text
    assert "– excluded or deselected" in text


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_line_is_too_wide_but_what_is_there_to_be_copied(tmp_path: Path, columns: int) -> None:
    copied = ("  log ", "  rerun ", "✗ ", "◔ ", "≠ ", "! ", "  generic[", "  where ")
    text = told(sample.small(), tmp_path, columns)
    assert [line for line in text.splitlines() if width(line) > columns and not line.startswith(copied)] == []


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    text = told(sample.small(), tmp_path)
    assert not set(text) & set("\x1b\x00\x08\x07\u202e")


def test_many_failures_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    text = told(sample.large(), tmp_path)
    assert text.count("  rerun  ") == 5
    assert "… and 95 more cells that did not pass" in text
    assert len(text.splitlines()) < 150


def test_a_run_of_299_cells_with_four_causes_fits_on_40_lines_with_an_example_of_each(tmp_path: Path) -> None:
    (tmp_path / "report.html").touch()
    causes = {"T4": "out of memory", "V100": "no kernel image", "A10": "driver too old"}
    cells = []
    for number in range(299):
        machine, model = ("T4", "V100", "A10", *map(str, range(10)))[number % 13], f"m{number // 13}"
        wrong = causes.get(machine) or ("m7 is not there" if model == "m7" else "")
        found = [Finding("run", "exit", Verdict.FAILED, "exit", wrong)] if wrong else []
        verdict = Verdict.FAILED if wrong else Verdict.PASSED
        tried = [sample.attempt(verdict=verdict, headline=wrong)]
        cells.append(sample.cell(f"{number:08x}", model, machine, verdict, *found, attempts=tried))
    run = sample.results("s", Verdict.FAILED, cells, [])
    text = told(msgspec.structs.replace(run, causes=find_causes(cells)), tmp_path)
    assert len(text.splitlines()) <= 40
    for wrong in (*causes.values(), "m7 is not there"):
        cause = text.partition(f" ✗ {wrong}\n")[2]
        assert cause.splitlines()[1].startswith("        e.g.   ")
        assert cause.splitlines()[2].startswith("        log    ")
        assert cause.splitlines()[3].startswith("        rerun  seatrial run ")
    assert "more rows, " in text
    assert "--failed r1" in text


def test_many_findings_of_a_cell_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    findings = [Finding(f"import m{n}", "import", Verdict.FAILED, "absent", "not there") for n in range(25)]
    run = sample.results("s", Verdict.FAILED, [sample.cell("00000000", "a", "m", Verdict.FAILED, *findings)], [])
    assert "… and 15 more findings that did not pass" in told(run, tmp_path)


def test_a_run_whose_folder_is_gone_is_still_told(tmp_path: Path) -> None:
    text = paint(summary_lines(RunView(sample.small(), tmp_path / "gone"), 100))
    assert "--select /a1b2c3d4" in text
    assert "log.txt" not in text


def test_a_broken_observation_costs_only_its_metrics(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    (folder / "cells/a1b2c3d4/1/observation.json").write_bytes(b'{"job": 7, "steps": [{')
    text = paint(summary_lines(RunView(run, folder), 100))
    assert "where  here/large on node-1 · 4.2 s\n" in text


def test_an_output_without_our_letters_gets_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    run = sample.small()
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(run, sample.write_run(tmp_path, run), out)
    text = raw.getvalue().decode("ascii")
    assert "x failed  generic[runtime=base,machine=large]" in text
    assert "~ xfail" in text


def test_colours_only_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sample.green(2)
    folder = sample.write_run(tmp_path, run)

    def shown(**environment: str) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        out = io.StringIO()
        print_summary(run, folder, out)
        return out.getvalue()

    assert "\x1b[" not in shown()
    assert "\x1b[32m" in shown(FORCE_COLOR="1")
    assert "\x1b[" not in shown(FORCE_COLOR="1", NO_COLOR="1")
