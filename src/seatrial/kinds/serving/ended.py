"""How server and driver ended, and what that means for cases that have no answer."""

import contextlib
from typing import Any

import msgspec

from seatrial.checks import check_job, check_workspace
from seatrial.checks.ended import OUTCOME_VERDICTS, describe_exit, killed_for_memory
from seatrial.checks.evidence import most_relevant_first
from seatrial.job import (
    Exit,
    Finding,
    Observation,
    ObservedStep,
    Outcome,
    Unreadable,
    Verdict,
    convert,
    decode,
    value_text,
)
from seatrial.kinds.job import DRIVER
from seatrial.kinds.serving.generation import Answer, Failure, Trouble, merge_messages
from seatrial.kinds.serving.parts import SERVER
from seatrial.kinds.serving.work import GONE, LOAD, PIECE, READY, SERVER_PORT, UNREADY

# What the driver's records say: when the server first answered, and what came back of each thing that was asked.


ENDPOINT = "endpoint"  # the note of a driver that opened the route to its server
BEGUN, FINISHED = "begun", "finished"  # as every driver notes what it does


class DriverRecords(msgspec.Struct):
    answers: dict[str, Answer] = {}  # by thing
    similarities: dict[str, list[float]] = {}  # to what is expected, by thing, where that was asked for
    begun: set[str] = set()
    ready: dict[str, Any] | None = None
    unready: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    route: str = ""  # between client and server, where it is more than a connection
    overhead_s: float = 0.0  # the least that it adds to every answer, in the median
    overhead_p99_s: float = 0.0
    gone: str = ""  # why nothing was asked any more


def driver_records(step: ObservedStep) -> DriverRecords:
    found = DriverRecords()
    pieces: dict[str, list[str]] = {}
    for note in step.notes:
        kind, thing = note.get("note"), str(note.get("thing"))
        if kind == BEGUN:
            found.begun.add(thing)
            pieces.pop(thing, None)  # those of a driver that was killed in the middle of them
        elif kind == PIECE:
            pieces.setdefault(thing, []).append(str(note.get("text")))
        elif kind == FINISHED and thing == READY:
            found.ready = note
        elif kind == FINISHED and thing == LOAD:
            found.load = note
        elif kind == FINISHED:
            with contextlib.suppress(Unreadable, KeyError, ValueError):  # of which is then said that it has no record
                found.answers[thing] = _answer(note, pieces.pop(thing, []))
                found.similarities[thing] = convert(note.get("similarities") or [], list[float])
        elif kind == UNREADY:
            found.unready = note
        elif kind == ENDPOINT and note.get("port") == SERVER_PORT and note.get("overhead_s"):
            found.route, found.overhead_s = str(note.get("route")), float(note["overhead_s"])
            found.overhead_p99_s = float(note.get("overhead_p99_s") or found.overhead_s)
        elif kind == GONE:
            found.gone = str(note.get("why"))
    return found


def _answer(note: dict[str, Any], pieces: list[str]) -> Answer:
    if "pieces" in note:
        if note["pieces"] != len(pieces):
            raise ValueError("pieces are missing")
        answer = decode("".join(pieces), Answer)
    else:
        answer = convert(note["answer"], Answer)
    if answer.messages and not answer.generations and answer.failure is None:
        return msgspec.structs.replace(answer, generations=(merge_messages(answer.messages),))
    return answer


_READY = "ready"
_UNAUTHORIZED = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")  # codes, in either protocol
_OURS = (Outcome.RELEASED, Outcome.CANCELLED)


class EndCause(msgspec.Struct, frozen=True):
    """Why cases have no answer."""

    verdict: Verdict
    class_: str
    text: str


def check_server(server: Observation) -> list[Finding]:
    """A server goes on until it is not needed any more: one that ended by itself failed, whatever its exit code."""
    by_name = {step.name: step for step in server.steps}
    findings = [check_workspace(by_name["workspace"], server.exit)] if "workspace" in by_name else []
    if server.exit.outcome is Outcome.EXITED:
        cause = _ended_by_itself(server)
        output = by_name[SERVER].output if SERVER in by_name else ""
        evidence = most_relevant_first(output)
        return [*findings, Finding(SERVER, "serving", cause.verdict, cause.class_, cause.text, evidence)]
    ended = check_job(server, SERVER)
    if not ended and (killed := _short_of_memory(server)):
        message = f"{killed_for_memory(killed)} while it served"
        evidence = most_relevant_first(killed.output)
        ended = [Finding(SERVER, "memory", Verdict.FAILED, "memory", message, evidence)]
    if not ended:
        ended = [Finding(SERVER, "serving", Verdict.PASSED, message="it served until it was not needed any more")]
    return findings + ended


def _short_of_memory(server: Observation | None) -> ObservedStep | None:
    """The step of a server that went on without a process of it: a front may live longer than the engine behind it."""
    steps = server.steps if server is not None and server.exit.outcome is Outcome.RELEASED else ()
    return next((step for step in steps if step.name == SERVER and step.oom_kills), None)


