"""How to install optional packages, in the environment that Seatrial runs in."""

import shlex
import sys


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, or the package of that name.

    It works for an installation from a clone by uv, pipx or `make setup`, in any current folder: it names packages
    instead of `seatrial[extra]`, and uses uv, which Seatrial depends on, because environments by uv have no pip."""
    from importlib import metadata

    from packaging.requirements import Requirement

    wanted = []
    for text in metadata.requires("seatrial") or ():
        one = Requirement(text)
        if one.marker is not None and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""}):
            one.marker = None
            wanted.append(str(one))
    python = sys.executable
    return shlex.join([python, "-m", "uv", "pip", "install", "--python", python, *(wanted or [extra])])
