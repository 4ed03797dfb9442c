"""An image with Seatrial, made from this checkout and its environment."""

import hashlib
import json
import os
import re
import shutil
from importlib.metadata import distribution
from pathlib import Path

import seatrial
from cluster.image import python_archive
from cluster.places import lock_file

IMAGE = "localhost/seatrial:0"


def requirements(name: str, found: set[str]) -> set[str]:
    """The distributions that one needs, itself included, extras and other platforms apart."""
    if name not in found:
        found.add(name)
        for line in distribution(name).requires or []:
            if ";" not in line:
                requirements(re.split(r"[^A-Za-z0-9._-]", line)[0], found)
    return found


def archive() -> Path:
    """Built once for the files as they are now, and shared by all tests that load it."""
    package = Path(seatrial.__file__).parent
    needed = sorted(requirements("seatrial", set()) - {"seatrial", "uv", "nbclient"})
    newest = max(path.stat().st_mtime_ns for path in package.rglob("*") if "__pycache__" not in path.parts)
    versions = [f"{name} {distribution(name).version}" for name in needed]
    digest = hashlib.sha256(json.dumps([versions, str(package), newest]).encode()).hexdigest()[:16]
    place = Path(os.environ["SEATRIAL_CACHE"]) / "seatrial-image"
    folder = place / digest
    with lock_file(place / "lock"):
        if not folder.exists():
            for outdated in place.iterdir():
                if outdated.is_dir():
                    shutil.rmtree(outdated)
            _gather(needed, package, folder.with_suffix(".draft"))
            folder.with_suffix(".draft").rename(folder)
        inside = Path(os.__file__).resolve().parent / "site-packages"
        return python_archive({str(inside): folder}, IMAGE)


def _gather(needed: list[str], package: Path, folder: Path) -> None:
    for name in needed:
        for file in distribution(name).files or []:
            source = Path(str(file.locate()))
            if source.is_file() and ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / file)
    shutil.copytree(package, folder / "seatrial", ignore=shutil.ignore_patterns("__pycache__"))
