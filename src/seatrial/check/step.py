"""Findings for the plain steps: a command is there, a module imports, a command line does what it should."""

import re
from typing import Any

import msgspec

from seatrial.check.ended import ended_badly, unseen
from seatrial.check.evidence import most_relevant_first, tidy, with_heading
from seatrial.check.finding import failed, passed
from seatrial.job import Exit, Finding, ObservedStep, Outcome, Verdict


def _joined(*parts: Any) -> str:
    """Of what a step reported, which should be text."""
    return ", ".join(str(part) for part in parts if part)


def check_command(observed: ObservedStep, ended: Exit) -> Finding:
    """The command is on PATH. That it can print its version is not required."""
    path = observed.result.get("path")
    if not path:
        return ended_badly(observed, "command", ended) or failed(
            observed, "command", "absent", f"there is no command {observed.args.get('command')} on PATH"
        )
    return passed(observed, "command", _joined(path, observed.result.get("version")))


def check_import(observed: ObservedStep, ended: Exit, version: str = "") -> Finding:
    """The module imports, and its version is one of those that `version` (`>=1.2,<2`) allows."""
    state, error = observed.result.get("state"), str(observed.result.get("error") or "")
    if state not in ("imported", "absent", "crashed"):
        return ended_badly(observed, "import", ended) or failed(
            observed, "import", "crashed", "the import did not report how it went", most_relevant_first(observed.output)
        )
    if state != "imported":
        module = observed.args.get("module")
        message = f"{module} is not installed" if state == "absent" else f"{module} crashed when it was imported"
        evidence = with_heading(error, str(observed.result.get("traceback") or ""))
        if observed.outcome in (Outcome.TIMEOUT, Outcome.STALL, Outcome.CANCELLED, Outcome.INFRA):
            return ended_badly(observed, "import", ended) or failed(observed, "import", state, message, evidence)
        return failed(observed, "import", "memory" if observed.outcome is Outcome.MEMORY else state, message, evidence)
    if observed.outcome is not Outcome.EXITED or observed.code != 0:
        bad = ended_badly(observed, "import", ended)
        how = bad.message if bad else f"it ended with exit code {observed.code}"
        message = f"{observed.args.get('module')} was imported, and then Python did not end well: {how}"
        return failed(observed, "import", "crashed", message, most_relevant_first(observed.output))
    have = observed.result.get("version")
    if version and not (have and version_matches(version, str(have))):
        return failed(observed, "import", "version", f"its version is {have or 'not known'}, and should be {version}")
    return passed(observed, "import", _joined(have, observed.result.get("file")))


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


def check_run(observed: ObservedStep, ended: Exit, expected: RunExpected) -> list[Finding]:
    """One finding for how it ended, one for each text that it should, or should never, print."""
    bad = ended_badly(observed, "exit", ended)
    if bad:
        return [bad]
    return [_exit(observed, expected), *_texts(observed, expected)]


def _exit(observed: ObservedStep, expected: RunExpected) -> Finding:
    if expected.exit is None or observed.code == expected.exit:
        return passed(observed, "exit", f"exit code {observed.code}")
    message = f"exit code {observed.code}, and should be {expected.exit}"
    return failed(observed, "exit", "exit", message, most_relevant_first(observed.output))


def _texts(observed: ObservedStep, expected: RunExpected) -> list[Finding]:
    if observed.unseen:
        texts = [("contains", expected.contains), ("matches", expected.matches), ("never", expected.never)]
        missing = (unseen(observed, f"{word} {text}") for word, some in texts for text in some)
        return [finding for finding in missing if finding is not None]
    output = tidy(observed.output)
    unread = (
        f" ({observed.output_omitted_bytes} bytes in its middle were not kept)" if observed.output_omitted_bytes else ""
    )
    findings = []
    for text in expected.contains:
        check = f"contains {text}"
        found = passed(observed, check, "") if text in output else None
        findings.append(
            found
            or failed(observed, check, "output", f"it did not print {text!r}{unread}", most_relevant_first(output))
        )
    for pattern in expected.matches:
        check = f"matches {pattern}"
        match = re.search(pattern, output, re.MULTILINE)
        found = passed(observed, check, match[0][:200]) if match else None
        message = f"nothing that it printed matches {pattern!r}{unread}"
        findings.append(found or failed(observed, check, "output", message, most_relevant_first(output)))
    for text in expected.never:
        check = f"never {text}"
        line = next((line for line in output.splitlines() if text in line), None)
        message = f"it printed {text!r}, and never should"
        findings.append(
            failed(observed, check, "output", message, with_heading(line, output))
            if line
            else passed(observed, check, unread.strip())
        )
    return findings


def check_workspace(observed: ObservedStep, ended: Exit) -> Finding:
    """The workspace was cloned. That it was not is no fault of what is tested, but a wrong ref is the suite's."""
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
        message=f"{address} could not be cloned",
        evidence=most_relevant_first(observed.output),
    )
