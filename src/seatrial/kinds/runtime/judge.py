"""Checks of commands on PATH, of imports, and of the facts of machine and runtime against what the suite declares."""

import msgspec

from seatrial.checks.command import joined_text, skipped
from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import NEAR, Exit, Finding, Gpu, ObservedStep, Outcome, Unreadable, convert, is_gpu_model
from seatrial.kinds.runtime.model import Facts
from seatrial.suite import Machine


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


class _Cpu(msgspec.Struct, frozen=True):
    count: float | None = None
    limit: float | None = None


class _Python(msgspec.Struct, frozen=True):
    version: str | None = None
    executable: str | None = None
    prefix: str | None = None


class _Pythons(msgspec.Struct, frozen=True):
    terminal: _Python | None = None
    kernel: _Python | None = None


class _Gpu(msgspec.Struct, frozen=True):
    model: str | None = None
    memory_bytes: int | None = None


class _System(msgspec.Struct, frozen=True):
    name: str | None = None


class _Facts(msgspec.Struct, frozen=True):
    """The facts from the agent that are used here."""

    cpu: _Cpu
    python: _Pythons | None = None
    memory_bytes: float | None = None
    gpu: list[_Gpu] | None = None
    gpu_error: str | None = None
    os: _System | None = None
    packages: dict[str, str | None] | None = None

    @property
    def cores(self) -> float:
        count = self.cpu.count or 0.0
        return count if self.cpu.limit is None else min(count, self.cpu.limit)

    def __str__(self) -> str:
        pythons = self.python or _Pythons()
        python = pythons.kernel or pythons.terminal or _Python()
        gpus = f"{len(self.gpu)} × {self.gpu[0].model}" if self.gpu else "no GPU"
        system = (self.os and self.os.name) or "?"
        memory = memory_text(self.memory_bytes)
        return (
            f"Python {python.version or '?'}, {self.cores:g} CPU, {memory} memory, {gpus}, {system}, "
            f"{len(self.packages or {})} packages"
        )


def check_facts(
    observed: ObservedStep, ended: Exit, machine: Machine, wanted: Facts, asked: bool = True
) -> list[Finding]:
    """Returns a finding for collecting the facts, and one for each wanted one that the machine declares. A GPU count of
    0 is a declaration. `asked`: the trial asks for facts; else they are checked by default."""
    try:
        facts = convert(observed.result, _Facts)
    except Unreadable as error:
        if observed.outcome is Outcome.REFUSED and not asked:  # the image has no Python
            return [skipped(observed, "facts", f"not checked: {observed.result.get('error')}")]
        if bad := ended_badly(observed, "facts", ended):
            return [bad]
        message = str(observed.result.get("error") or f"could not collect facts: {error}")
        evidence = with_heading(message, most_relevant_first(observed.output))
        return [failed(observed, "facts", "facts", message, evidence)]
    found = {key: observed.result[key] for key in ("python", "packages", "os") if observed.result.get(key)}
    findings = [msgspec.structs.replace(passed(observed, "facts", str(facts)), data=found)]
    if wanted.python and facts.python and facts.python.kernel:
        findings.append(_same_python(observed, facts.python.terminal, facts.python.kernel))
    if wanted.cpu and machine.cpu is not None:
        enough = facts.cores + 1e-6 >= machine.cpu
        message = f"{facts.cores:g} CPUs available ({machine.cpu:g} declared)"
        findings.append(_declared(observed, "cpu", enough, message))
    if wanted.memory and machine.memory_bytes is not None:
        enough = (facts.memory_bytes or 0) >= machine.memory_bytes * (1 - NEAR)
        have, declared = memory_text(facts.memory_bytes or 0), memory_text(machine.memory_bytes)
        findings.append(_declared(observed, "memory", enough, f"{have} memory available ({declared} declared)"))
    if wanted.gpu and machine.gpu is not None:
        findings += _gpu(observed, facts, machine.resources().gpu)
    return findings


def _declared(observed: ObservedStep, check: str, good: bool, message: str, found: str = "") -> Finding:
    """The finding for a declared value; `found` replaces the message of a good one."""
    return passed(observed, check, found or message) if good else failed(observed, check, check.split()[0], message)


def memory_text(number: float | None) -> str:
    return "?" if number is None else f"{number / 2**30:.4g} GiB"


def _same_python(observed: ObservedStep, terminal: _Python | None, kernel: _Python) -> Finding:
    """Checks that terminal and notebooks use the same Python."""
    if terminal is None:
        message = f"no python on PATH, but notebooks use {kernel.executable}"
        return failed(observed, "python", "python", message)
    if (terminal.prefix, terminal.version) == (kernel.prefix, kernel.version):
        return passed(observed, "python", f"{terminal.version} in the terminal and in notebooks")
    found = [f"{each.version} at {each.executable}" for each in (terminal, kernel)]
    return failed(observed, "python", "python", f"the terminal has Python {found[0]}, notebooks have {found[1]}")


def _gpu(observed: ObservedStep, facts: _Facts, declared: Gpu) -> list[Finding]:
    gpus = facts.gpu or []
    names = ", ".join(str(gpu.model) for gpu in gpus)
    if len(gpus) != declared.count:
        message = f"{len(gpus)} GPUs available ({declared.count} declared)"
        reason = facts.gpu_error or names or "nvidia-smi not found; only NVIDIA GPUs can be detected"
        return [failed(observed, "gpu count", "gpu", message, with_heading(message, reason))]
    findings = [passed(observed, "gpu count", f"{len(gpus)} {names}".strip())]
    if declared.count and declared.model is not None:
        wrong = [str(gpu.model) for gpu in gpus if not is_gpu_model(declared.model, str(gpu.model))]
        message = f"GPU model {', '.join(wrong)} ({declared.model} declared)"
        findings.append(_declared(observed, "gpu model", not wrong, message, names))
    if declared.count and declared.memory_bytes is not None:
        wanted, sizes = declared.memory_bytes, ", ".join(memory_text(gpu.memory_bytes) for gpu in gpus)
        near = all(abs((gpu.memory_bytes or 0) - wanted) <= wanted * NEAR for gpu in gpus)
        message = f"{sizes} per GPU ({memory_text(wanted)} declared)"
        findings.append(_declared(observed, "gpu memory", near, message, sizes))
    return findings
