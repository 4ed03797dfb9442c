"""An image that has Seatrial, from the files of this checkout and its environment."""

import os
import re
import shutil
from importlib.metadata import distribution
from pathlib import Path

import seatrial
from cluster.image import python_archive

IMAGE = "localhost/seatrial:0"


def requirements(name: str, found: set[str]) -> set[str]:
    """The distributions that one needs, itself included, extras and other platforms apart."""
    if name not in found:
        found.add(name)
        for line in distribution(name).requires or []:
            if ";" not in line:
                requirements(re.split(r"[^A-Za-z0-9._-]", line)[0], found)
    return found


def archive(folder: Path) -> Path:
    """In `folder` is gathered what goes into it."""
    needed = requirements("seatrial", set()) - {"seatrial", "uv", "nbclient"}
    for name in needed:
        for file in distribution(name).files or []:
            source = Path(str(file.locate()))
            if source.is_file() and ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / file)
    shutil.copytree(Path(seatrial.__file__).parent, folder / "seatrial", dirs_exist_ok=True)
    inside = Path(os.__file__).resolve().parent / "site-packages"
    return python_archive({str(inside): folder}, IMAGE)
