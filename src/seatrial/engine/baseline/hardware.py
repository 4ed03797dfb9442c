"""What hardware a run was on, for people, from what its folder kept; nothing when the folder is gone."""

from collections import Counter
from pathlib import Path
from typing import Any

from seatrial.record import DamagedFile, RunFolder


def hardware(runs: Path, run: str, cell: str) -> str:
    """`AMD EPYC 7B12, 2 cores, 4 × NVIDIA A100`"""
    folder = RunFolder(runs / run)
    results = folder.read_results()
    found = next((one for one in results.cells if one.id == cell), None) if results else None
    if found is None or not found.attempts:
        return ""
    try:
        seen = folder.read_observation(found.hash, found.attempts[-1].number).hardware
    except DamagedFile:
        return ""
    return described(seen)


def described(seen: dict[str, Any]) -> str:
    parts = [str(seen["cpu"])] if seen.get("cpu") else []
    if seen.get("cores"):
        parts.append(f"{seen['cores']} cores")
    gpus = seen.get("gpu")
    models = Counter(map(str, gpus)) if isinstance(gpus, list) else Counter()
    parts += [f"{count} × {model}" for model, count in models.items()]
    if others := seen.get("others"):
        parts.append(f"{len(others)} of its hosts other than that")
    return ", ".join(parts)
