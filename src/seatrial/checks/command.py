"""Checks a command's exit, output and log, and the workspace clone."""

import re
import signal
from collections.abc import Iterable
from typing import Any

from seatrial.checks.ended import ended_badly, unseen
from seatrial.checks.evidence import most_relevant_first, tidy, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import Exit, Finding, ObservedStep, Outcome, Verdict, count
from seatrial.readers.log import hosts_text, log_values
from seatrial.suite.command import Command, LogChecks


def joined_text(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)


def check_run(observed: ObservedStep, ended: Exit, expected: Command) -> list[Finding]:
    """Returns a finding for the exit, and one for each expected or forbidden text. Texts are searched in stdout and
    stderr together."""
    if stopped_by(observed):
        return check_exit(observed, ended)
    if observed.outcome is not Outcome.EXITED and (bad := ended_badly(observed, "exit", ended)):
        return [bad]
    exited = passed(observed, "exit", f"exit code {observed.code}")
    if expected.exit not in (None, observed.code):
        exited = _bad_code(observed, observed.code or 0, expected.exit or 0)
    asked = [("contains", expected.contains), ("matches", expected.matches), ("never", expected.never)]
    texts = [(word, text) for word, some in asked for text in some]
    return [exited, *(unseen(observed, f"{word} {text}") or _text(observed, word, text) for word, text in texts)]


def _text(observed: ObservedStep, word: str, text: str) -> Finding:
    """Checks one text or pattern. The agent searched all output, or only the kept part if it spans several lines."""
    check = f"{word} {text}"
    pattern = text if word == "matches" else re.escape(text)
    if unusable := dropped(observed, check, pattern):
        return unusable
    found = _matches(observed, "never" if word == "never" else "must", pattern)
    if not found:
        return Finding(observed.name, check, Verdict.INFRA, Outcome.LOST.value, "output was not searched")
    omitted = observed.output_omitted_bytes if found.get("kept") else 0
    unread = f" ({omitted} bytes in its middle were not kept)" if omitted else ""
    line = str(found.get("text") or "")
    if word == "never" and found.get("count"):
        message = f"output contains forbidden text {text!r}"
        return failed(observed, check, "output", message, with_heading(line, tidy(observed.output)))
    if word == "never" or found.get("count"):
        return passed(observed, check, line[:200] if word == "matches" else "")
    message = f"output does not {'match' if word == 'matches' else 'contain'} {text!r}"
    return failed(observed, check, "output", message + unread, most_relevant_first(tidy(observed.output)))


def check_workspace(observed: ObservedStep, ended: Exit) -> Finding:
    """Checks that the workspace was cloned. A failed clone is `infra`, an unknown ref is `invalid`."""
    bad = ended_badly(observed, "workspace", ended)
    if bad:
        return bad
    if observed.code == 0 and observed.result.get("commit"):
        return passed(observed, "workspace", f"commit {observed.result['commit']}")
    address = f"{observed.args.get('git')} {observed.args.get('ref') or ''}".strip()
    return Finding(
        step=observed.name,
        check="workspace",
        verdict=Verdict.INVALID if observed.result.get("unknown_ref") else Verdict.INFRA,
        class_="workspace",
        message=f"cannot clone {address}",
        evidence=most_relevant_first(observed.output),
    )


# The log of a job: exit, required and forbidden lines, stalls.


# The job did not end by itself, so lines that are missing might still have come.
_CUT_SHORT = (Outcome.STOPPED, Outcome.STALL, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.EVICTED, None)

ONE_IS_ENOUGH = "if one host is enough, set `log: {hosts: any}`"
SHELL_SIGNAL = 128
_KILLING = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM}
_HOST = re.compile(r"^\[\d+\] (?:--- host \d+ ended .*\n?)?", re.MULTILINE)
_MEMORY = re.compile(
    r"^.*(?:(?:CUDA|HIP|XLA|GPU|ROCm|CUBLAS|cuDNN|device)\b.*\bout of memory|RESOURCE_EXHAUSTED|OutOfMemoryError"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|\bMemoryError\b|std::bad_alloc).*$",
    re.IGNORECASE | re.MULTILINE,
)
_ENDED = re.compile(r"^\[\d+\] --- host (\d+) ended", re.MULTILINE)


