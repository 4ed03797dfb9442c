"""How a training job ended and what its log had to say, from values."""

import msgspec
import pytest

from seatrial.checks.command import check_exit, check_log
from seatrial.job import Exit, Outcome, Verdict
from seatrial.suite.command import LogChecks
from trained import EXITED, brief, matched, train, values

DONE = "Finished training run"


def test_each_way_to_end_has_its_own_class() -> None:
    ways = {
        (Outcome.EXITED, 0): ("passed", ""),
        (Outcome.EXITED, 3): ("failed", "exit"),
        (Outcome.SIGNAL, None): ("failed", "signal"),
        (Outcome.MEMORY, None): ("failed", "memory"),
        (Outcome.TIMEOUT, None): ("timeout", "timeout"),
        (Outcome.STALL, None): ("timeout", "stall"),
        (Outcome.EVICTED, None): ("infra", "evicted"),
        (Outcome.CANCELLED, None): ("skipped", "cancelled"),
    }
    for (outcome, code), expected in ways.items():
        assert brief(check_exit(train(outcome=outcome, code=code), EXITED)) == {"exit": expected}, outcome


def test_what_a_shell_tells_of_a_killed_command_is_a_signal() -> None:
    killed = train(code=139)
    assert brief(check_exit(killed, EXITED)) == {"exit": ("failed", "signal")}
    assert "SIGSEGV" in check_exit(killed, EXITED)[0].message
    assert brief(check_exit(train(code=130), EXITED)) == {"exit": ("failed", "exit")}  # SIGINT is no crash


def test_a_job_that_ended_above_its_step_gives_the_step_its_class() -> None:
    begun = msgspec.structs.replace(train(outcome=None, code=None), started_s=1.0)
    (finding,) = check_exit(begun, Exit(Outcome.EVICTED, message="node drained"))
    assert (finding.verdict, finding.class_) == (Verdict.INFRA, "evicted")
    assert "node drained" in finding.message


def test_what_was_ended_for_a_line_is_told_by_that_line_and_not_by_its_exit_code() -> None:
    stopped = {
        "what": "never",
        "pattern": "Traceback",
        "host": 0,
        "line": 7,
        "text": "Traceback (…)",
        "seconds_after": 0.4,
    }
    seen = train(outcome=Outcome.STOPPED, code=None, stopped=stopped, never={"Traceback": matched("Traceback (…)", 7)})
    (ended,) = check_exit(seen, EXITED)
    assert ended.verdict is Verdict.SKIPPED
    (never,) = check_log(seen, LogChecks(never=("Traceback",)))
    assert (never.verdict, never.class_) == (Verdict.FAILED, "log")
    assert "line 7" in never.message
    assert "0.4 s after that line" in never.message
    assert never.evidence.startswith("Traceback (…)")


def test_what_was_stopped_without_a_reason_is_still_a_failure() -> None:
    assert brief(check_exit(train(outcome=Outcome.STOPPED, code=None), EXITED)) == {"exit": ("failed", "stopped")}


def test_no_new_step_is_a_stall_and_says_since_when() -> None:
    stopped = {"what": "stall", "text": "no new step for 31.0 s (limit 30.0 s)", "step": 4}
    seen = train(values("step", [0, 1, 2, 3, 4]), outcome=Outcome.STALL, code=None, stopped=stopped, output="step: 4\n")
    found = check_exit(seen, EXITED)
    assert brief(found) == {"stall": ("timeout", "stall"), "exit": ("skipped", "")}
    assert found[0].message == "no new step for 31.0 s (limit 30.0 s); the last was step 4"
    assert found[0].evidence == "step: 4"
    of_host = {**stopped, "host": 1, "text": "host 1: no new step for 31.0 s; last step 2"}
    seen = train(values("step", [0, 1, 2, 3, 4]), outcome=Outcome.STALL, code=None, stopped=of_host)
    assert check_exit(seen, EXITED)[0].message == of_host["text"]


def test_must_is_asked_of_every_host_unless_any_will_do() -> None:
    seen = train(must={DONE: matched(DONE, h0=1, h1=0)})
    (every,) = check_log(seen, LogChecks(must=(DONE,)), 2)
    assert every.verdict is Verdict.FAILED
    assert "only host 0 printed it, not host 1" in every.message
    assert "hosts: any" in every.message
    (some,) = check_log(seen, LogChecks(must=(DONE,), hosts="any"), 2)
    assert some.verdict is Verdict.PASSED


