"""Findings of plain steps and of facts, from values."""

from typing import Any

import msgspec
import pytest

from seatrial.agent.readers.log import Reading
from seatrial.agent.readers.patterns import search_output
from seatrial.checks import check_job, check_kept, check_run, check_workspace
from seatrial.checks.command import check_exit, check_log
from seatrial.checks.evidence import most_relevant_first
from seatrial.engine.collect import with_searches
from seatrial.job import (
    Exit,
    Finding,
    Job,
    Observation,
    ObservedStep,
    Outcome,
    Place,
    Unkept,
    Verdict,
    is_gpu_model,
)
from seatrial.kinds.command import command_steps
from seatrial.kinds.runtime.judge import check_command, check_facts, check_import, version_matches
from seatrial.kinds.runtime.model import Facts
from seatrial.suite import Machine
from seatrial.suite.command import Command, LogChecks
from seatrial.suite.patterns import follow_texts

EXITED = Exit(Outcome.EXITED, 0)


def seen(kind: str, result: dict[str, Any] | None = None, **more: Any) -> ObservedStep:
    fields = {"outcome": Outcome.EXITED, "code": 0, "started_s": 0.0, "ended_s": 1.0, **more}
    return ObservedStep(f"{kind} x", kind, {"command": "x", "module": "x"}, result=result or {}, **fields)


def test_a_command_passes_by_its_path_alone() -> None:
    found = check_command(seen("command", {"path": "/bin/x", "version": None}), EXITED)
    assert (found.verdict, found.message) == (Verdict.PASSED, "/bin/x")


def test_a_command_that_is_not_there_is_absent() -> None:
    found = check_command(seen("command", {"path": None, "version": None}), EXITED)
    assert (found.verdict, found.class_) == (Verdict.FAILED, "absent")
    assert found.message == "command not found: x"


@pytest.mark.parametrize("state", ["absent", "crashed"])
def test_an_import_that_failed_says_which_way_with_the_error_first(state: str) -> None:
    result = {"state": state, "error": "ValueError: bad", "traceback": "Traceback\n  File y\nValueError: bad\n"}
    found = check_import(seen("import", result), EXITED)
    assert (found.verdict, found.class_) == (Verdict.FAILED, state)
    assert found.evidence.splitlines()[:2] == ["ValueError: bad", "Traceback"]


@pytest.mark.parametrize(
    ("specifier", "version", "good"),
    [
        (">=1.2", "1.10", True),
        (">=1.2,<2", "2.0", False),
        ("==1.26.*", "1.26.4", True),
        (">=2.1", "2.1.0+cu121", True),
        (">=2", "2.1.0rc1", True),
        (">=1", "not-a-version", False),
    ],
)
def test_versions_compare_as_pip_does(specifier: str, version: str, good: bool) -> None:
    assert version_matches(specifier, version) is good


def test_an_import_of_the_wrong_or_of_no_version_fails() -> None:
    result = {"state": "imported", "version": "1.0", "file": "/x.py"}
    assert check_import(seen("import", result), EXITED, "<1").class_ == "version"
    assert check_import(seen("import", result), EXITED, ">=1").verdict is Verdict.PASSED
    assert "unknown" in check_import(seen("import", {**result, "version": None}), EXITED, ">=1").message


def test_an_import_of_a_folder_without_python_files_fails_unless_that_will_do() -> None:
    result = {"state": "imported", "version": None, "file": None, "empty": "/work/datasets"}
    found = check_import(seen("import", result), EXITED)
    assert (found.verdict, found.class_) == (Verdict.FAILED, "absent")
    assert found.message == "x is not installed: /work/datasets has no Python files"
    assert check_import(seen("import", result), EXITED, empty=True).verdict is Verdict.PASSED


def test_an_import_that_ran_out_of_time_is_a_timeout_not_a_crash() -> None:
    result = {"state": "crashed", "error": "Python timed out", "traceback": ""}
    found = check_import(seen("import", result, outcome=Outcome.TIMEOUT, code=None), EXITED)
    assert (found.verdict, found.class_) == (Verdict.TIMEOUT, "timeout")