def check_exit(observed: ObservedStep, ended: Exit) -> list[Finding]:
    """Checks how the command ended. If Seatrial stopped it, another finding has the reason, and the exit code is
    skipped. A job that ran outside Seatrial may have no exit code."""
    stopped = stopped_by(observed)
    if observed.outcome is Outcome.STOPPED and stopped.get("what") in ("never", "value"):
        return [skipped(observed, "exit", "not checked: stopped because of a log line")]
    if observed.outcome is Outcome.STALL and stopped.get("what") == "stall":
        # The agent's text: it knows how long steps took, and which host stalled.
        last = log_values(observed, "step").last if stopped.get("host") is None else {}
        at = f"; the last was step {max(last.values()):.0f}" if last else ""
        message = f"{stopped.get('text') or 'no new step for too long'}{at}"
        return [
            Finding(observed.name, "stall", Verdict.TIMEOUT, "stall", message, relevant_output(observed)),
            skipped(observed, "exit", "not checked: stopped because no new step was logged"),
        ]
    bad = ended_badly(observed, "exit", ended)
    if bad:
        return [bad]
    if observed.code is None:
        return [skipped(observed, "exit", "not checked: the job ran elsewhere; add its exit code with `--exit-code`")]
    if observed.code == 0:
        return [passed(observed, "exit", "exit code 0")]
    return [_bad_code(observed, observed.code)]


def _bad_code(observed: ObservedStep, code: int, expected: int = 0) -> Finding:
    """A shell reports a signal that killed its command by an exit code above 128."""
    host = _ENDED.search(observed.output) if _several(observed) else None
    on_host = f" on host {host[1]}" if host else ""
    if code and (short := out_of_memory(observed.output)):
        message = f"out of memory{on_host} (exit code {code}): {short}"
        return failed(observed, "exit", "memory", message, relevant_output(observed))
    if code > SHELL_SIGNAL and code - SHELL_SIGNAL in _KILLING:
        name = signal.Signals(code - SHELL_SIGNAL).name
        message = f"killed{on_host} by {name} (exit code {code} from its shell)"
        return failed(observed, "exit", "signal", message, relevant_output(observed))
    return failed(observed, "exit", "exit", f"exited {code}{on_host} (expected {expected})", relevant_output(observed))


def out_of_memory(output: str) -> str:
    """The line that reports that a program or its GPU ran out of memory; empty if there is none."""
    found = _MEMORY.search(output)
    return _HOST.sub("", found[0]).strip()[:200] if found else ""


def _several(observed: ObservedStep) -> bool:
    hosts = observed.args.get("hosts")
    return isinstance(hosts, int) and hosts > 1


def check_log(observed: ObservedStep, expected: LogChecks, hosts: int = 1, logs: int | None = None) -> list[Finding]:
    """Returns a finding per pattern, one per log file that could not be read to its end, and one if logs of some hosts
    are missing. `logs`: number of hosts with a log, if known."""
    errors = [one for one in _list(observed.result.get("errors")) if isinstance(one, dict)]
    findings = [failed(observed, "log", "log", f"{one.get('path')}: {one.get('error')}") for one in errors]
    every_host = expected.hosts == "all"
    if logs is not None and logs < hosts and every_host:
        others = "other" if hosts - logs == 1 else "others"
        message = f"{count(logs, 'log')} for {hosts} hosts, none from the {others}; {ONE_IS_ENOUGH}"
        findings.append(failed(observed, "log", "log", message))
    return [
        *findings,
        *(_must(observed, pattern, hosts, every_host) for pattern in expected.must),
        *(_never(observed, pattern) for pattern in expected.never),
    ]


def stopped_by(observed: ObservedStep) -> dict[str, Any]:
    """Why the agent stopped the step early; empty if it did not."""
    stopped = observed.result.get("stopped")
    return stopped if isinstance(stopped, dict) else {}


def relevant_output(observed: ObservedStep) -> str:
    """The output with the most relevant line first, without host prefixes."""
    return most_relevant_first(_HOST.sub("", observed.output) if _several(observed) else observed.output)


