"""How a driver ended, beside how its server did. The kill tests come to all of these by chance; here each is one."""

import msgspec

from seatrial.job import Exit, Observation, ObservedStep, Outcome, Place, Verdict
from seatrial.kinds.serving.ended import DriverRecords, cause_of_silence, check_driver, check_server
from seatrial.kinds.serving.work import UnreadyNote

EXITED = Observation("driver", 1, Place("here", ""), Exit(Outcome.EXITED, 1))
REFUSED = ObservedStep("driver", "drive", code=1, output="port serve of the server cannot be reached: it has ended")


def ended(outcome: Outcome) -> Observation:
    return msgspec.structs.replace(EXITED, exit=Exit(outcome))


def test_a_driver_that_cannot_reach_a_server_which_died_adds_nothing_to_that() -> None:
    for died in (Outcome.EXITED, Outcome.SIGNAL, Outcome.MEMORY):
        assert check_driver(EXITED, REFUSED, ended(died)) == []


def test_a_driver_that_cannot_reach_a_server_which_lives_is_infra() -> None:
    for server in (ended(Outcome.RELEASED), ended(Outcome.CANCELLED), None):
        (finding,) = check_driver(EXITED, REFUSED, server)
        assert (finding.verdict, finding.message) == (Verdict.INFRA, REFUSED.output)


def test_a_bug_of_the_driver_is_told_whatever_became_of_the_server() -> None:
    bug = msgspec.structs.replace(REFUSED, output="Traceback (most recent call last):\n  …\nKeyError: 'x'")
    (finding,) = check_driver(EXITED, bug, ended(Outcome.SIGNAL))
    assert (finding.verdict, finding.class_) == (Verdict.INVALID, "seatrial")


def test_a_server_that_never_took_a_connection_is_infra_unless_it_was_started_by_us() -> None:
    note = UnreadyNote(2.0, 3, "no connection: refused", lasting=False, reached=False)
    ours = ended(Outcome.RELEASED)
    for server, change, verdict, text in (
        (None, {}, Verdict.INFRA, "no connection to the server within 2 s (3 tries): no connection: refused"),
        (
            None,
            {"reached": True},
            Verdict.TIMEOUT,
            "the server answered no request within 2 s (3 tries): no connection",
        ),
        (ours, {}, Verdict.TIMEOUT, "the server answered no request within 2 s (3 tries): no connection"),
        (
            None,
            {"lasting": True, "why": "certificate: other"},
            Verdict.FAILED,
            "the server refused the first generation",
        ),
    ):
        records = DriverRecords(unready=msgspec.structs.replace(note, **change))
        cause = cause_of_silence(server, EXITED, ObservedStep("driver", "drive"), records)
        assert cause.verdict is verdict
        assert cause.text.startswith(text)


def test_why_a_server_says_nothing_is_that_its_engine_was_killed_for_memory() -> None:
    engine = ObservedStep("server", "serve", outcome=Outcome.CANCELLED, oom_kills=2, output="loading\nKilled\n")
    server = msgspec.structs.replace(ended(Outcome.RELEASED), steps=(engine,))
    note = UnreadyNote(2.0, 3, "the server closed the connection", reached=True)
    cause = cause_of_silence(server, EXITED, ObservedStep("driver", "drive"), DriverRecords(unready=note))
    assert (cause.verdict, cause.class_) == (Verdict.FAILED, "memory")
    assert cause.text.startswith(
        "2 processes were killed (out of memory) while it served; the server answered no request"
    )
    (finding,) = check_server(server)
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "memory")
    assert finding.evidence.startswith("Killed")
