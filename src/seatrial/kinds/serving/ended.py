"""How the server and the client ended, and why cases have no answer."""

import contextlib

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
from seatrial.kinds.serving.generation import Answer, Failure, Trouble
from seatrial.kinds.serving.load_work import LOAD, LoadNote
from seatrial.kinds.serving.parts import SERVER
from seatrial.kinds.serving.work import SERVER_PORT, AnswerNote, Note, ReadyNote, UnreadyNote


class DriverRecords(msgspec.Struct):
    """What the client recorded: when the server first answered, and the answer to each thing that it asked."""

    answers: dict[str, Answer] = {}  # by thing
    similarities: dict[str, list[float]] = {}  # to the expected texts, by thing; only for rule `embedding`
    begun: set[str] = set()
    ready: ReadyNote | None = None
    unready: UnreadyNote | None = None
    load: LoadNote | None = None
    load_problem: str = ""  # why the load record cannot be read
    route: str = ""  # between client and server, unless it is a plain connection
    overhead_s: float = 0.0  # minimum that the route adds to every answer, p50
    overhead_p99_s: float = 0.0
    gone: str = ""  # why the client stopped asking


def driver_records(step: ObservedStep) -> DriverRecords:
    found = DriverRecords()
    pieces: dict[str, list[str]] = {}
    for note in step.notes:
        kind, thing = note.get("note"), str(note.get("thing"))
        if kind == Note.BEGUN:
            found.begun.add(thing)
            pieces.pop(thing, None)  # incomplete: the client was killed while writing them
        elif kind == Note.PIECE:
            pieces.setdefault(thing, []).append(str(note.get("text")))
        elif kind == Note.FINISHED and thing == LOAD:
            try:
                found.load = convert(note, LoadNote)
            except Unreadable as error:
                found.load_problem = str(error)
        elif kind in (Note.FINISHED, Note.UNREADY):
            with contextlib.suppress(Unreadable):  # treated as not recorded
                if kind == Note.UNREADY:
                    found.unready = convert(note, UnreadyNote)
                elif thing == Note.READY:
                    found.ready = convert(note, ReadyNote)
                elif answer := _answer(read := convert(note, AnswerNote), pieces.pop(thing, [])):
                    found.answers[thing], found.similarities[thing] = answer, read.similarities
        elif kind == Note.ENDPOINT and note.get("port") == SERVER_PORT and note.get("overhead_s"):
            found.route, found.overhead_s = str(note.get("route")), float(note["overhead_s"])
            found.overhead_p99_s = float(note.get("overhead_p99_s") or found.overhead_s)
        elif kind == Note.GONE:
            found.gone = str(note.get("why"))
    return found


def _answer(note: AnswerNote, pieces: list[str]) -> Answer | None:
    """None if it is missing or incomplete."""
    if note.pieces is None:
        return note.answer
    return decode("".join(pieces), Answer) if note.pieces == len(pieces) else None


_UNAUTHORIZED = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")  # codes, in either protocol
_OURS = (Outcome.RELEASED, Outcome.CANCELLED)


class EndCause(msgspec.Struct, frozen=True):
    """Why cases have no answer."""

    verdict: Verdict
    class_: str
    text: str


def check_server(server: Observation) -> list[Finding]:
    """A server must run until it is stopped: one that exits on its own failed, whatever its exit code."""
    by_name = {step.name: step for step in server.steps}
    findings = [check_workspace(by_name["workspace"], server.exit)] if "workspace" in by_name else []
    if server.exit.outcome is Outcome.EXITED:
        cause = _ended_by_itself(server)
        evidence = most_relevant_first(by_name[SERVER].output if SERVER in by_name else "")
        return [*findings, Finding(SERVER, "serving", cause.verdict, cause.class_, cause.text, evidence)]
    ended = check_job(server, SERVER)
    if not ended and (killed := _short_of_memory(server)):
        message = f"{killed_for_memory(killed)} while it served"
        evidence = most_relevant_first(killed.output)
        ended = [Finding(SERVER, "memory", Verdict.FAILED, "memory", message, evidence)]
    if not ended:
        ended = [Finding(SERVER, "serving", Verdict.PASSED, message="served until it was no longer needed")]
    return findings + ended


