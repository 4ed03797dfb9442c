"""Findings for the plain steps: a command is there, a module imports, a command line does what it should."""

import re

import msgspec

from seatrial.check.ended import ended_badly, unseen
from seatrial.check.evidence import most_relevant_first, tidy, with_heading
from seatrial.check.finding import failed, passed
from seatrial.job import Exit, Finding, Outcome, StepSeen, Verdict


def check_command(seen: StepSeen, ended: Exit) -> Finding:
    """The command is on PATH. That it can print its version is not required."""
    path = seen.result.get("path")
    if not path:
        return ended_badly(seen, "command", ended) or failed(
            seen, "command", "absent", f"there is no command {seen.args.get('command')} on PATH"
        )
    return passed(seen, "command", ", ".join(filter(None, [path, seen.result.get("version")])))


def check_import(seen: StepSeen, ended: Exit, version: str = "") -> Finding:
    """The module imports, and its version is one of those that `version` (`>=1.2,<2`) allows."""
    state, error = seen.result.get("state"), str(seen.result.get("error") or "")
    if state not in ("imported", "absent", "crashed"):
        return ended_badly(seen, "import", ended) or failed(
            seen, "import", "crashed", "the import did not report how it went", most_relevant_first(seen.output)
        )
    if state != "imported":
        module = seen.args.get("module")
        message = f"{module} is not installed" if state == "absent" else f"{module} crashed when it was imported"
        evidence = with_heading(error, str(seen.result.get("traceback") or ""))
        if seen.outcome in (Outcome.TIMEOUT, Outcome.STALL, Outcome.CANCELLED, Outcome.INFRA):
            return ended_badly(seen, "import", ended) or failed(seen, "import", state, message, evidence)
        return failed(seen, "import", "memory" if seen.outcome is Outcome.MEMORY else state, message, evidence)
    if seen.outcome is not Outcome.EXITED or seen.code != 0:
        bad = ended_badly(seen, "import", ended)
        how = bad.message if bad else f"it ended with exit code {seen.code}"
        message = f"{seen.args.get('module')} was imported, and then Python did not end well: {how}"
        return failed(seen, "import", "crashed", message, most_relevant_first(seen.output))
    have = seen.result.get("version")
    if version and not (have and version_matches(version, str(have))):
        return failed(seen, "import", "version", f"its version is {have or 'not known'}, and should be {version}")
    return passed(seen, "import", ", ".join(filter(None, [have, seen.result.get("file")])))


def version_matches(specifier: str, version: str) -> bool:
    """Whether a specifier as pip knows it allows a version; a version that is none is never allowed."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


class RunExpected(msgspec.Struct, frozen=True):
    """What a command line should do. Texts are looked for in what it printed, both streams together."""

    exit: int | None = 0  # None: any
    contains: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def check_run(seen: StepSeen, ended: Exit, expected: RunExpected) -> list[Finding]:
    """One finding for how it ended, one for each text that it should, or should never, print."""
    bad = ended_badly(seen, "exit", ended)
    if bad:
        return [bad]
    return [_exit(seen, expected), *_texts(seen, expected)]


def _exit(seen: StepSeen, expected: RunExpected) -> Finding:
    if expected.exit is None or seen.code == expected.exit:
        return passed(seen, "exit", f"exit code {seen.code}")
    message = f"exit code {seen.code}, and should be {expected.exit}"
    return failed(seen, "exit", "exit", message, most_relevant_first(seen.output))


def _texts(seen: StepSeen, expected: RunExpected) -> list[Finding]:
    if seen.unseen:
        texts = [("contains", expected.contains), ("matches", expected.matches), ("never", expected.never)]
        missing = (unseen(seen, f"{word} {text}") for word, some in texts for text in some)
        return [finding for finding in missing if finding is not None]
    output = tidy(seen.output)
    unread = f" ({seen.output_omitted_bytes} bytes in its middle were not kept)" if seen.output_omitted_bytes else ""
    findings = []
    for text in expected.contains:
        check = f"contains {text}"
        found = passed(seen, check, "") if text in output else None
        findings.append(
            found or failed(seen, check, "output", f"it did not print {text!r}{unread}", most_relevant_first(output))
        )
    for pattern in expected.matches:
        check = f"matches {pattern}"
        match = re.search(pattern, output, re.MULTILINE)
        found = passed(seen, check, match[0][:200]) if match else None
        message = f"nothing that it printed matches {pattern!r}{unread}"
        findings.append(found or failed(seen, check, "output", message, most_relevant_first(output)))
    for text in expected.never:
        check = f"never {text}"
        line = next((line for line in output.splitlines() if text in line), None)
        message = f"it printed {text!r}, and never should"
        findings.append(
            failed(seen, check, "output", message, with_heading(line, output))
            if line
            else passed(seen, check, unread.strip())
        )
    return findings


def check_workspace(seen: StepSeen, ended: Exit) -> Finding:
    """The workspace was cloned. That it was not is no fault of what is tested, but a wrong ref is the suite's."""
    bad = ended_badly(seen, "workspace", ended)
    if bad:
        return bad
    if seen.code == 0 and seen.result.get("commit"):
        return passed(seen, "workspace", f"commit {seen.result['commit']}")
    address = f"{seen.args.get('git')} {seen.args.get('ref') or ''}".strip()
    return Finding(
        step=seen.name,
        check="workspace",
        verdict=Verdict.INVALID if seen.result.get("unknown_ref") else Verdict.INFRA,
        class_="workspace",
        message=f"{address} could not be cloned",
        evidence=most_relevant_first(seen.output),
    )
