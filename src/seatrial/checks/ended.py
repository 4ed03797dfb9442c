"""Findings about a job as a whole and how its steps ended, whatever they printed, and about its GPUs."""

import signal

from seatrial.checks.evidence import most_relevant_first
from seatrial.job import (
    Exit,
    Finding,
    Gpu,
    Observation,
    ObservedStep,
    Outcome,
    Unkept,
    Verdict,
    is_gpu_model,
    products_of,
)

JOB = "job"  # step of findings about the whole job

# A queue timeout is `infra`; a request that can never be met is a suite error.
_ENDS = {
    Outcome.SIGNAL: (Verdict.FAILED, "was killed"),
    Outcome.MEMORY: (Verdict.FAILED, "ran out of memory"),
    Outcome.TIMEOUT: (Verdict.TIMEOUT, "timed out"),
    Outcome.STALL: (Verdict.TIMEOUT, "stalled"),
    Outcome.STOPPED: (Verdict.FAILED, "was stopped early"),
    Outcome.EVICTED: (Verdict.INFRA, "was evicted"),
    Outcome.QUEUE: (Verdict.INFRA, "was not scheduled in time"),
    Outcome.UNREADY: (Verdict.TIMEOUT, "was not ready in time"),
    Outcome.RELEASED: (Verdict.SKIPPED, "was stopped because it was no longer needed"),
    Outcome.CANCELLED: (Verdict.SKIPPED, "was cancelled"),
    Outcome.LOST: (Verdict.INFRA, "was lost; how it ended is unknown"),
    Outcome.REFUSED: (Verdict.INVALID, "was refused"),
    Outcome.INFRA: (Verdict.INFRA, "could not finish: infrastructure failure"),
}
OUTCOME_VERDICTS = {outcome: verdict for outcome, (verdict, _) in _ENDS.items()}


def check_job(observation: Observation, part: str = JOB, name: str = "") -> list[Finding]:
    """Returns a finding if the part's job neither exited by itself nor was stopped because it was no longer needed, and
    one for each step that exited 0 although processes in it were killed. Steps have findings of their own.
    `name` is what messages call the part."""
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
            message=f"the {name or part} {describe_exit(ended)}",
            evidence=most_relevant_first(ended.message),
        ),
    ]


def check_kept(observation: Observation, part: str = JOB) -> list[Finding]:
    """Returns a finding for kept files that were not fetched."""
    return [
        Finding(part, "files kept", Verdict.FAILED, "files", _unkept(one), "\n".join(one.names))
        for one in observation.unkept
    ]


def _unkept(one: Unkept) -> str:
    advice = "of the target; raise it, or keep fewer files"
    if one.count is None:
        return f"no kept files were fetched: together they exceed `fetch_size` {advice}"
    files = "1 file" if one.count == 1 else f"{one.count:,} files"
    first = f": {', '.join(one.names[:3])}{', …' if one.count > 3 else ''}" if one.names else ""
    return f"{files} not fetched ({one.size_bytes or 0:,} bytes){first}; over `fetch_files` or `fetch_size` {advice}"


def _killed_unnoticed(observed: ObservedStep) -> list[Finding]:
    """A step that exits 0 although some of its processes ran out of memory has not done its work."""
    if not observed.oom_kills or observed.outcome is not Outcome.EXITED or observed.code != 0:
        return []
    message = f"{killed_for_memory(observed)} during this step, but the step exited 0"
    return [Finding(observed.name, "memory", Verdict.FAILED, "memory", message, most_relevant_first(observed.output))]


def killed_for_memory(observed: ObservedStep) -> str:
    processes = "a process was" if observed.oom_kills == 1 else f"{observed.oom_kills} processes were"
    return f"{processes} killed (out of memory)"


UNREAD = "unread"  # class of findings that a new attempt would not change: the results are in a storage


def unread(files: ObservedStep, step: str, check: str) -> Finding | None:
    """The finding for files that could not be fetched after the job; None if they could."""
    if not files.unread:
        return None
    message = f"cannot fetch the files of the job: {files.unread}"
    advice = "the job itself has ended and is not run again; fix the access to its files, then run the cell again"
    return Finding(step, check, Verdict.INFRA, UNREAD, message, advice)


def ended_badly(observed: ObservedStep, check: str, ended: Exit, step: str = "") -> Finding | None:
    """The finding for a step that did not end by itself; None if it did."""
    if observed.outcome is Outcome.EXITED:
        return unseen(observed, check, step)
    if observed.outcome is not None:
        outcome = observed.outcome
        message = f"the step {describe_exit(Exit(outcome, observed.code, observed.signal, observed.message))}"
        if outcome is Outcome.REFUSED and observed.result.get("error"):
            message = str(observed.result["error"])
    elif ended.outcome is Outcome.EXITED:  # the agent disappeared, and the target did not notice
        outcome, message = Outcome.LOST, "the job ended during this step, and the reason is unknown"
    else:
        began = observed.started_s is not None  # a job that never reached the step reports its reason once, for the job
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
    """The finding for a step that cannot be checked because its results were not observed; None if they were."""
    if not observed.unseen:
        return None
    message = f"exited {observed.code}; its output and files are unknown: {observed.unseen}"
    return Finding(step or observed.name, check, Verdict.INFRA, Outcome.LOST.value, message)


def describe_exit(ended: Exit) -> str:
    """A phrase to follow the name of a part: `was killed by SIGKILL: ...`."""
    first = ended.message.strip().splitlines()
    return _end(ended) + (f": {first[0]}" if first else "")


def _end(ended: Exit) -> str:
    words = _ENDS[ended.outcome][1]
    if ended.signal is None:
        return words
    try:
        name = signal.Signals(ended.signal).name
    except ValueError:
        name = f"signal {ended.signal}"
    return f"{words}{'' if ended.outcome is Outcome.SIGNAL else ' and was killed'} by {name}"


MODEL = "gpu model"  # name of the check


def check_gpu_model(observation: Observation, declared: Gpu, part: str = JOB) -> list[Finding]:
    """Returns a finding if a host has fewer GPUs of the declared model than declared, and others instead. A model that
    is not in the table of products, such as a MIG slice, need not be the name of a GPU and is not compared."""
    if not declared.count or not products_of(declared.model or ""):
        return []
    others = observation.hardware.get("others")
    findings = []
    for host, hardware in {"": observation.hardware, **(others if isinstance(others, dict) else {})}.items():
        found = hardware.get("gpu") if isinstance(hardware, dict) else None
        names = [str(name) for name in found] if isinstance(found, list) else []
        wrong = [name for name in names if not is_gpu_model(declared.model or "", name)]
        if len(names) - len(wrong) < min(declared.count, len(names)):
            of_host = f" on host {host}" if host else ""
            message = f"GPU model {', '.join(dict.fromkeys(wrong))}{of_host} ({declared.model} declared)"
            findings.append(Finding(part, MODEL, Verdict.FAILED, "gpu", message))
    return findings
