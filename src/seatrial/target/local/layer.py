"""A job's own layer over a built environment, so that a notebook's `pip install` changes nothing for other cells.

The layer is a virtual environment by itself, made of a few links in the job's folder: what is installed goes there and
is gone with the job; everything else is found in the environment below it, which all cells share.
"""

from pathlib import Path

PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'


def lay_over(environment: Path, layer: Path) -> None:
    """Make `layer`, over anything half made before. Raises OSError."""
    site = next(environment.glob("lib/python*/site-packages"))
    own_site = layer / site.relative_to(environment)
    own_site.mkdir(parents=True, exist_ok=True)
    (layer / "bin").mkdir(exist_ok=True)
    (layer / "pyvenv.cfg").write_bytes((environment / "pyvenv.cfg").read_bytes())
    # addsitedir also follows the .pth files that are in there; a plain path would not.
    (own_site / "_below.pth").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    for name in ("python", "python3", site.parent.name):
        _link(layer / "bin" / name, (environment / "bin" / "python").resolve())
    for name in ("share", "etc"):  # kernels and settings of Jupyter
        if (environment / name).is_dir():
            _link(layer / name, environment / name)
    if (environment / "bin" / "pip").exists():  # its own would install below
        for name in ("pip", "pip3"):
            (layer / "bin" / name).write_text(PIP)
            (layer / "bin" / name).chmod(0o755)


def _link(path: Path, to: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(to)
