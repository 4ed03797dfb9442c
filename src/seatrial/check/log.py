"""Findings for a training job's log: how it ended, what it had to say, what it never should, that it went on."""

import re
import signal
from collections.abc import Iterable
from typing import Any

import msgspec

from seatrial.check.ended import ended_badly
from seatrial.check.evidence import most_relevant_first, with_heading
from seatrial.check.finding import failed, passed
from seatrial.check.log_values import hosts_text, log_values
from seatrial.job import Exit, Finding, Outcome, StepSeen, Verdict

# Ended by us: what the log had not said by then, it may have said later.
_CUT_SHORT = (Outcome.STOPPED, Outcome.STALL, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.EVICTED, None)

ONE_IS_ENOUGH = "where one is enough: `log: {hosts: any}`"
SHELL_SIGNAL = 128
_KILLING = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM}
_HOST = re.compile(r"^\[\d+\] (?:--- host \d+ ended .*\n?)?", re.MULTILINE)
_ENDED = re.compile(r"^\[\d+\] --- host (\d+) ended", re.MULTILINE)


class LogExpected(msgspec.Struct, frozen=True):
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    hosts: int = 1
    every_host: bool = True  # `must` is asked of each
    logs: int | None = None  # of how many of the hosts there is a log, where that is known


def check_exit(seen: StepSeen, ended: Exit) -> list[Finding]:
    """How the command ended. What Seatrial itself ended has another finding that says why; its exit code says nothing.
    Of a job that somebody else ran there may be no exit code."""
    stopped = stopped_by(seen)
    if seen.outcome is Outcome.STOPPED and stopped.get("what") in ("never", "value"):
        return [skipped(seen, "exit", "not known: it was ended for what its log said")]
    if seen.outcome is Outcome.STALL and stopped.get("what") == "stall":
        return [_stall(seen, stopped), skipped(seen, "exit", "not known: it was ended when no step came any more")]
    bad = ended_badly(seen, "exit", ended)
    if bad:
        return [bad]
    if seen.code is None:
        return [skipped(seen, "exit", "not known: it ran elsewhere, and its exit code was not given")]
    if seen.code == 0:
        return [passed(seen, "exit", "exit code 0")]
    return [_bad_code(seen, seen.code)]


def _bad_code(seen: StepSeen, code: int) -> Finding:
    """A shell reports a signal that killed its command by an exit code above 128."""
    host = _ENDED.search(seen.output) if _several(seen) else None
    place = f" on host {host[1]}" if host else ""
    if code > SHELL_SIGNAL and code - SHELL_SIGNAL in _KILLING:
        name = signal.Signals(code - SHELL_SIGNAL).name
        message = f"it was killed{place} by {name} (exit code {code} of its shell)"
        return failed(seen, "exit", "signal", message, relevant_output(seen))
    return failed(seen, "exit", "exit", f"exit code {code}{place}, and should be 0", relevant_output(seen))


def _several(seen: StepSeen) -> bool:
    hosts = seen.args.get("hosts")
    return isinstance(hosts, int) and hosts > 1


def check_log(seen: StepSeen, expected: LogExpected) -> list[Finding]:
    """A finding for each pattern."""
    return [
        *_unreadable(seen),
        *_missing(seen, expected),
        *(_must(seen, pattern, expected) for pattern in expected.must),
        *(_never(seen, pattern) for pattern in expected.never),
    ]


def stopped_by(seen: StepSeen) -> dict[str, Any]:
    """What made the agent end the step early, if anything did."""
    stopped = seen.result.get("stopped")
    return stopped if isinstance(stopped, dict) else {}


def relevant_output(seen: StepSeen) -> str:
    """What it printed, the most telling line first, without the names of hosts before its lines."""
    return most_relevant_first(_HOST.sub("", seen.output) if _several(seen) else seen.output)


def skipped(seen: StepSeen, check: str, message: str) -> Finding:
    return Finding(step=seen.name, check=check, verdict=Verdict.SKIPPED, message=message)


def cut_short(seen: StepSeen) -> str:
    """Why the log says less than it might have; empty when it was the job's own end."""
    return "it was ended early" if seen.outcome in _CUT_SHORT else ""


def dropped(seen: StepSeen, check: str, pattern: str) -> Finding | None:
    """The finding for a pattern that the agent gave up on: it would have taken forever on some line of this log."""
    for one in _list(seen.result.get("dropped")):
        if isinstance(one, dict) and one.get("pattern") == pattern:
            why = str(one.get("why") or "it does not end on a line of this log")
            message = f"the pattern was given up: {why}; write it so that it has no repeat inside a repeat"
            return Finding(seen.name, check, Verdict.INVALID, "pattern", message)
    return None


