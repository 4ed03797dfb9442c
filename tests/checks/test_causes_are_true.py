"""What a report says about causes and where they are holds for all findings of all cells."""

import itertools
from pathlib import Path

import msgspec
import pytest

from seatrial.checks import find_causes, headline
from seatrial.job import (
    VERSION,
    AttemptResult,
    Cause,
    CellResult,
    Exit,
    Finding,
    Outcome,
    Place,
    RunResults,
    Verdict,
    cause_id,
    causes_by_cell,
    worst,
)
from seatrial.report.markdown import render_markdown
from seatrial.report.view.run import RunView
from seatrial.report.view.sentences import causes_sentence


def bad(step: str, message: str, verdict: Verdict = Verdict.FAILED) -> Finding:
    return Finding(step, "exit", verdict, "exit", message)


def cell(axes: dict[str, str], *findings: Finding, hosts: tuple[str, ...] = ("h",)) -> CellResult:
    """As the engine makes it of the findings of its only attempt."""
    made = [Finding("run start", "exit", Verdict.PASSED, message="exit code 0"), *findings]
    verdict = worst(finding.verdict for finding in made)
    place = {"target": "here", "machine": "m", "host": ", ".join(hosts), "hosts": hosts}
    attempt = AttemptResult(
        1,
        msgspec.convert(place, Place),
        [],
        Exit(Outcome.EXITED, int(bool(findings))),
        verdict,
        headline=headline(made),
    )
    name = ",".join(f"{axis}={value}" for axis, value in axes.items())
    return CellResult(f"t[{name}]", name, axes, verdict, "t", "runtime", attempts=[attempt], findings=made)


def said(cells: list[CellResult], text: str) -> list[Cause]:
    return [cause for cause in find_causes(cells) if text in cause.text]


def markdown(cells: list[CellResult], folder: Path) -> str:
    results = RunResults(VERSION, "r", "s", Verdict.FAILED, cells, causes=find_causes(cells), suite_path="s.yaml")
    return render_markdown(RunView(results, folder))


def frameworks() -> list[CellResult]:
    """18 cells that all lack a command; those of two frameworks of three say something else first."""
    missing, late = bad("command nvtop", "nvtop: not found"), bad("import flash_attn", "ImportError: flash_attn")
    return [
        cell({"fw": fw, "machine": machine, "python": python}, *((missing,) if fw == "jax" else (late, missing)))
        for fw, machine, python in itertools.product(["torch", "jax", "tf"], ["A100", "H100", "L4"], ["3.11", "3.12"])
    ]


def test_a_message_of_all_cells_is_a_cause_of_all_cells() -> None:
    (cause,) = said(frameworks(), "nvtop")
    assert len(cause.cells) == 18
    assert cause.place == {}
    (other,) = said(frameworks(), "flash_attn")
    assert len(other.cells) == 12


def test_no_place_is_named_for_a_message_of_all_cells(tmp_path: Path) -> None:
    text = markdown(frameworks(), tmp_path)
    assert "only fw=jax" not in text
    assert "every cell" in text


COMMANDS = ["nvtop", "htop", "git", "curl", "vim", "tmux", "rsync", "aws"]


def four_cells(*of_base: Finding) -> list[CellResult]:
    """Two runtimes on two machines, without any of the commands; those of `base` have other findings before that."""
    missing = [bad(f"command {command}", f"{command}: not found") for command in COMMANDS]
    return [
        cell({"runtime": runtime, "machine": machine}, *(of_base if runtime == "base" else ()), *missing)
        for runtime, machine in itertools.product(["base", "full"], ["A100", "H100"])
    ]


@pytest.mark.parametrize(
    "of_base",
    [
        pytest.param((), id="all fail alike"),
        pytest.param((bad("import torch", "ImportError: torch"),), id="some fail before"),
        pytest.param((bad("run train", "too late", Verdict.TIMEOUT),), id="some fail otherwise"),
    ],
)
def test_everything_that_is_missing_everywhere_is_in_a_cause_of_every_cell(of_base: tuple[Finding, ...]) -> None:
    causes = find_causes(four_cells(*of_base))
    everywhere = [cause.text for cause in causes if len(cause.cells) == 4]
    unnamed = [command for command in COMMANDS if not any(command in text for text in everywhere)]
    assert unnamed == []


