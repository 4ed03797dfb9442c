"""The one form of globs: of names (cells, axis values, tags, steps, figures), and of the notebooks in a folder."""

import glob
import os
import re
from functools import lru_cache
from pathlib import Path


def glob_matches(pattern: str, name: str) -> bool:
    """`*` is any text, `?` one character. Everything else is itself: brackets too, for the ids of cells have them."""
    return _compiled(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)


def names_several(path: str) -> bool:
    """Whether the path of a notebook stands for all that a glob matches, or that are in a folder."""
    return "*" in path or "?" in path or not path.endswith(".ipynb")


def find_notebooks(folder: Path, path: str) -> list[str]:
    """What `path` names in `folder`: a file, all that a glob matches (`**`: also in folders below), or all notebooks in
    a folder and below it. Checkpoints that Jupyter keeps are none."""
    there = folder / path
    if os.path.isfile(there):  # os.path, here and elsewhere: to pathlib a name that is too long is an error
        return [path]
    pattern = f"{glob.escape(path.rstrip('/'))}/**/*.ipynb" if os.path.isdir(there) else path.replace("[", "[[]")
    found = glob.glob(pattern, root_dir=folder, recursive=True)
    return sorted(
        one
        for one in found
        if one.endswith(".ipynb") and ".ipynb_checkpoints" not in one.split(os.sep) and os.path.isfile(folder / one)
    )