def test_a_text_that_is_not_there_fails_with_the_end_of_the_log_as_evidence() -> None:
    seen = train(output="start\nRuntimeError: bad\n", must={DONE: {"count": 0, "host": {}}}, long_lines=2)
    (finding,) = check_log(seen, LogChecks(must=(DONE,)))
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "log")
    assert "2 lines were too long" in finding.message
    assert finding.evidence.startswith("RuntimeError: bad")


@pytest.mark.parametrize("outcome", [Outcome.STOPPED, Outcome.TIMEOUT, Outcome.STALL, None])
def test_what_a_job_could_not_say_any_more_is_not_held_against_it(outcome: Outcome | None) -> None:
    (finding,) = check_log(train(outcome=outcome, code=None), LogChecks(must=(DONE,)))
    assert finding.verdict is Verdict.SKIPPED


def test_a_forbidden_line_of_a_killed_job_is_known_from_its_note() -> None:
    note = {"note": "never", "pattern": "NaN", "host": 1, "line": 3, "text": "NaN in grad"}
    (finding,) = check_log(train(note, outcome=None, code=None), LogChecks(never=("NaN",)), 2)
    assert finding.verdict is Verdict.FAILED
    (clean,) = check_log(train(outcome=None, code=None), LogChecks(never=("NaN",)))
    assert clean.verdict is Verdict.SKIPPED  # how the log went on is not known


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "RuntimeError: CUDA error: out of memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes.",
        "MemoryError",
    ],
)
def test_a_job_that_ran_out_of_memory_is_of_that_class(line: str) -> None:
    seen = train(code=1, output=f"Traceback (most recent call last):\n  File x\n{line}\nand more\n")
    (finding,) = check_exit(seen, EXITED)
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "memory")
    assert line[:40] in finding.message
    note = {"note": "never", "pattern": "Error", "host": 0, "line": 3, "text": line}
    (forbidden,) = check_log(train(note, outcome=None, code=None), LogChecks(never=("Error",)))
    assert forbidden.class_ == "memory"
    assert check_exit(train(code=1, output="never out of memory: ok"), EXITED)[0].class_ == "exit"


def test_a_pattern_that_never_ends_is_the_suites_fault() -> None:
    seen = train(dropped=[{"pattern": "(a+)+b", "why": "took 1 s on line 4"}])
    for expected in (LogChecks(must=("(a+)+b",)), LogChecks(never=("(a+)+b",))):
        (finding,) = check_log(seen, expected)
        assert (finding.verdict, finding.class_) == (Verdict.INVALID, "pattern")
        assert "took 1 s on line 4" in finding.message


def test_a_result_of_nonsense_is_no_crash() -> None:
    seen = train({"note": "never"}, must=[1], never={"x": 3}, stopped="?", dropped="?", values=7, long_lines="many")
    findings = check_log(seen, LogChecks(must=("a",), never=("x",)), 3) + check_exit(seen, EXITED)
    assert brief(findings) == {"must a": ("failed", "log"), "never x": ("passed", ""), "exit": ("passed", "")}


def test_fewer_logs_than_hosts_is_a_failure_whatever_they_say() -> None:
    (finding,) = check_log(train(), LogChecks(), 3, 2)
    assert (finding.verdict, finding.check) == (Verdict.FAILED, "log")
    assert "2 logs for 3 hosts" in finding.message
    assert check_log(train(), LogChecks(), 3, 3) == []
    assert check_log(train(), LogChecks(hosts="any"), 3, 1) == []
    assert check_log(train(), LogChecks(), 3) == []  # one for all, or a job that ran here


def test_of_several_hosts_the_finding_names_the_one_that_failed() -> None:
    seen = train(code=3, output="[1] no more memory\n[1] --- host 1 ended with code 3\n")
    seen = msgspec.structs.replace(seen, args={"hosts": 2})
    (finding,) = check_exit(seen, EXITED)
    assert finding.message == "exited 3 on host 1 (expected 0)"
    assert "no more memory" in finding.evidence
    (killed,) = check_exit(msgspec.structs.replace(seen, code=137), EXITED)
    assert killed.message.startswith("killed on host 1 by SIGKILL")
    alone = msgspec.structs.replace(seen, args={"hosts": 1})
    assert check_exit(alone, EXITED)[0].message == "exited 3 (expected 0)"
