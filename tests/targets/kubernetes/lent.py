"""What pods without a way out need of this machine: an image with its tools, and packages in a folder."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.image import python_archive
from cluster.places import cache_place, lock_file

PIP = "pip==25.*"
IMAGE = "localhost/tools:1"
AT = "/wheels"
MANYLINUX = ("librt.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "libutil.so.1")
_KNOWN_LIBRARY = re.compile(r"^\t(\S+) \(libc6,[^)]*\) => (/\S+)$", re.MULTILINE)


def wheels(*environments: str) -> Path:
    """A folder with the packages of each environment ("numpy scipy") and all that they need; fetched once. Skips where
    they cannot be had."""
    wanted = [PIP, *environments]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    folder = cache_place() / "wheels" / digest
    with lock_file(folder.with_name(f"{digest}.lock")):
        if not folder.exists():
            draft = folder.with_name(f"{digest}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            for packages in wanted:
                _download(packages.split(), draft)
            for path in (draft, *draft.iterdir()):
                path.chmod(0o755 if path.is_dir() else 0o644)  # pods are not root
            draft.rename(folder)
    return folder


def _download(packages: list[str], into: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    pip = [uv, "tool", "run", "--isolated", "--python", sys.executable, "pip"]
    wanted = ["download", "--quiet", "--only-binary", ":all:", "--dest", str(into), *packages]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error was printed"])[-1]
        pytest.skip(f"no packages for pods here: {last}")


def load_tools(cluster: Cluster, folder: Path, *names: str) -> None:
    """Loads an image with this Python, pip, git and make into the real node, under each of the names."""
    (wheel,) = folder.glob("pip-*.whl")
    unpacked = folder.with_name(f"{folder.name}.pip")
    with lock_file(folder.with_name(f"{folder.name}.lock")):
        if not unpacked.exists():
            draft = unpacked.with_name(f"{unpacked.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(draft)
            draft.rename(unpacked)
    site_packages = str(Path(os.__file__).resolve().parent / "site-packages")
    for name in names:
        cluster.load(python_archive({site_packages: unpacked}, name, _programs()))


def _programs() -> dict[str, Path]:
    """make, git with its way to https, and the libraries that wheels (manylinux) expect of every system."""
    found = {f"bin/{name}": Path(path) for name in ("make", "git") if (path := shutil.which(name))}
    remote = Path("/usr/lib/git-core/git-remote-https")
    if remote.exists():
        found[str(remote).lstrip("/")] = remote
    ldconfig = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    output = subprocess.run([ldconfig or "ldconfig", "-p"], capture_output=True, text=True).stdout
    for name, path in _KNOWN_LIBRARY.findall(output):
        if name in MANYLINUX:
            found.setdefault(path.lstrip("/"), Path(path))
    return found


def target(cluster: Cluster, namespace: str, folder: Path, **more: Any) -> dict[str, Any]:
    """The entry of a target on the real node whose pods install their packages from `folder`. The node is small:
    they ask for next to nothing of its cores, and are held to what their machine has all the same."""
    asked = {"name": "trial", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    return {
        "kind": "kubernetes",
        "kubeconfig": str(cluster.kubeconfig),
        "namespace": namespace,
        "image": IMAGE,
        "pull": "Never",
        "parallel": 2,
        "volumes": [{"host": str(folder), "at": AT}],
        "env": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": AT},
        "template": {"spec": {"containers": [asked]}},
        **more,
    }