def test_a_step_out_of_time_tells_its_limit_and_what_ended_it() -> None:
    ran = seen("run", outcome=Outcome.TIMEOUT, code=None, signal=15, message="still running after 30 s")
    (found,) = check_run(ran, EXITED, Command(command="x"))
    assert found.message == "the step timed out and was killed by SIGTERM: still running after 30 s"


def test_a_process_killed_for_memory_is_a_finding_of_a_step_that_exits_with_0() -> None:
    killed, well = seen("run", oom_kills=2, output="Killed\n"), seen("import")
    (found,) = check_job(Observation("j", 1, Place("here", "m"), EXITED, steps=[killed, well]))
    assert (found.step, found.verdict, found.class_) == ("run x", Verdict.FAILED, "memory")
    assert found.message.startswith("2 processes were killed (out of memory) during this step")
    noticed = seen("run", oom_kills=1, outcome=Outcome.MEMORY, code=137)
    assert check_job(Observation("j", 1, Place("here", "m"), EXITED, steps=[noticed])) == []  # the step's own finding


def followed(output: str, expected: Command, **fields: Any) -> ObservedStep:
    """A command that printed `output`, with what the agent and the search of what was kept find in it."""
    follow = follow_texts(expected.contains, expected.matches, expected.never)
    reading = Reading(follow)
    reading.feed(output.encode())
    reading.flush()
    later = {kind: [one for one in follow[kind] if one.get("across")] for kind in ("must", "never")}
    result, kept = reading.result(), search_output(output, **later)
    for kind in ("must", "never"):
        result[kind].update(kept[kind])
    return seen("run", {**result, "dropped": result["dropped"] + kept["dropped"]}, output=output, **fields)


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.verdict.value for finding in findings}


def test_every_expectation_of_a_run_is_a_finding_of_its_own() -> None:
    expected = Command(
        command="x", exit=3, contains=("one", "three"), matches=(r"^t\wo$", r"^x"), never=("two", "four")
    )
    assert verdicts(check_run(followed("one\ntwo\n", expected, code=3), EXITED, expected)) == {
        "exit": "passed",
        "contains one": "passed",
        "contains three": "failed",
        r"matches ^t\wo$": "passed",
        "matches ^x": "failed",
        "never two": "failed",
        "never four": "passed",
    }


def test_what_goes_over_several_lines_is_found_in_what_was_kept() -> None:
    expected = Command(
        command="x", contains=("one\ntwo", "one two"), matches=(r"one\s+two", r"\Aone", r"\Atwo"), never=("two\nthree",)
    )
    assert verdicts(check_run(followed("one\ntwo\nthree\n", expected), EXITED, expected)) == {
        "exit": "passed",
        "contains one\ntwo": "passed",
        "contains one two": "failed",
        r"matches one\s+two": "passed",
        r"matches \Aone": "passed",
        r"matches \Atwo": "failed",
        "never two\nthree": "failed",
    }


def test_a_text_that_was_not_searched_is_not_known() -> None:
    found = check_run(seen("run", output="one\n"), EXITED, Command(command="x", contains=("one",)))[1]
    assert (found.verdict, found.class_) == (Verdict.INFRA, "lost")


def test_a_wrong_exit_code_shows_what_the_command_complained_of() -> None:
    found = check_run(seen("run", output="start\nmake: *** [all] Error 1\n\n", code=2), EXITED, Command(command="x"))[0]
    assert found.message == "exited 2 (expected 0)"
    assert found.evidence.splitlines()[0] == "make: *** [all] Error 1"


@pytest.mark.parametrize(
    ("output", "code", "wanted", "class_", "message"),
    [
        ("a\ntorch.OutOfMemoryError: CUDA out of memory.\n", 1, 0, "memory",
         "out of memory (exit code 1): torch.OutOfMemoryError: CUDA out of memory."),
        ("", 139, 0, "signal", "killed by SIGSEGV (exit code 139 from its shell)"),
        ("MemoryError was expected", 0, 3, "exit", "exited 0 (expected 3)"),
    ],
)  # fmt: skip
def test_a_command_of_any_kind_of_trial_ends_for_the_same_reasons(
    output: str, code: int, wanted: int, class_: str, message: str
) -> None:
    (found,) = check_run(seen("run", output=output, code=code), EXITED, Command(command="x", exit=wanted))
    assert (found.verdict, found.class_, found.message) == (Verdict.FAILED, class_, message)
    if not wanted:
        assert check_exit(seen("run", output=output, code=code), EXITED) == [found]


