"""Compares the hardware that a job saw with what its machine declares."""

from seatrial.checks.ended import JOB
from seatrial.job import Finding, Gpu, Observation, Verdict, is_gpu_model, products_of
from seatrial.job.reading import JsonObject

MODEL = "gpu model"  # name of the check


def check_gpu_model(observation: Observation, declared: Gpu, part: str = JOB) -> list[Finding]:
    """Returns a finding if a host has fewer GPUs of the declared model than declared, and others instead. A model that
    is not in the table of products, such as a MIG slice, need not be the name of a GPU and is not compared."""
    if not declared.count or not products_of(declared.model or ""):
        return []
    others = observation.hardware.get("others")
    findings = []
    for host, hardware in {"": observation.hardware, **(others if isinstance(others, dict) else {})}.items():
        names = _gpus(hardware)
        wrong = [name for name in names if not is_gpu_model(declared.model or "", name)]
        if len(names) - len(wrong) < min(declared.count, len(names)):
            of_host = f" on host {host}" if host else ""
            message = f"GPU model {', '.join(dict.fromkeys(wrong))}{of_host} ({declared.model} declared)"
            findings.append(Finding(part, MODEL, Verdict.FAILED, "gpu", message))
    return findings


def _gpus(hardware: JsonObject) -> list[str]:
    found = hardware.get("gpu") if isinstance(hardware, dict) else None
    return [str(name) for name in found] if isinstance(found, list) else []
