"""Compares the facts of the machine and the runtime with what the suite declares."""

import msgspec

from seatrial.checks.command import skipped
from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import NEAR, Exit, Finding, Gpu, ObservedStep, Outcome, Unreadable, convert, is_gpu_model


class Declared(msgspec.Struct, frozen=True):
    """What the suite declares. None is undeclared, so not checked; a GPU count of 0 is a declaration."""

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu: Gpu | None = None
    same_python: bool = True
    asked: bool = True  # False: facts are checked by default


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


def check_facts(observed: ObservedStep, ended: Exit, declared: Declared) -> list[Finding]:
    """Returns a finding for collecting the facts, and one for each declared value."""
    try:
        facts = convert(observed.result, _Facts)
    except Unreadable as error:
        if observed.outcome is Outcome.REFUSED and not declared.asked:  # the image has no Python
            return [skipped(observed, "facts", f"not checked: {observed.result.get('error')}")]
        if bad := ended_badly(observed, "facts", ended):
            return [bad]
        message = str(observed.result.get("error") or f"could not collect facts: {error}")
        evidence = with_heading(message, most_relevant_first(observed.output))
        return [failed(observed, "facts", "facts", message, evidence)]
    found = {key: observed.result[key] for key in ("python", "packages", "os") if observed.result.get(key)}
    findings = [msgspec.structs.replace(passed(observed, "facts", str(facts)), data=found)]
    if declared.same_python and facts.python and facts.python.kernel:
        findings.append(_same_python(observed, facts.python.terminal, facts.python.kernel))
    if declared.cpu is not None:
        short = facts.cores + 1e-6 < declared.cpu
        message = f"{facts.cores:g} CPUs available ({declared.cpu:g} declared)"
        good = passed(observed, "cpu", message)
        findings.append(failed(observed, "cpu", "cpu", message) if short else good)
    if declared.memory_bytes is not None:
        short = (facts.memory_bytes or 0) < declared.memory_bytes * (1 - NEAR)
        have, wanted = memory_text(facts.memory_bytes or 0), memory_text(declared.memory_bytes)
        message = f"{have} memory available ({wanted} declared)"
        good = passed(observed, "memory", message)
        findings.append(failed(observed, "memory", "memory", message) if short else good)
    if declared.gpu is not None:
        findings += _gpu(observed, facts, declared.gpu)
    return findings


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
        good = passed(observed, "gpu model", names)
        findings.append(failed(observed, "gpu model", "gpu", message) if wrong else good)
    if declared.count and declared.memory_bytes is not None:
        wanted, sizes = declared.memory_bytes, ", ".join(memory_text(gpu.memory_bytes) for gpu in gpus)
        near = all(abs((gpu.memory_bytes or 0) - wanted) <= wanted * NEAR for gpu in gpus)
        message = f"{sizes} per GPU ({memory_text(wanted)} declared)"
        good = passed(observed, "gpu memory", sizes)
        findings.append(good if near else failed(observed, "gpu memory", "gpu", message))
    return findings