def test_any_exit_code_will_do_when_none_is_expected() -> None:
    assert check_run(seen("run", code=77), EXITED, Command(command="x", exit=None))[0].verdict is Verdict.PASSED


def test_output_that_was_not_kept_is_mentioned_where_it_could_matter() -> None:
    expected = Command(command="x", contains=("x\n1",), matches=(r"x\s1",), never=("y\n2",))
    _, contains, matches, never = check_run(followed("a", expected, output_omitted_bytes=5000), EXITED, expected)
    assert (contains.verdict, "not kept" in contains.message) == (Verdict.FAILED, False)  # all of it was searched
    assert "5000 bytes in its middle were not kept" in matches.message
    assert never.verdict is Verdict.PASSED


@pytest.mark.parametrize(("output", "verdict"), [("fine\n", Verdict.INVALID), ("Error\n", Verdict.FAILED)])
def test_a_forbidden_text_may_be_in_output_that_no_agent_searched_and_nobody_kept(
    output: str, verdict: Verdict
) -> None:
    """In an image without Python."""
    command = Command(command="x", never=("Error",), log=LogChecks(never=("Err.r",)))
    (step, *_) = command_steps(command)
    job = Job(name="j", run="r", cell="c", attempt=1, title="t", steps=(step,))
    ran = msgspec.structs.replace(seen("run", output=output, output_omitted_bytes=9), name=step.name, args=step.args)
    (ran,) = with_searches(job, Observation("j", 1, Place("here", "m"), EXITED, steps=[ran])).steps
    found = [*check_run(ran, EXITED, command)[1:], *check_log(ran, command.log)]
    assert [one.verdict for one in found] == [verdict, verdict]
    assert all("9 bytes of output were not searched; print less" in one.message for one in found if verdict != "failed")


@pytest.mark.parametrize(
    ("outcome", "verdict", "class_"),
    [
        (Outcome.SIGNAL, Verdict.FAILED, "signal"),
        (Outcome.MEMORY, Verdict.FAILED, "memory"),
        (Outcome.TIMEOUT, Verdict.TIMEOUT, "timeout"),
        (Outcome.STALL, Verdict.TIMEOUT, "stall"),
        (Outcome.CANCELLED, Verdict.SKIPPED, "cancelled"),
        (Outcome.INFRA, Verdict.INFRA, "infra"),
    ],
)
def test_a_run_that_did_not_end_by_itself_has_the_class_of_its_end(
    outcome: Outcome, verdict: Verdict, class_: str
) -> None:
    (found,) = check_run(seen("run", outcome=outcome, code=None), EXITED, Command(command="x", contains=("x",)))
    assert (found.verdict, found.class_) == (verdict, class_)


GOOD_ENDS = (Outcome.EXITED, Outcome.RELEASED)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in GOOD_ENDS])
def test_a_job_that_did_not_end_by_itself_has_a_finding_and_so_has_each_step_that_it_did_not_get_to(
    outcome: Outcome,
) -> None:
    ended = Exit(outcome, message="why it was so\nmore")
    (job,) = check_job(Observation("j", 1, Place("here", "m"), ended))
    never = check_command(seen("command", outcome=None, code=None, started_s=None, ended_s=None), ended)
    assert job.class_ == never.class_ == outcome.value
    assert job.verdict is never.verdict
    assert job.verdict is not Verdict.PASSED
    assert "why it was so" in job.message
    assert never.message.startswith("before this step the job")
    assert "why it was so" not in never.message, "that is reported once, of the job"


