"""What the machine and the runtime turned out to be, against what the suite declares."""

import re

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
    """What the agent gathers, as far as it is looked at here."""

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
    """A finding for the gathering itself, and one for each thing that is declared."""
    try:
        facts = convert(observed.result, _Facts)
    except Unreadable as error:
        if bad := ended_badly(observed, "facts", ended):
            return [bad]
        message = str(observed.result.get("error") or f"the facts could not be gathered: {error}")
        evidence = with_heading(message, most_relevant_first(observed.output))
        return [failed(observed, "facts", "facts", message, evidence)]
    found = {key: observed.result[key] for key in ("python", "packages", "os") if observed.result.get(key)}
    findings = [msgspec.structs.replace(passed(observed, "facts", str(facts)), data=found)]
    if declared.same_python and facts.python and facts.python.kernel:
        findings.append(_same_python(observed, facts.python.terminal, facts.python.kernel))
    if declared.cpu is not None:
        short = facts.cores + 1e-6 < declared.cpu
        message = f"the job may use {facts.cores:g} CPU, and {declared.cpu:g} are declared"
        good = passed(observed, "cpu", f"{facts.cores:g}, declared {declared.cpu:g}")
        findings.append(failed(observed, "cpu", "cpu", message) if short else good)
    if declared.memory_bytes is not None:
        short = (facts.memory_bytes or 0) < declared.memory_bytes * (1 - NEAR)
        have, wanted = memory_text(facts.memory_bytes or 0), memory_text(declared.memory_bytes)
        message = f"the job may use {have}, and {wanted} are declared"
        good = passed(observed, "memory", f"{have}, declared {wanted}")
        findings.append(failed(observed, "memory", "memory", message) if short else good)
    if declared.gpu is not None:
        findings += _gpu(observed, facts, declared.gpu)
    return findings


def memory_text(number: float | None) -> str:
    return "?" if number is None else f"{number / 2**30:.4g} GiB"


def _same_python(observed: ObservedStep, terminal: _Python | None, kernel: _Python) -> Finding:
    """The Python of a terminal is that of a notebook."""
    if terminal is None:
        message = f"there is no python on PATH, while notebooks get {kernel.executable}"
        return failed(observed, "python", "python", message)
    if (terminal.prefix, terminal.version) == (kernel.prefix, kernel.version):
        return passed(observed, "python", f"{terminal.version} in the terminal and in notebooks")
    found = [f"{each.version} at {each.executable}" for each in (terminal, kernel)]
    return failed(observed, "python", "python", f"the terminal has Python {found[0]}, notebooks have {found[1]}")


def _gpu(observed: ObservedStep, facts: _Facts, declared: Gpu) -> list[Finding]:
    gpus = facts.gpu or []
    names = ", ".join(str(gpu.model) for gpu in gpus)
    if len(gpus) != declared.count:
        message = f"{len(gpus)} GPUs, and {declared.count} are declared"
        reason = facts.gpu_error or names or "there is no nvidia-smi; other GPUs than NVIDIA's cannot be seen"
        return [failed(observed, "gpu count", "gpu", message, with_heading(message, reason))]
    findings = [passed(observed, "gpu count", f"{len(gpus)} {names}".strip())]
    if declared.count and declared.model is not None:
        wrong = [str(gpu.model) for gpu in gpus if not is_model(declared.model, str(gpu.model))]
        message = f"{', '.join(wrong)}, and {declared.model} is declared"
        good = passed(observed, "gpu model", names)
        findings.append(failed(observed, "gpu model", "gpu", message) if wrong else good)
    if declared.count and declared.memory_bytes is not None:
        wanted, sizes = declared.memory_bytes, ", ".join(memory_text(gpu.memory_bytes) for gpu in gpus)
        near = all(abs((gpu.memory_bytes or 0) - wanted) <= wanted * NEAR for gpu in gpus)
        message = f"{sizes} a GPU, and {memory_text(wanted)} are declared"
        good = passed(observed, "gpu memory", sizes)
        findings.append(good if near else failed(observed, "gpu memory", "gpu", message))
    return findings


def is_model(declared: str, observed: str) -> bool:
    """Whether nvidia-smi's name is of the declared model: `A100` is in `NVIDIA A100-SXM4-40GB`, `A10` is not."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in (declared, observed)]
    return re.search(re.escape(plain[0]) + r"(?!\d)", plain[1]) is not None