def skipped(observed: ObservedStep, check: str, message: str) -> Finding:
    return Finding(observed.name, check, Verdict.SKIPPED, message=message)


def cut_short(observed: ObservedStep) -> str:
    """Why the log may be incomplete; empty if the job ended by itself."""
    return "the job ended early" if observed.outcome in _CUT_SHORT else ""


def dropped(observed: ObservedStep, check: str, pattern: str) -> Finding | None:
    """The finding for a pattern that was not searched in all of the output: it took too long on some line, or is not to
    be found in output that was not kept."""
    for one in _list(observed.result.get("dropped")):
        if isinstance(one, dict) and one.get("pattern") == pattern:
            why = str(one.get("why") or "it did not finish on a line of this log")
            fix = "correct it" if why.startswith("invalid") else "avoid nested repeats such as (a+)+"
            message = f"pattern not checked: {why}; {one.get('fix') or fix}"
            return Finding(observed.name, check, Verdict.INVALID, "pattern", message)
    return None


def where(line: Any, host: Any, hosts: int) -> str:
    """`line 12`, with the host if there are several."""
    parts = [f"line {line}"] if isinstance(line, int) else []
    if hosts > 1 and isinstance(host, int):
        parts.append(f"host {host}")
    return " of ".join(parts)


def _must(observed: ObservedStep, pattern: str, hosts: int, every_host: bool) -> Finding:
    check = f"must {pattern}"
    if unusable := dropped(observed, check, pattern):
        return unusable
    found = _matches(observed, "must", pattern)
    by_host = {host: hits for host, hits in _hosts(found) if hits}
    missing = [host for host in range(hosts) if host not in by_host] if hosts > 1 else []
    if found.get("count") and not (missing and every_host and by_host):
        return passed(observed, check, str(found.get("text") or "")[:200])
    if cut_short(observed):
        return skipped(observed, check, f"not checked: {cut_short(observed)}")
    if found.get("count"):
        message = f"only {hosts_text(sorted(by_host))} printed it, not {hosts_text(missing)}; {ONE_IS_ENOUGH}"
    else:
        message = f"no line matches {pattern!r}{_unread(observed)}"
    return failed(observed, check, "log", message, relevant_output(observed))


def _never(observed: ObservedStep, pattern: str) -> Finding:
    check = f"never {pattern}"
    if unusable := dropped(observed, check, pattern):
        return unusable
    found = _matches(observed, "never", pattern)
    notes = [note for note in observed.notes if note.get("note") == "never" and note.get("pattern") == pattern]
    if not found.get("count") and not notes:
        if observed.outcome is None and not observed.result:
            return skipped(observed, check, "not checked: the job ended before its whole log was read")
        return passed(observed, check, _unread(observed).strip(" ()"))
    first = notes[0] if notes else found
    hosts = len(list(_hosts(found))) or 1
    at = where(first.get("line"), first.get("host"), hosts)
    message = f"output matches forbidden pattern {pattern!r}" + (f" ({at})" if at else "")
    stopped = stopped_by(observed)
    if stopped.get("what") == "never" and stopped.get("pattern") == pattern:
        seconds = stopped.get("seconds_after")
        timed = isinstance(seconds, int | float)
        message += "; stopped " + (f"{seconds:.2g} s after that line" if timed else "at that line")
    text = str(first.get("text") or "")
    class_ = "memory" if out_of_memory(text) or out_of_memory(observed.output) else "log"
    return failed(observed, check, class_, message, with_heading(text, observed.output))


def _matches(observed: ObservedStep, kind: str, pattern: str) -> dict[str, Any]:
    all_of = observed.result.get(kind)
    found = all_of.get(pattern) if isinstance(all_of, dict) else None
    return found if isinstance(found, dict) else {}


def _hosts(found: dict[str, Any]) -> Iterable[tuple[int, int]]:
    hosts = found.get("host")
    for host, hits in hosts.items() if isinstance(hosts, dict) else ():
        if str(host).isdigit() and isinstance(hits, int):
            yield int(host), hits


def _unread(observed: ObservedStep) -> str:
    long = observed.result.get("long_lines")
    if not isinstance(long, int) or not long:
        return ""
    return f" ({long} line{' was' if long == 1 else 's were'} too long to be read whole)"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
