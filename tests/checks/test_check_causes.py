"""Cells that failed are grouped by what they say, and a place is named only where it explains them."""

import itertools
import random

import pytest

from seatrial.checks import find_causes, find_error, headline, with_log_error
from seatrial.checks.evidence import error_line
from seatrial.job import (
    AttemptResult,
    CellResult,
    Exit,
    Finding,
    LogError,
    Outcome,
    Place,
    Verdict,
    cause_id,
    normalised,
)

RUNTIMES = ["torch-2.8", "torch-2.9", "jax", "tf", "rocm"]
MODELS = [f"model-{number}" for number in range(15)]
MACHINES = ["A100", "A100x8", "H100", "H100x8", "L4", "MI300"]


def cell(axes: dict[str, str], text: str = "", verdict: Verdict = Verdict.FAILED, host: str = "h") -> CellResult:
    """One that failed saying `text`; one that passed without it."""
    verdict = verdict if text else Verdict.PASSED
    attempt = AttemptResult(1, Place("here", "m", host), [], Exit(Outcome.EXITED), verdict, headline=text)
    name = ",".join(axes.values())
    return CellResult(f"t[{name}]", f"{hash(name) & 0xFFFFFFFF:08x}", axes, verdict, "t", attempts=[attempt])


def matrix() -> list[dict[str, str]]:
    """Of 450 combinations those that a real matrix has: each runtime on the machines that it is made for."""
    every = itertools.product(RUNTIMES, MODELS, MACHINES)
    return [
        {"runtime": runtime, "model": model, "machine": machine}
        for runtime, model, machine in every
        if (runtime == "rocm") == (machine == "MI300")
    ]


@pytest.mark.parametrize(
    "place",
    [
        {"machine": "A100"},
        {"model": "model-3"},
        {"runtime": "torch-2.9", "machine": "A100"},
        {"runtime": "jax", "model": "model-8"},
        {"model": "model-1", "machine": "L4"},
    ],
)
def test_a_planted_cause_is_found_exactly_beside_failures_at_random(place: dict[str, str]) -> None:
    rng = random.Random(7)
    cells = []
    for axes in matrix():
        planted = all(axes[axis] == value for axis, value in place.items())
        other = "AssertionError: diverged at token 17" if rng.random() < 0.05 else ""
        text = f"RuntimeError: driver {rng.randrange(10_000)} is too old" if planted else other
        cells.append(cell(axes, text))
    causes = {normalised(cause.text): cause for cause in find_causes(cells)}
    found = causes["RuntimeError: driver # is too old"]
    assert (found.place, found.there, found.of) == (place, len(found.cells), len(found.cells))
    assert causes["AssertionError: diverged at token #"].place == {}


@pytest.mark.parametrize("failed", [2, 3, 10, 60])
def test_failures_at_random_are_spread(failed: int) -> None:
    """One draw in twenty may be explained falsely; with this seed, of forty draws at most two are."""
    rng = random.Random(11)
    passed = [cell(axes) for axes in matrix()]
    broken = [cell(axes, "Segmentation fault") for axes in matrix()]
    explained = 0
    for _ in range(40):
        chosen = set(rng.sample(range(len(passed)), failed))
        cells = [broken[number] if number in chosen else one for number, one in enumerate(passed)]
        explained += any(cause.place for cause in find_causes(cells))
    assert explained <= 2


def test_a_part_of_a_place_is_told_with_its_counts() -> None:
    cells = [
        cell(one, "xpass" if one == {**one, "runtime": "tf", "model": "model-4"} and "H100" in one["machine"] else "")
        for one in matrix()
    ]
    (cause,) = find_causes(cells)
    assert cause.place == {"runtime": "tf", "model": "model-4"}
    assert (cause.there, cause.of) == (2, 5)


def test_a_host_counts_as_an_axis() -> None:
    hosts = ["node-1", "node-2", "node-3", "node-4"]
    cells = [
        cell(one, "Xid (79): fell off the bus" if number % 4 == 2 else "", Verdict.INFRA, hosts[number % 4])
        for number, one in enumerate(matrix()[:40])
    ]
    (cause,) = find_causes(cells)
    assert (cause.place, cause.there, cause.of) == ({"host": "node-3"}, 10, 10)


def test_one_cell_and_all_cells_need_no_place() -> None:
    one, *rest = matrix()[:8]
    assert find_causes([cell(one, "broken"), *map(cell, rest)])[0].place == {}
    assert find_causes([cell(axes, "broken") for axes in (one, *rest)])[0].place == {}


def test_in_a_small_matrix_nothing_is_claimed_that_chance_explains() -> None:
    cells = [cell({"a": a, "b": b}, "broken" if a == "1" else "") for a in "12" for b in "12"]
    assert find_causes(cells)[0].place == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("illegal access at 0x7f3a00 in /opt/a/b/kernel.cu:12", "illegal access at 0x11 in /home/c/kernel.cu:99"),
        ("Tried to allocate 2.50 GiB", "Tried to allocate 12 GiB"),
        ("pod 123e4567-e89b-12d3-a456-426614174000 gone", "pod 00000000-e89b-12d3-a456-426614174999 gone"),
        ("commit 91b7700 is bad", "commit a48f1c2 is bad"),
    ],
)
def test_numbers_addresses_and_paths_make_no_other_cause(one: str, other: str) -> None:
    assert cause_id(Verdict.FAILED, one) == cause_id(Verdict.FAILED, other)
    assert cause_id(Verdict.FAILED, one) != cause_id(Verdict.TIMEOUT, one)


def test_what_is_slower_is_grouped_by_its_metric() -> None:
    def finding(text: str) -> Finding:
        return Finding("figures", "bounds step_time", Verdict.SLOWER, "slower", text)

    assert headline([finding("2.6 s is above 2.4 s")]) == headline([finding("9 s is above 8 s; 3 runs")])