def where(line: Any, host: Any, hosts: int) -> str:
    """`line 12`, with its host where there are several."""
    parts = [f"line {line}"] if isinstance(line, int) else []
    if hosts > 1 and isinstance(host, int):
        parts.append(f"host {host}")
    return " of ".join(parts)


def _unreadable(seen: StepSeen) -> list[Finding]:
    """Of logs that are files: one that could not be read to its end."""
    errors = [one for one in _list(seen.result.get("errors")) if isinstance(one, dict)]
    return [failed(seen, "log", "log", f"{one.get('path')}: {one.get('error')}") for one in errors]


def _missing(seen: StepSeen, expected: LogExpected) -> list[Finding]:
    """Of logs that are files: fewer than there are hosts. What the missing ones hold is not known."""
    if expected.logs is None or expected.logs >= expected.hosts or not expected.every_host:
        return []
    logs = "there is 1 log" if expected.logs == 1 else f"there are {expected.logs} logs"
    lacking = expected.hosts - expected.logs
    message = f"{logs} for {expected.hosts} hosts, and none of the other{'s' if lacking > 1 else ''}; {ONE_IS_ENOUGH}"
    return [failed(seen, "log", "log", message)]


def _must(seen: StepSeen, pattern: str, expected: LogExpected) -> Finding:
    check = f"must {pattern}"
    if given_up := dropped(seen, check, pattern):
        return given_up
    found = _matches(seen, "must", pattern)
    by_host = {host: count for host, count in _hosts(found) if count}
    missing = [host for host in range(expected.hosts) if host not in by_host] if expected.hosts > 1 else []
    if found.get("count") and not (missing and expected.every_host and by_host):
        return passed(seen, check, str(found.get("text") or "")[:200])
    if cut_short(seen):
        return skipped(seen, check, f"not known: {cut_short(seen)}")
    if found.get("count"):
        message = f"only {hosts_text(sorted(by_host))} printed it, and not {hosts_text(missing)}; {ONE_IS_ENOUGH}"
    else:
        message = f"no line matches {pattern!r}{_unread(seen)}"
    return failed(seen, check, "log", message, relevant_output(seen))


def _never(seen: StepSeen, pattern: str) -> Finding:
    check = f"never {pattern}"
    if given_up := dropped(seen, check, pattern):
        return given_up
    found = _matches(seen, "never", pattern)
    notes = [note for note in seen.notes if note.get("note") == "never" and note.get("pattern") == pattern]
    if not found.get("count") and not notes:
        if seen.outcome is None and not seen.result:
            return skipped(seen, check, "not known: its log was not read to its end")
        return passed(seen, check, _unread(seen).strip(" ()"))
    first = notes[0] if notes else found
    hosts = len(list(_hosts(found))) or 1
    at = where(first.get("line"), first.get("host"), hosts)
    message = f"it printed what matches {pattern!r}, and never should" + (f" ({at})" if at else "")
    stopped = stopped_by(seen)
    if stopped.get("what") == "never" and stopped.get("pattern") == pattern:
        message += f"; it was ended{_after(stopped)}"
    return failed(seen, check, "log", message, with_heading(str(first.get("text") or ""), seen.output))


def _stall(seen: StepSeen, stopped: dict[str, Any]) -> Finding:
    """In the agent's words: it knows how long a step took before, and how long this one was waited for."""
    last = (
        log_values(seen, "step").last if stopped.get("host") is None else {}
    )  # of several hosts, the agent says which one
    at = f"; the last was step {max(last.values()):.0f}" if last else ""
    message = f"{stopped.get('text') or 'no new step for too long'}{at}"
    return Finding(seen.name, "stall", Verdict.TIMEOUT, "stall", message, relevant_output(seen))


def _after(stopped: dict[str, Any]) -> str:
    seconds = stopped.get("seconds_after")
    return f" {seconds:.2g} s after that line" if isinstance(seconds, int | float) else " at that line"


def _matches(seen: StepSeen, kind: str, pattern: str) -> dict[str, Any]:
    all_of = seen.result.get(kind)
    found = all_of.get(pattern) if isinstance(all_of, dict) else None
    return found if isinstance(found, dict) else {}


def _hosts(found: dict[str, Any]) -> Iterable[tuple[int, int]]:
    hosts = found.get("host")
    for host, count in hosts.items() if isinstance(hosts, dict) else ():
        if str(host).isdigit() and isinstance(count, int):
            yield int(host), count


def _unread(seen: StepSeen) -> str:
    long = seen.result.get("long_lines")
    if not isinstance(long, int) or not long:
        return ""
    return f" ({long} line{' was' if long == 1 else 's were'} too long to be read whole)"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