def _ended_by_itself(server: Observation) -> EndCause:
    """Of a server whose command ended while it was needed; one that a signal killed says which."""
    step = next((step for step in server.steps if step.name == SERVER), None)
    if step is not None and step.outcome not in (None, Outcome.EXITED):
        ended = Exit(step.outcome, step.code, step.signal)
        return EndCause(OUTCOME_VERDICTS[step.outcome], step.outcome.value, f"the server {describe_exit(ended)}")
    return EndCause(Verdict.FAILED, SERVER, f"the server ended by itself, with exit code {server.exit.code}")


def check_driver(driver: Observation, step: ObservedStep, server: Observation | None) -> list[Finding]:
    if driver.exit.outcome is Outcome.EXITED and step.code:
        bug = "Traceback (most recent call last)" in step.output
        if not bug and _died(server):  # before the driver could reach it, which is reported of the server
            return []
        verdict, class_ = (Verdict.INVALID, "seatrial") if bug else (Verdict.INFRA, DRIVER)
        lines = step.output.strip().splitlines()
        text = lines[-1] if lines else f"the driver ended with exit code {step.code}"
        return [Finding(DRIVER, "driving", verdict, class_, text, step.output)]
    if driver.exit.outcome is Outcome.STOPPED:  # because its server ended, which is reported of the server
        return []
    return check_job(driver, DRIVER)


def check_ready(records: DriverRecords, cause: EndCause) -> Finding:
    check = "first answer"
    if records.ready is not None:
        tries = records.ready.get("tries")
        after = f"a first generation was answered after {value_text(float(records.ready['seconds']), 's')}"
        return Finding(_READY, check, Verdict.PASSED, message=f"{after}{f', at try {tries}' if tries != 1 else ''}")
    return Finding(_READY, check, cause.verdict, cause.class_, cause.text)


def cause_of_silence(
    server: Observation | None, driver: Observation, step: ObservedStep, records: DriverRecords
) -> EndCause:
    """Why what has no answer has none; the first of what can be known."""
    if server is not None and _died(server):
        if server.exit.outcome is Outcome.EXITED:
            return _ended_by_itself(server)
        outcome = server.exit.outcome
        return EndCause(OUTCOME_VERDICTS[outcome], outcome.value, f"the server {describe_exit(server.exit)}")
    if driver.exit.outcome is Outcome.CANCELLED or (server and server.exit.outcome is Outcome.CANCELLED):
        return EndCause(Verdict.SKIPPED, Outcome.CANCELLED.value, "cancelled before it was answered")
    if records.gone:
        return EndCause(Verdict.FAILED if server is not None else Verdict.INFRA, "gone", records.gone)
    if records.unready is not None:
        cause = _unready(records.unready, own=server is not None)
        if killed := _short_of_memory(server):
            return EndCause(Verdict.FAILED, "memory", f"{killed_for_memory(killed)} while it served; {cause.text}")
        return cause
    if driver.exit.outcome is not Outcome.EXITED:
        outcome = driver.exit.outcome
        return EndCause(OUTCOME_VERDICTS[outcome], outcome.value, f"the driver {describe_exit(driver.exit)}")
    if step.code:
        return EndCause(Verdict.INFRA, DRIVER, "the driver could not go on")
    return EndCause(Verdict.INFRA, Outcome.LOST.value, "the driver has no record of it")


def _unready(note: dict[str, object], own: bool) -> EndCause:
    why = str(note.get("why") or "nothing came back")
    if note.get("lasting"):
        advice = "; is `server.token` the one that it wants?" if why.startswith(_UNAUTHORIZED) else ""
        return EndCause(Verdict.FAILED, "refused", f"the server refuses to generate: {why}{advice}")
    seconds = float(str(note.get("seconds") or 0))
    within = f"within {value_text(seconds, 's')} ({note.get('tries')} tries): {why}"
    if not own and note.get("reached") is False:
        return EndCause(Verdict.INFRA, Trouble.UNREACHABLE.value, f"the server took no connection {within}")
    return EndCause(Verdict.TIMEOUT, Outcome.UNREADY.value, f"no generation was answered {within}")


def _died(server: Observation | None) -> bool:
    return server is not None and server.exit.outcome not in _OURS


def trouble_of(failure: Failure, cause: EndCause, server: Observation | None) -> EndCause:
    """Of a request that got no answer from the server, by whose fault it was."""
    if failure.trouble in (Trouble.BROKEN, Trouble.UNREACHABLE) and _died(server):
        return EndCause(cause.verdict, cause.class_, f"{failure.message}: {cause.text}")
    verdict = {
        Trouble.UNREACHABLE: Verdict.FAILED if server is not None else Verdict.INFRA,
        Trouble.LATE: Verdict.TIMEOUT,
        Trouble.NOT_ASKED: Verdict.INVALID,
    }.get(failure.trouble, Verdict.FAILED)
    code = f"{failure.code}: " if failure.code and failure.trouble is Trouble.ANSWERED else ""
    said = f"the server answered with an error: {code}{failure.message}"
    text = said if failure.trouble is Trouble.ANSWERED else failure.message
    return EndCause(verdict, "error" if failure.trouble is Trouble.ANSWERED else failure.trouble.value, text)
