"""How to install optional packages, in the environment that Seatrial runs in."""

import shlex
import sys


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, or the package of that name.

    It works for an installation from a clone by uv, pipx or `make setup`, in any current folder: it names packages
    instead of `seatrial[extra]`, and uses uv, which Seatrial depends on, because environments by uv have no pip."""
    from importlib import metadata

    required = (text.replace("'", '"').partition(";") for text in metadata.requires("seatrial") or ())
    wanted = [package.strip() for package, _, marker in required if f'extra == "{extra}"' in marker]
    python = sys.executable
    return shlex.join([python, "-m", "uv", "pip", "install", "--python", python, *(wanted or [extra])])