def test_a_job_that_ended_well_needs_no_finding_but_a_step_without_an_end_does() -> None:
    for ended in (EXITED, Exit(Outcome.RELEASED, message="no longer needed")):
        assert check_job(Observation("j", 1, Place("here", "m"), ended)) == []
    found = check_command(seen("command", outcome=None, code=None, ended_s=None), EXITED)
    assert (found.verdict, found.class_) == (Verdict.INFRA, "lost")


def test_a_workspace_that_cannot_be_had_is_infra_and_a_wrong_ref_is_invalid() -> None:
    assert check_workspace(seen("workspace", {"commit": "abc"}), EXITED).verdict is Verdict.PASSED
    gone = seen("workspace", {"commit": None}, code=128, output="fatal: unable to access\n")
    assert check_workspace(gone, EXITED).verdict is Verdict.INFRA
    wrong = seen("workspace", {"commit": None, "unknown_ref": True}, code=64, output="ref not found: x in y\n")
    assert check_workspace(wrong, EXITED).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Traceback (most recent call last):\n  File\nKeyError: 'x'\ncleaning up\n", "KeyError: 'x'"),
        ("ok\n\x1b[31mERROR: it broke\x1b[0m\ndone\n", "ERROR: it broke"),
        ("10%\r50%\r100%\nlast words\n", "last words"),
        ("\n \n", ""),
    ],
)
def test_the_most_telling_line_is_first(text: str, first: str) -> None:
    assert most_relevant_first(text).partition("\n")[0] == first


FACTS: dict[str, Any] = {
    "python": {
        "terminal": {"executable": "/venv/bin/python", "prefix": "/venv", "version": "3.11.7"},
        "kernel": {"executable": "/venv/bin/python3", "prefix": "/venv", "version": "3.11.7"},
    },
    "cpu": {"count": 8, "limit": None},
    "memory_bytes": 16 << 30,
    "gpu": [{"model": "NVIDIA L4", "memory_bytes": 23034 << 20, "driver": "550"}],
    "gpu_error": "",
    "packages": {"numpy": "1.26"},
    "os": {"name": "Debian 12"},
}


def facts(machine: Machine, wanted: Facts | None = None, **changed: Any) -> dict[str, str]:
    return verdicts(check_facts(seen("facts", {**FACTS, **changed}), EXITED, machine, wanted or Facts()))


def test_facts_that_are_as_declared_pass_each() -> None:
    machine = Machine(cpu=8, memory="16Gi", gpu={"model": "L4", "memory": "24Gi"})
    assert facts(machine) == dict.fromkeys(
        ["facts", "python", "cpu", "memory", "gpu count", "gpu model", "gpu memory"], "passed"
    )


def test_facts_that_nobody_declared_are_not_judged() -> None:
    assert facts(Machine(), Facts(python=False)) == {"facts": "passed"}


def test_each_fact_that_differs_fails_and_hides_no_other() -> None:
    machine = Machine(cpu=16, memory="64Gi", gpu={"model": "L40", "memory": "48Gi"})
    other = {"executable": "/usr/bin/python", "prefix": "/usr", "version": "3.11.7"}
    python = {"terminal": other, "kernel": FACTS["python"]["kernel"]}
    assert facts(machine, python=python) == {
        "facts": "passed",
        "python": "failed",
        "cpu": "failed",
        "memory": "failed",
        "gpu count": "passed",
        "gpu model": "failed",
        "gpu memory": "failed",
    }


def test_a_cpu_quota_counts_like_fewer_cores() -> None:
    assert facts(Machine(cpu=4), cpu={"count": 8, "limit": 2.0})["cpu"] == "failed"
    assert facts(Machine(cpu=0.5), cpu={"count": 8, "limit": 0.5})["cpu"] == "passed"


def test_no_gpu_and_no_word_of_gpus_differ() -> None:
    assert "gpu count" not in facts(Machine())
    assert facts(Machine(gpu={"count": 0}))["gpu count"] == "failed"
    assert facts(Machine(gpu={"count": 0}), gpu=[])["gpu count"] == "passed"