def test_the_headline_is_what_a_program_printed_else_what_the_check_says() -> None:
    quiet = Finding("run a", "exit", Verdict.FAILED, "exit", "exited 1 (expected 0)", "bye")
    loud = Finding("run b", "exit", Verdict.FAILED, "exit", "exited 2 (expected 0)", "at work\nValueError: no\n")
    assert headline([quiet, loud]) == "ValueError: no"
    assert headline([quiet]) == "exited 1 (expected 0)"
    assert headline([Finding("run a", "exit", Verdict.PASSED)]) == ""


@pytest.mark.parametrize(
    "line",
    [
        "[rank3] torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        "ncclSystemError: connection reset by peer (rank 3)",
        "Segmentation fault (core dumped)",
        "ERROR: Could not find a version that satisfies the requirement",
        "panic: runtime error: index out of range",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "KeyboardInterrupt",
    ],
)
def test_the_first_error_of_a_long_log_is_found_with_its_number(line: str) -> None:
    lines = [f"step {number}: loss 0.5, 0 errors, error rate 0" for number in range(50_000)]
    lines[31_233] = f"\x1b[31m{line}\x1b[0m"
    found = find_error("\n".join(lines).encode())
    assert found is not None
    assert (found.line, found.text) == (31_234, line)
    assert found.window.splitlines()[0] == lines[31_221]
    assert found.window.splitlines()[-1] == lines[31_245]
    assert error_line(found.window) == line


def test_the_error_of_a_server_is_its_exception_not_the_line_that_announces_a_traceback() -> None:
    log = """INFO:     Waiting for application startup.
ERROR:    Traceback (most recent call last):
  File "lifespan/on.py", line 86, in main
ValueError: no such model
ERROR:    Application startup failed. Exiting.
"""
    assert error_line(log) == "ValueError: no such model"
    found = find_error(log.replace("Traceback", "Exception in ASGI application\nTraceback").encode())
    assert found is not None
    assert found.text == "ValueError: no such model"


def test_a_log_without_an_error_and_a_log_of_garbage_give_nothing_or_text() -> None:
    assert find_error(b"error handling: on\n0 errors\n") is None
    assert find_error(b"") is None
    found = find_error(b"\xff\xfe\n\xffValueError: \xff\n")
    assert found is not None
    assert found.line == 2


def test_the_header_of_a_step_is_no_error_though_its_command_names_one() -> None:
    log = b"--- [1/2] run echo 'ValueError: x'\nfine\n--- [2/2] run b\n\x1b[31mKey\x1b[0mError: 'x'\n"
    found = find_error(log)
    assert found is not None
    assert (found.line, found.text, found.step) == (4, "KeyError: 'x'", "run b")
    assert find_error(b"--- [1/1] run echo 'ValueError: x'\nfine\n") is None


def test_an_error_of_a_step_that_failed_comes_before_those_of_others() -> None:
    log = b"--- [1/2] install\nERROR: pip's resolver\n--- [2/2] train\nok\nOSError: disk\nValueError: late\n"
    found = [find_error(log, failed) for failed in ((), {"train"}, {"install"}, {"another"})]
    assert [one and (one.text, one.step) for one in found] == [
        ("ERROR: pip's resolver", "install"),
        ("OSError: disk", "train"),
        ("ERROR: pip's resolver", "install"),
        ("ERROR: pip's resolver", "install"),
    ]


def test_the_step_of_a_line_is_that_of_its_host() -> None:
    log = b"[0] --- [1/2] a\n[1] --- [1/2] a\n[0] --- [2/2] b\n[1] OSError: disk\n[0] ValueError: x\n"
    found = [find_error(log, {step}) for step in ("a", "b")]
    assert [one and one.text for one in found] == ["[1] OSError: disk", "[0] ValueError: x"]


def test_a_first_error_far_above_the_end_that_a_check_quotes_comes_first() -> None:
    findings = [
        Finding("install", "exit", Verdict.PASSED),
        Finding("train", "exit", Verdict.FAILED, "exit", "exit code 1", "ChildFailedError: rank 3"),
    ]
    of_step = LogError(51_163, "CUDA out of memory", "before\nCUDA out of memory\nafter", "train")
    made = with_log_error(findings, {"job": of_step})
    assert made[1].evidence.startswith("CUDA out of memory\nline 51,163 of the log:\nbefore\n")
    assert made[1].evidence.endswith("\nafter\n…\nChildFailedError: rank 3")
    assert headline(made) == "CUDA out of memory"
    slower = [Finding("train", "bounds step_time", Verdict.SLOWER, message="2 s")]
    assert with_log_error(slower, {"job": of_step}) == slower
    # What a step that passed has printed does not explain what failed with an error of its own.
    other = LogError(3, "ERROR: pip's resolver", "ERROR: pip's resolver", "install")
    assert with_log_error(findings, {"job": other}) == findings


def test_the_error_of_the_log_goes_with_the_first_finding_unless_one_has_it() -> None:
    error = LogError(51_163, "CUDA out of memory", "before\nCUDA out of memory\nafter")
    findings = [
        Finding("run a", "exit", Verdict.PASSED),
        Finding("run b", "exit", Verdict.FAILED, "exit", "exited 1 (expected 0)", "shutdown complete"),
    ]
    made = with_log_error(findings, {"job": error})
    assert made[0] is findings[0]
    assert made[1].evidence.splitlines() == [
        "CUDA out of memory",
        "line 51,163 of the log:",
        "before",
        "CUDA out of memory",
        "after",
        "…",
        "shutdown complete",
    ]
    assert with_log_error(made, {"job": error}) == made
    assert with_log_error(findings[:1], {"job": error}) == findings[:1]
