"""What the machine and the runtime turned out to be, against what the suite declares."""

import re
from typing import Any

import msgspec

from seatrial.checks.ended import ended_badly
from seatrial.checks.evidence import most_relevant_first, with_heading
from seatrial.checks.findings import failed, passed
from seatrial.job import Exit, Finding, Gpu, ObservedStep, Unreadable, convert

# A GPU sold with 24 GiB shows 22.5 with error correction on; main memory lacks what the system keeps to itself.
NEAR = 0.10


class Declared(msgspec.Struct, frozen=True):
    """What the suite says of the machine. None is not said, and so not judged: `gpu` None differs from a count of 0."""

    cpu: float | None = None
    memory_bytes: int | None = None
    gpu: Gpu | None = None
    same_python: bool = True


class _Cpu(msgspec.Struct, frozen=True):
    count: float | None = None
    limit: float | None = None


class _Pythons(msgspec.Struct, frozen=True):
    terminal: dict[str, Any] | None = None
    kernel: dict[str, Any] | None = None


class _Facts(msgspec.Struct, frozen=True):
    """The form of what the agent gathers, as far as it is looked at here."""

    cpu: _Cpu
    python: _Pythons | None = None
    memory_bytes: float | None = None
    gpu: list[dict[str, Any]] | None = None
    os: dict[str, Any] | None = None
    packages: dict[str, Any] | None = None


def check_facts(observed: ObservedStep, ended: Exit, declared: Declared) -> list[Finding]:
    """A finding for the gathering itself, and one for each thing that is declared."""
    facts = observed.result
    try:
        convert(facts, _Facts)
    except Unreadable as error:
        bad = ended_badly(observed, "facts", ended)
        message = str(facts.get("error") or f"the facts could not be gathered: {error}")
        return [
            bad
            or failed(observed, "facts", "facts", message, with_heading(message, most_relevant_first(observed.output)))
        ]
    found = {key: facts[key] for key in ("python", "packages", "os") if facts.get(key)}
    findings = [msgspec.structs.replace(passed(observed, "facts", facts_line(facts)), data=found)]
    if declared.same_python:
        findings += _python(observed, facts)
    if declared.cpu is not None:
        findings.append(_cpu(observed, facts, declared.cpu))
    if declared.memory_bytes is not None:
        findings.append(_memory(observed, facts, declared.memory_bytes))
    if declared.gpu is not None:
        findings += _gpu(observed, facts, declared.gpu)
    return findings


def facts_line(facts: dict[str, Any]) -> str:
    """One line for a person."""
    pythons = facts.get("python") or {}
    python = pythons.get("kernel") or pythons.get("terminal") or {}
    gpus = facts.get("gpu") or []
    return ", ".join(
        [
            f"Python {python.get('version') or '?'}",
            f"{_cores(facts):g} CPU",
            f"{memory_text(facts.get('memory_bytes'))} memory",
            f"{len(gpus)} × {gpus[0].get('model')}" if gpus else "no GPU",
            str((facts.get("os") or {}).get("name") or "?"),
            f"{len(facts.get('packages') or {})} packages",
        ]
    )


def memory_text(number: Any) -> str:
    return f"{number / 2**30:.4g} GiB" if isinstance(number, int | float) else "?"


def _python(observed: ObservedStep, facts: dict[str, Any]) -> list[Finding]:
    """The Python of a terminal is that of a notebook. Without any kernel there is nothing to compare."""
    pythons = facts.get("python") or {}
    terminal, kernel = pythons.get("terminal"), pythons.get("kernel")
    if kernel is None:
        return []
    if terminal is None:
        message = f"there is no python on PATH, while notebooks get {kernel.get('executable')}"
        return [failed(observed, "python", "python", message)]
    if all(terminal.get(key) == kernel.get(key) for key in ("prefix", "version")):
        return [passed(observed, "python", f"{terminal.get('version')} in the terminal and in notebooks")]
    found = [f"{each.get('version')} at {each.get('executable')}" for each in (terminal, kernel)]
    return [failed(observed, "python", "python", f"the terminal has Python {found[0]}, notebooks have {found[1]}")]


def _cores(facts: dict[str, Any]) -> float:
    count, limit = float(facts["cpu"].get("count") or 0), facts["cpu"].get("limit")
    return min(count, float(limit)) if isinstance(limit, int | float) else count


def _cpu(observed: ObservedStep, facts: dict[str, Any], declared: float) -> Finding:
    cores = _cores(facts)
    if cores + 1e-6 >= declared:
        return passed(observed, "cpu", f"{cores:g}, declared {declared:g}")
    return failed(observed, "cpu", "cpu", f"the job may use {cores:g} CPU, and {declared:g} are declared")


def _memory(observed: ObservedStep, facts: dict[str, Any], declared: int) -> Finding:
    have = facts.get("memory_bytes") or 0
    if have >= declared * (1 - NEAR):
        return passed(observed, "memory", f"{memory_text(have)}, declared {memory_text(declared)}")
    return failed(
        observed, "memory", "memory", f"the job may use {memory_text(have)}, and {memory_text(declared)} are declared"
    )


def _gpu(observed: ObservedStep, facts: dict[str, Any], declared: Gpu) -> list[Finding]:
    gpus, trouble = facts.get("gpu") or [], str(facts.get("gpu_error") or "")
    names = ", ".join(str(gpu.get("model")) for gpu in gpus)
    if len(gpus) != declared.count:
        message = f"{len(gpus)} GPUs, and {declared.count} are declared"
        reason = trouble or names or "there is no nvidia-smi; other GPUs than NVIDIA's cannot be seen"
        return [failed(observed, "gpu count", "gpu", message, with_heading(message, reason))]
    findings = [passed(observed, "gpu count", f"{len(gpus)} {names}".strip())]
    if declared.count and declared.model is not None:
        wrong = [str(gpu.get("model")) for gpu in gpus if not is_model(declared.model, str(gpu.get("model")))]
        message = f"{', '.join(wrong)}, and {declared.model} is declared"
        findings.append(
            failed(observed, "gpu model", "gpu", message) if wrong else passed(observed, "gpu model", names)
        )
    if declared.count and declared.memory_bytes is not None:
        findings.append(_gpu_memory(observed, gpus, declared.memory_bytes))
    return findings


def _gpu_memory(observed: ObservedStep, gpus: list[dict[str, Any]], declared: int) -> Finding:
    have = [gpu.get("memory_bytes") for gpu in gpus]
    sizes = ", ".join(map(memory_text, have))
    if all(isinstance(one, int) and abs(one - declared) <= declared * NEAR for one in have):
        return passed(observed, "gpu memory", sizes)
    return failed(observed, "gpu memory", "gpu", f"{sizes} a GPU, and {memory_text(declared)} are declared")


def is_model(declared: str, observed: str) -> bool:
    """Whether nvidia-smi's name is of the declared model: `A100` is in `NVIDIA A100-SXM4-40GB`, `A10` is not."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in (declared, observed)]
    return re.search(re.escape(plain[0]) + r"(?!\d)", plain[1]) is not None
