"""Checks of commands on PATH and of imports."""

from seatrial.checks.command import joined_text
from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import Exit, Finding, ObservedStep, Outcome


def check_command(observed: ObservedStep, ended: Exit) -> Finding:
    """Checks that the command is on PATH. It need not be able to print its version."""
    path = observed.result.get("path")
    if not path:
        return ended_badly(observed, "command", ended) or failed(
            observed, "command", "absent", f"command not found: {observed.args.get('command')}"
        )
    return passed(observed, "command", joined_text(path, observed.result.get("version")))


def check_import(observed: ObservedStep, ended: Exit, version: str = "", empty: bool = False) -> Finding:
    """Checks that the module imports and its version matches `version` (`>=1.2,<2`). `empty`: a folder without Python
    files will do."""
    state, error = observed.result.get("state"), str(observed.result.get("error") or "")
    if state not in ("imported", "absent", "crashed"):
        return ended_badly(observed, "import", ended) or failed(
            observed, "import", "crashed", "the import reported no result", most_relevant_first(observed.output)
        )
    if state != "imported":
        module = observed.args.get("module")
        message = f"{module} is not installed" if state == "absent" else f"{module} crashed on import"
        evidence = with_heading(error, str(observed.result.get("traceback") or ""))
        if observed.outcome in (Outcome.TIMEOUT, Outcome.STALL, Outcome.CANCELLED, Outcome.INFRA):
            return ended_badly(observed, "import", ended) or failed(observed, "import", state, message, evidence)
        return failed(observed, "import", "memory" if observed.outcome is Outcome.MEMORY else state, message, evidence)
    if observed.outcome is not Outcome.EXITED or observed.code != 0:
        bad = ended_badly(observed, "import", ended)
        how = bad.message if bad else f"exit code {observed.code}"
        message = f"{observed.args.get('module')} was imported, but Python then failed: {how}"
        return failed(observed, "import", "crashed", message, most_relevant_first(observed.output))
    if observed.result.get("empty") and not empty:
        message = f"{observed.args.get('module')} is not installed: {observed.result['empty']} has no Python files"
        return failed(observed, "import", "absent", message)
    have = observed.result.get("version")
    if version and not (have and version_matches(version, str(have))):
        return failed(observed, "import", "version", f"version {have or 'unknown'} (expected {version})")
    return passed(observed, "import", joined_text(have, observed.result.get("file")))


def version_matches(specifier: str, version: str) -> bool:
    """Whether a pip specifier allows a version; an invalid version is never allowed."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False
