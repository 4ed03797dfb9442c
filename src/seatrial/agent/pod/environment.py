"""Prepares the Python of a pod's steps: the image's own, a named interpreter, or an environment with packages.

An environment is a layer over the image's Python: it sees the image's packages and adds the missing ones. Packages are
installed with the image's pip, uv or ensurepip; if it has none of them the job is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ..job_file import JobError
from ..steps.kinds import Ended
from ..steps.probe import run_program

# Compares versions of Python and installed packages with the standard library only.


Numbers = Tuple[int, ...]

_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "~=": ge, "==": eq, "===": eq, "!=": ne}


def allows(specifier: str, have: Numbers) -> bool:
    """Whether `specifier` allows Python version `have`: "3.11" allows any 3.11, others are PEP 440 specifiers. Raises
    ValueError if `specifier` is invalid."""
    if re.fullmatch(r"\d+(\.\d+)*", specifier.strip()):
        specifier = "==%s.*" % specifier.strip()
    fits = True
    for clause in specifier.split(","):
        found = _CLAUSE.fullmatch(clause.strip())
        if found is None:
            raise ValueError(specifier)
        compared, text, any_behind = found.groups()
        want = tuple(map(int, text.split(".")))
        if (any_behind and compared not in ("==", "!=")) or (compared == "~=" and len(want) < 2):
            raise ValueError(specifier)
        size = len(want) if any_behind else max(len(have), len(want))  # 3.11 is 3.11.0
        fits &= _COMPARED[compared]((have + (0,) * size)[:size], (want + (0,) * size)[:size])
        fits &= compared != "~=" or have[: len(want) - 1] == want[:-1]
    return fits


# Run with `python -c` by the environment's interpreter: exits 0 if all requirements are certainly installed. It knows
# only plain names and `==`; an installer decides about others.
SATISFIED = """
import re, sys
from importlib.metadata import PackageNotFoundError, version
for wanted in sys.argv[1:]:
    found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)\\s*(?:==\\s*([0-9][A-Za-z0-9.+!]*?)(\\.\\*)?)?", wanted.strip())
    try:
        have = version(found.group(1)) if found else None
    except PackageNotFoundError:
        have = None
    if have is None:
        sys.exit(1)
    exact = found.group(2)
    if exact and not (have == exact or found.group(3) and have.startswith(exact + ".")):
        sys.exit(1)
