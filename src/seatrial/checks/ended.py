"""How a job, or a step of one, ended: which verdict that is and of which class, before anything that it said."""

import signal

from seatrial.checks.evidence import most_relevant_first
from seatrial.job import Exit, Finding, Observation, ObservedStep, Outcome, Unkept, Verdict

JOB = "job"  # the step of findings that are about the whole

# A queue that gave no place says nothing of the test; what can never be had is a mistake in the suite.
OUTCOME_VERDICTS = {
    Outcome.SIGNAL: Verdict.FAILED,
    Outcome.MEMORY: Verdict.FAILED,
    Outcome.TIMEOUT: Verdict.TIMEOUT,
    Outcome.STALL: Verdict.TIMEOUT,
    Outcome.STOPPED: Verdict.FAILED,
    Outcome.EVICTED: Verdict.INFRA,
    Outcome.QUEUE: Verdict.INFRA,
    Outcome.UNREADY: Verdict.TIMEOUT,
    Outcome.RELEASED: Verdict.SKIPPED,
    Outcome.CANCELLED: Verdict.SKIPPED,
    Outcome.LOST: Verdict.INFRA,
    Outcome.REFUSED: Verdict.INVALID,
    Outcome.INFRA: Verdict.INFRA,
}
_WORDS = {
    Outcome.SIGNAL: "was killed",
    Outcome.MEMORY: "ran out of memory",
    Outcome.TIMEOUT: "ran out of time",
    Outcome.STALL: "stood still for too long",
    Outcome.STOPPED: "was stopped early",
    Outcome.EVICTED: "was evicted: its place was taken away",
    Outcome.QUEUE: "got no place in time",
    Outcome.UNREADY: "was not ready in time",
    Outcome.RELEASED: "was ended, because it was no longer needed",
    Outcome.CANCELLED: "was cancelled",
    Outcome.LOST: "was lost: how it ended is not known",
    Outcome.REFUSED: "was refused",
    Outcome.INFRA: "could not be run to its end, through no fault of its own",
}


def check_job(observation: Observation, part: str = JOB) -> list[Finding]:
    """A finding when the job of that part as a whole did not end by itself, nor because it was no longer needed, and
    one for each step that hides what was killed in it; what its steps came to otherwise is theirs to say."""
    ended = observation.exit
    killed = [finding for step in observation.steps for finding in _killed_unnoticed(step)]
    if ended.outcome in (Outcome.EXITED, Outcome.RELEASED):
        return killed
    return [
        *killed,
        Finding(
            step=part,
            check="ended",
            verdict=OUTCOME_VERDICTS[ended.outcome],
            class_=ended.outcome.value,
            message=f"the {part} {describe_exit(ended)}",
            evidence=most_relevant_first(ended.message),
        ),
    ]


def check_kept(observation: Observation, part: str = JOB) -> list[Finding]:
    """A finding for files that the job kept and that are not there: whoever looks for them has to know."""
    return [
        Finding(part, "files kept", Verdict.FAILED, "files", _unkept(one), "\n".join(one.names))
        for one in observation.unkept
    ]


def _unkept(one: Unkept) -> str:
    if one.count is None:
        return "none of the files that it kept were fetched: together they are larger than is allowed"
    files = "1 file" if one.count == 1 else f"{one.count:,} files"
    first = f": {', '.join(one.names[:3])}{', …' if one.count > 3 else ''}" if one.names else ""
    return f"{files} that it kept, {one.size_bytes or 0:,} bytes, were not fetched: more than is allowed{first}"


def _killed_unnoticed(observed: ObservedStep) -> list[Finding]:
    """A step that exits with 0 although processes of it were killed for memory has not done what it was to do."""
    if not observed.oom_kills or observed.outcome is not Outcome.EXITED or observed.code != 0:
        return []
    message = f"{killed_for_memory(observed)} during this step, which ended with exit code 0 all the same"
    return [
        Finding(observed.name, "memory", Verdict.FAILED, "memory", message, most_relevant_first(observed.output)),
    ]


def killed_for_memory(observed: ObservedStep) -> str:
    processes = "a process was" if observed.oom_kills == 1 else f"{observed.oom_kills} processes were"
    return f"{processes} killed for memory"


def ended_badly(observed: ObservedStep, check: str, ended: Exit, step: str = "") -> Finding | None:
    """The finding for a step that did not come to an end of its own; None when it did."""
    if observed.outcome is Outcome.EXITED:
        return unseen(observed, check, step)
    if observed.outcome is not None:
        outcome = observed.outcome
        message = f"it {describe_exit(Exit(outcome, observed.code, observed.signal, observed.message))}"
        if outcome is Outcome.REFUSED and observed.result.get("error"):
            message = str(observed.result["error"])
    elif ended.outcome is Outcome.EXITED:  # the agent went away in the middle, and the target did not notice
        outcome, message = Outcome.LOST, "the job ended before this step did, and did not say why"
    else:
        began = observed.started_s is not None  # why one ended that never came to a step is reported once, of the job
        outcome = ended.outcome
        message = (
            f"during this step the job {describe_exit(ended)}" if began else f"before this step the job {_end(ended)}"
        )
    return Finding(
        step=step or observed.name,
        check=check,
        verdict=OUTCOME_VERDICTS[outcome],
        class_=outcome.value,
        message=message,
        evidence=most_relevant_first(observed.output),
    )


def unseen(observed: ObservedStep, check: str, step: str = "") -> Finding | None:
    """The finding for what cannot be judged because it was not observed; None when it was."""
    if not observed.unseen:
        return None
    message = f"it ended with exit code {observed.code}; what it said and made is not known: {observed.unseen}"
    return Finding(step or observed.name, check, Verdict.INFRA, Outcome.LOST.value, message)


def describe_exit(ended: Exit) -> str:
    """Goes after the name of a part: `was killed by SIGKILL: ...`."""
    first = ended.message.strip().splitlines()
    return _end(ended) + (f": {first[0]}" if first else "")


def _end(ended: Exit) -> str:
    if ended.signal is None:
        return _WORDS[ended.outcome]
    by = "" if ended.outcome is Outcome.SIGNAL else " and was ended"
    return f"{_WORDS[ended.outcome]}{by} by {_signal_name(ended.signal)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