def _short_of_memory(server: Observation | None) -> ObservedStep | None:
    """The step of a server that lost a process to the OOM killer and kept running, such as a front end without its
    engine."""
    steps = server.steps if server is not None and server.exit.outcome is Outcome.RELEASED else ()
    return next((step for step in steps if step.name == SERVER and step.oom_kills), None)


def _ended_by_itself(server: Observation) -> EndCause:
    """Cause for a server whose command ended while it was needed, with the signal if one killed it."""
    step = next((step for step in server.steps if step.name == SERVER), None)
    if step is not None and step.outcome not in (None, Outcome.EXITED):
        return _ended(SERVER, Exit(step.outcome, step.code, step.signal))
    return EndCause(Verdict.FAILED, SERVER, f"the server exited on its own with code {server.exit.code}")


def _ended(name: str, ended: Exit) -> EndCause:
    return EndCause(OUTCOME_VERDICTS[ended.outcome], ended.outcome.value, f"the {name} {describe_exit(ended)}")


def check_driver(driver: Observation, step: ObservedStep, server: Observation | None) -> list[Finding]:
    if driver.exit.outcome is Outcome.EXITED and step.code:
        bug = "Traceback (most recent call last)" in step.output
        if not bug and _died(server):  # before the client could reach it; reported as a finding of the server
            return []
        verdict, class_ = (Verdict.INVALID, "seatrial") if bug else (Verdict.INFRA, DRIVER)
        lines = step.output.strip().splitlines()
        text = lines[-1] if lines else f"the client exited with code {step.code}"
        return [Finding(DRIVER, "driving", verdict, class_, text, step.output)]
    if driver.exit.outcome is Outcome.STOPPED:  # because its server ended; reported as a finding of the server
        return []
    return check_job(driver, DRIVER, "client")


def check_ready(records: DriverRecords, cause: EndCause) -> Finding:
    check = "first answer"
    if records.ready is not None:
        tries = records.ready.tries
        after = f"first generation answered after {value_text(records.ready.seconds, 's')}"
        return Finding("ready", check, Verdict.PASSED, message=f"{after}{f' ({tries} tries)' if tries != 1 else ''}")
    return Finding("ready", check, cause.verdict, cause.class_, cause.text)


def cause_of_silence(
    server: Observation | None, driver: Observation, step: ObservedStep, records: DriverRecords
) -> EndCause:
    """Why cases have no answer: the first known cause."""
    if server is not None and _died(server):
        return _ended_by_itself(server) if server.exit.outcome is Outcome.EXITED else _ended(SERVER, server.exit)
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
        return _ended("client", driver.exit)
    if step.code:
        return EndCause(Verdict.INFRA, DRIVER, "the client failed")
    return EndCause(Verdict.INFRA, Outcome.LOST.value, "the client has no record of it")


def _unready(note: UnreadyNote, own: bool) -> EndCause:
    why = note.why or "no response"
    if note.lasting:
        advice = "; check `server.token`" if why.startswith(_UNAUTHORIZED) else ""
        return EndCause(Verdict.FAILED, "refused", f"the server refused the first generation: {why}{advice}")
    within = f"within {value_text(note.seconds, 's')} ({note.tries} tries): {why}"
    if not own and not note.reached:
        return EndCause(Verdict.INFRA, Trouble.UNREACHABLE.value, f"no connection to the server {within}")
    text = f"the server answered no request {within}; if it needs longer, raise `server.ready.within`"
    return EndCause(Verdict.TIMEOUT, Outcome.UNREADY.value, text)


def _died(server: Observation | None) -> bool:
    return server is not None and server.exit.outcome not in _OURS


def trouble_of(failure: Failure, cause: EndCause, server: Observation | None) -> EndCause:
    """Cause for a request that failed, with the verdict for whoever is at fault."""
    if failure.trouble in (Trouble.BROKEN, Trouble.UNREACHABLE) and _died(server):
        return EndCause(cause.verdict, cause.class_, f"{failure.message}: {cause.text}")
    verdict = {
        Trouble.UNREACHABLE: Verdict.FAILED if server is not None else Verdict.INFRA,
        Trouble.LATE: Verdict.TIMEOUT,
        Trouble.NOT_ASKED: Verdict.INVALID,
    }.get(failure.trouble, Verdict.FAILED)
    if failure.trouble is Trouble.ANSWERED:
        return EndCause(verdict, "error", f"the server answered with an error: {failure.text}")
    return EndCause(verdict, failure.trouble.value, failure.message)