"""


def requirement(text: Any) -> str:
    """Returns `text` if an installer would treat it as one package and nothing else. Raises JobError."""
    if not isinstance(text, str) or not re.fullmatch(r"\s*[^\s-][^\n\r\0]*", text):
        raise JobError("invalid package requirement %r" % (text,), "refused")
    return text.strip()


def names(packages: List[str]) -> str:
    shown = packages if len(packages) <= 5 else packages[:4]
    return ", ".join(shown) + (" and %d more" % (len(packages) - 4) if shown != packages else "")


_MESSAGE_CHARACTERS = 600
LOG_BYTES = 1 << 20
_ANSWER_S = 300.0  # for a short program: parts of an image may be fetched on first use

# Runs a program like a step and returns how it ended: (purpose, arguments, variables).
Do = Callable[[str, List[str], Dict[str, str]], Ended]

_NETWORK = re.compile(
    r"Retrying \(|ConnectionError|NewConnectionError|[Cc]onnection (refused|reset|aborted|timed out|broken)|"
    r"Name or service not known|Temporary failure in name resolution|dns error|timed out|Network is unreachable|"
    r"No route to host|ProxyError|Cannot connect to proxy|SSLError|CERTIFICATE_VERIFY_FAILED|error sending request|"
    r"[Ff]ailed to fetch|HTTP error 5\d\d|5\d\d Server Error|No space left on device"
)
_REFUSED = re.compile(
    r"No matching distribution|Could not find a version|Invalid requirement|ResolutionImpossible|"
    r"conflicting dependencies|requires a different Python|"
    r"No solution found|[Ff]ailed to parse|is not a valid|Expected (one of|package name)|"
    r"Invalid wheel filename|is not a supported wheel"
)
_URL_PASSWORD = re.compile(r"://[^@/\s]*@")


class Python(NamedTuple):
    """The Python for the steps; `env` has it first on PATH."""

    path: str
    env: Dict[str, str]
    driver: Optional[str] = None  # a Python with nbclient, if this one has none


class PodEnvironments:
    """`folder` is for new environments, `env` is the container's."""

    def __init__(self, folder: str, env: Dict[str, str], do: Do) -> None:
        self._folder = folder
        self._env = env
        self._do = do

    def ready(self, asked: Dict[str, Any], notebooks: bool = False) -> Python:
        """Raises JobError: `refused` if it can never be installed, `infra` if the failure may be temporary."""
        packages = [requirement(package) for package in asked.get("packages") or ()]
        if asked.get("interpreter"):
            found = self._existing(str(asked["interpreter"]))
        elif asked.get("python") or packages:
            self._check_version(asked.get("python"))
            path = self._make("env")
            found = Python(path, entered(self._env, path))
            self._install(path, found.env, packages)
        else:
            found = Python(sys.executable, self._env)
        seek = "import sys; from importlib.util import find_spec as f; sys.exit(not (f('nbclient') and f('nbformat')))"
        if notebooks and not _ask([found.path, "-c", seek], found.env)[0]:
            return found._replace(driver=self._driver())
        return found

    # ---- existing interpreters

    def _existing(self, interpreter: str) -> Python:
        path = shutil.which(os.path.expanduser(interpreter), path=self._env.get("PATH", os.defpath))
        if path is None:
            raise JobError("interpreter not found in the image, or not executable: %s" % interpreter, "refused")
        path = os.path.abspath(path)
        works, answer = _ask([path, "-c", "import sys; print(sys.version)"], self._env)
        if not works:
            raise JobError("%s in the image is not a working Python: %s" % (interpreter, _reason(answer)), "refused")
        return Python(path, entered(self._env, path))

    def _check_version(self, wanted: Optional[str]) -> None:
        have = sys.version_info[:3]
        try:
            fits = wanted is None or allows(wanted, have)
        except ValueError:
            text = 'python: invalid version %r; use "3.11" or ">=3.9,<3.13"'
            raise JobError(text % wanted, "refused") from None
        if not fits:
            text = "python: the image's Python (%s) is %s (expected %s); use another image"
            raise JobError(text % (sys.executable, "%d.%d.%d" % have, wanted), "refused")

    # ---- new environments

    def _make(self, name: str) -> str:
        """Creates a layer over the image's Python in 0.1 s: it uses the image's pip instead of a copy."""
        folder = os.path.join(self._folder, name)
        argv = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder]
        made, answer = _ask(argv, self._env)
        path = os.path.join(folder, "bin", "python")
        if not made or not os.path.exists(path):
            if "No space left" in answer:
                raise JobError("cannot create an environment: %s" % _reason(answer))
            advice = "use an image that has Python with `venv`, or the packages"
            raise JobError("cannot create an environment: %s; %s" % (_reason(answer), advice), "refused")
        # The image's Python may itself be an environment. A layer sees only the Python below that one.
        program = (
            "import site, sys; print(*(site.getsitepackages() if sys.prefix != sys.base_prefix else []), sep='\\n')"
        )
        answered, answer = _ask([sys.executable, "-c", program], self._env)
        existing = [entry for entry in answer.splitlines() if os.path.isdir(entry)] if answered else []
        for parent, folders, _ in os.walk(os.path.join(folder, "lib")):
            if "site-packages" in folders:
                with open(os.path.join(parent, "site-packages", "seatrial-image.pth"), "w") as file:
                    file.write("".join(entry + "\n" for entry in existing))
                break
        return path

    def _install(self, python: str, env: Dict[str, str], packages: List[str]) -> None:
        if not packages or _ask([python, "-c", SATISFIED, *packages], env)[0]:
            return
        env = dict(env, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", NO_COLOR="1")
        env.setdefault("PIP_PROGRESS_BAR", "off")
        log = env.setdefault("PIP_LOG", os.path.join(self._folder, "pip.log"))
        if "PIP_CACHE_DIR" not in env:
            env.setdefault("PIP_NO_CACHE_DIR", "1")  # the cache would be deleted with the pod
        argv = [*self._installer(python, env), "--", *packages]
        ended = self._do("install %s" % names(packages), argv, env)
        if ended.code != 0:
            refused = _REFUSED.search(ended.output) and not (_NETWORK.search(ended.output) or _unreachable(log))
            text = "cannot install %s: %s" % (names(packages), _reason(ended.output) or ended.how())
            raise JobError(text, "refused" if refused else "infra")

    def _installer(self, python: str, env: Dict[str, str]) -> List[str]:
        """Prefers pip, which uses the image's packages; uv would download all of them again."""
        pip = [python, "-m", "pip", "install"]
        if _ask([python, "-c", "import pip"], env)[0]:
            return pip
        uv = shutil.which("uv", path=env.get("PATH", os.defpath))
        if uv is not None:
            return [uv, "pip", "install", "--python", python]
        if self._do("the pip that comes with Python", [python, "-m", "ensurepip"], env).code == 0:
            return pip
        text = "the image has no pip, uv or ensurepip; use an image that has one of them, or one with the packages"
        raise JobError(text, "refused")

    def _driver(self) -> Optional[str]:
        """Returns a Python for notebooks. If none can be created, notebooks report that; other steps do not need it."""
        try:
            path = self._make("driver")
            self._install(path, entered(self._env, path), ["nbclient"])
            return path
        except JobError as error:
            if error.outcome in ("refused", "infra"):
                return None
            raise


def _ask(argv: List[str], env: Dict[str, str]) -> Tuple[bool, str]:
    """Runs a quick program. Returns whether it succeeded, and its output."""
    code, answer = run_program(argv, _ANSWER_S, env=env)
    return code == 0, answer


def _unreachable(path: str) -> bool:
    """Whether pip's log shows a network failure. Its output then only claims that the package does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return any("Could not fetch URL" in line and not re.search(r": 4\d\d Client Error", line) for line in lines)


def entered(env: Dict[str, str], python: str) -> Dict[str, str]:
    """Returns the variables of a shell in which the environment of `python` is activated."""
    folder = os.path.dirname(python)
    path = os.pathsep.join([folder, env.get("PATH", os.defpath)])
    found = {name: value for name, value in env.items() if name != "PYTHONHOME"}
    if os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg")):
        found["VIRTUAL_ENV"] = os.path.dirname(folder)
    return dict(found, PATH=path)


def _reason(output: str) -> str:
    """Returns the error lines of an installer as one line."""
    lines = [line.strip() for line in _URL_PASSWORD.sub("://", output).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error|×|╰)", line)] or lines[-3:]
    text = " ".join(line.strip(" ×╰─▶│├") for line in errors)
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