def test_a_later_finding_of_a_cell_counts_for_where_a_cause_is() -> None:
    """A driver that is too old on one machine, hidden in half of its cells behind another failure."""
    driver, tools = bad("run smi", "driver is too old"), bad("command git", "git: not found")
    cells = [
        cell(
            {"model": model, "machine": machine},
            *((tools,) if number % 2 else ()),
            *((driver,) if machine == "A100" else ()),
        )
        for number, model in enumerate("abcdefghij")
        for machine in ("A100", "H100", "L4")
    ]
    (cause,) = said(cells, "driver")
    assert (len(cause.cells), cause.place, cause.there, cause.of) == (10, {"machine": "A100"}, 10, 10)


def test_what_passed_or_is_known_to_fail_is_no_cause() -> None:
    known = Finding("command git", "exit", Verdict.XFAIL, "exit", "git: not found")
    cells = [cell({"n": n}, known, *((bad("run a", "broken"),) if n == "1" else ())) for n in "123"]
    assert [(cause.text, cause.cells) for cause in find_causes(cells)] == [("broken", ["n=1"])]


def runtime_base() -> list[CellResult]:
    return [
        cell({"runtime": runtime, "machine": machine}, *((bad("run a", "broken"),) if runtime == "base" else ()))
        for runtime, machine in itertools.product(["base", "full"], ["A100", "H100"])
    ]


def test_of_a_small_matrix_it_is_said_plainly_which_cells_fail(tmp_path: Path) -> None:
    text = markdown(runtime_base(), tmp_path)
    assert "both cells of runtime=base" in text
    assert "spread" not in text


def test_of_a_small_matrix_nothing_is_claimed_that_is_not_so(tmp_path: Path) -> None:
    """The cells of a diagonal have no value in common."""
    cells = [
        cell({"a": a, "b": b}, *((bad("run a", "broken"),) if a == b else ())) for a, b in itertools.product("12", "12")
    ]
    assert "both cells of" not in markdown(cells, tmp_path)


NODES = [f"n{number}" for number in range(1, 9)]


def test_a_bad_host_of_pairs_is_named() -> None:
    pairs = list(itertools.combinations(NODES, 2))
    cells = [
        cell({"pair": "-".join(two)}, *((bad("run a", "Xid 79"),) if "n3" in two else ()), hosts=two) for two in pairs
    ]
    assert len(cells) == 28
    (cause,) = find_causes(cells)
    assert (cause.place, cause.there, cause.of) == ({"host": "n3"}, 7, 7)


def test_a_cell_of_several_causes_counts_once() -> None:
    cells = [*four_cells(bad("import torch", "ImportError: torch")), cell({"runtime": "x", "machine": "A100"})]
    results = RunResults(VERSION, "r", "s", Verdict.FAILED, cells, causes=find_causes(cells), suite_path="s.yaml")
    assert sum(len(cause.cells) for cause in results.causes) == 34
    assert causes_sentence(results) == "4 of 5 cells need attention: 9 causes"


def test_the_first_cause_of_a_cell_is_that_of_its_headline_whatever_others_say() -> None:
    quiet, loud = bad("run a", "exit code 1"), bad("run b", "exit code 2")
    loud = msgspec.structs.replace(loud, evidence="at work\nValueError: no 7\n")
    late = bad("run c", "too late", Verdict.TIMEOUT)
    cells = [cell({"n": "1"}, quiet, late, loud), *(cell({"n": n}, quiet) for n in "2345")]
    results = RunResults(VERSION, "r", "s", Verdict.FAILED, cells, causes=find_causes(cells))
    first, *rest = causes_by_cell(results)["n=1"]
    assert (first.id, first.text) == (cause_id(Verdict.FAILED, "ValueError: no 8"), "ValueError: no 7")
    assert [cause.text for cause in rest] == ["exit code 1", "too late"]


def test_the_cells_of_a_small_matrix_may_share_two_values(tmp_path: Path) -> None:
    cells = [
        cell({"a": a, "b": b, "c": c}, *((bad("run a", "broken"),) if (a, b) == ("1", "2") else ()))
        for a, b, c in itertools.product("12", "12", "12")
    ]
    (cause,) = find_causes(cells)
    assert (cause.place, cause.shared) == ({}, {"a": "1", "b": "2"})
    assert "both cells of a=1, b=2" in markdown(cells, tmp_path)
