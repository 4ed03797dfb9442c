"""Whether a machine has what is needed, and in plain words what it lacks."""

from collections.abc import Mapping

from seatrial.job.units import format_size
from seatrial.suite import Machine, Requirement


def unmet(who: str, needs: Mapping[str, Requirement], machine_name: str, machine: Machine) -> str:
    """`runtime pytorch needs gpu.count >=1, machine cpu has 0`; empty when nothing is lacking."""
    for name, need in needs.items():
        have = machine.capability(name)
        if have is None:
            return f"{who} needs {name} {need.text}, machine {machine_name} does not say its {name}"
        if not need.met_by(have):
            return f"{who} needs {name} {need.text}, machine {machine_name} has {_has(name, have)}"
    return ""


def short_need(why: str) -> str:
    """What such a reason has in common with those of other machines and runtimes: `needs gpu.count >=1`."""
    _, _, need = why.partition(" needs ")
    return f"needs {need.partition(', machine ')[0]}"


def _has(name: str, have: str | float) -> str:
    if isinstance(have, str):
        return have
    if not have and name in ("gpu.model", "gpu.memory"):
        return "no GPU"
    return format_size(have) if name.endswith("memory") else f"{have:g}"