def test_gpus_that_cannot_be_seen_say_why() -> None:
    step = seen("facts", {**FACTS, "gpu": [], "gpu_error": "nvidia-smi failed with exit code 9: no driver"})
    found = check_facts(step, EXITED, Machine(gpu={"count": 2}), Facts())[-1]
    assert found.message == "0 GPUs available (2 declared)"
    assert "no driver" in found.evidence


def test_without_a_kernel_there_is_no_python_to_compare() -> None:
    assert "python" not in facts(Machine(), python={"terminal": None, "kernel": None})
    assert facts(Machine(), python={"terminal": None, "kernel": {"executable": "x"}})["python"] == "failed"


def test_facts_that_nobody_asked_for_are_skipped_in_an_image_without_python() -> None:
    step = seen("facts", {"error": "step kind 'facts' needs Python"}, outcome=Outcome.REFUSED, code=None)
    (found,) = check_facts(step, EXITED, Machine(cpu=4), Facts(), asked=False)
    assert (found.verdict, found.message) == (Verdict.SKIPPED, "not checked: step kind 'facts' needs Python")
    assert check_facts(step, EXITED, Machine(cpu=4), Facts())[0].verdict is Verdict.INVALID


def test_facts_that_could_not_be_gathered_are_a_failure() -> None:
    step = seen("facts", {"error": "could not collect facts: Python was killed"})
    (found,) = check_facts(step, EXITED, Machine(), Facts())
    assert (found.verdict, found.class_) == (Verdict.FAILED, "facts")


@pytest.mark.parametrize(
    ("declared", "name", "same"),
    [
        ("A100", "NVIDIA A100-SXM4-40GB", True),
        ("A10", "NVIDIA A100-SXM4-40GB", False),
        ("RTX4000", "Quadro RTX 4000", True),
        ("A4000", "NVIDIA RTX A4000", True),
        ("A40", "NVIDIA RTX A4000", False),
        ("V100", "Tesla V100-SXM2-32GB", True),
        ("H100 PCIe", "NVIDIA H100 PCIe", True),
        # Names that are part of another model's name.
        ("RTX 4000", "NVIDIA RTX 4000 Ada Generation", False),
        ("H200", "NVIDIA GH200 480GB", False),
        ("L40", "NVIDIA L40S", False),
        ("A10", "NVIDIA A10G", False),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100 80GB", "NVIDIA A100-SXM4-40GB", False),
        ("Mystery 7", "NVIDIA Mystery 7", True),  # not in the table
    ],
)
def test_a_gpu_model_is_a_part_of_the_name_but_not_of_another_number(declared: str, name: str, same: bool) -> None:
    assert is_gpu_model(declared, name) is same


def test_what_nobody_saw_is_neither_passed_nor_failed() -> None:
    note = {"note": "unseen", "text": "its files were gone"}
    expected = Command(command="x", contains=("a",), matches=("b",), never=("c",))
    ended, *texts = check_run(seen("run", notes=[note]), EXITED, expected)
    assert ended.verdict is Verdict.PASSED
    assert [(one.check, one.verdict, one.class_) for one in texts] == [
        (check, Verdict.INFRA, "lost") for check in ("contains a", "matches b", "never c")
    ]
    assert all("its files were gone" in one.message for one in texts)
    assert len(check_run(seen("run", notes=[note]), EXITED, Command(command="x"))) == 1
    for check in (check_command, check_import, check_workspace):
        found = check(seen(check.__name__.removeprefix("check_"), notes=[note]), EXITED)
        assert (found.verdict, found.class_) == (Verdict.INFRA, "lost")


def test_files_that_were_not_fetched_are_a_failure_that_names_them() -> None:
    several = Unkept(5, 12_000, ("files/a", "files/b", "files/c", "files/d"))
    first, second = check_kept(Observation("j", 1, Place("here", "m"), EXITED, unkept=(several, Unkept())))
    assert first.verdict is second.verdict is Verdict.FAILED
    assert first.message == (
        "5 files not fetched (12,000 bytes): files/a, files/b, files/c, …; over `fetch_files` or `fetch_size` of the "
        "target; raise it, or keep fewer files"
    )
    assert second.message.startswith("no kept files were fetched")
    assert check_kept(Observation("j", 1, Place("here", "m"), EXITED)) == []
