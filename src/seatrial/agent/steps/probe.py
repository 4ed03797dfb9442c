"""Probes that run inside another interpreter: a module, a command's version, the facts of a machine.

This file is passed to the interpreter as text (`python -c`), so that it sees the same `sys.path` as a user's terminal,
and the agent cannot shadow a module. Standard library only, no relative imports. It reports one JSON line on the
descriptor in SEATRIAL_NOTES_FD; everything else that it prints is the step's output.
"""

import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

VERSION_TIMEOUT_S = 5.0


# ---- import


def probe_import(module: str) -> Dict[str, Any]:
    """Imports `module`. `absent`: the module or its parent package is not installed. Other errors are `crashed`."""
    import faulthandler
    import traceback

    faulthandler.enable()  # reports the Python frames of a crash in native code
    probed: Dict[str, Any] = {"state": "imported", "version": None, "file": None, "error": "", "traceback": ""}
    try:
        __import__(module)
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a module are its crashes too
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        absent = (
            isinstance(error, ImportError)
            and type(error).__name__ == "ModuleNotFoundError"
            and error.name is not None
            and (module + ".").startswith(error.name + ".")
            # Raised by the search for the module, not by a file that was being imported.
            and all(frame.f_code.co_filename.startswith("<frozen importlib") for frame in frames)
        )
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        shown = "" if absent else traceback.format_exc()
        return dict(probed, state="absent" if absent else "crashed", error=text, traceback=shown)
    where = getattr(sys.modules[module], "__file__", None)
    file = where if isinstance(where, str) else None
    return dict(probed, version=module_version(module), file=file, empty=None if file else _empty(sys.modules[module]))


def _empty(module: Any) -> Optional[str]:
    """Returns the folder that was imported as a namespace package although no Python file is in it or below it."""
    from importlib.machinery import all_suffixes

    folders = list(getattr(module, "__path__", ()))
    files = (name for folder in folders for _, _, names in os.walk(folder) for name in names)
    if not all(map(os.path.isdir, folders)):  # in an archive, or of an editable installation
        return None
    return None if not folders or any(name.endswith(tuple(all_suffixes())) for name in files) else folders[0]


def module_version(module: str) -> Optional[str]:
    top = module.split(".")[0]
    for name in (module, top):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            return version
    try:
        from importlib import metadata
    except ImportError:
        return None
    try:
        return metadata.version(top)
    except (metadata.PackageNotFoundError, ValueError):
        pass
    for distribution in metadata.distributions():
        tops = (distribution.read_text("top_level.txt") or "").split()
        if not tops:
            tops = [str(file).split("/")[0] for file in distribution.files or ()]
        if top in tops or top + ".py" in tops:
            return distribution.version
    return None


# ---- command


def probe_version(path: str) -> Dict[str, Any]:
    """Returns the first line of `PATH --version`; None if the command has no such option or hangs."""
    import re

    code, text = run_program([path, "--version"], VERSION_TIMEOUT_S)
    lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]", "", line).strip() for line in text.splitlines()]
    first = next((line for line in lines if line), None)
    return {"version": first[:200] if first and code == 0 else None}


# ---- limits of this process


def memory_limit() -> Optional[int]:
    """Returns the memory limit of this process: the lowest of its control groups, its rlimits and the machine."""
    import resource

    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    for file in _group_files("memory", "memory.max", "memory.limit_in_bytes"):
        text = _read(file).strip()
        limits += [int(text)] if text.isdigit() else []
    return min((limit for limit in limits if limit > 0), default=None)


def cpu_limit() -> Optional[float]:
    """Returns the CPU quota of this process's control groups in cores; None if there is no quota."""
    limits = []
    for file in _group_files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        words = _read(file).split()
        if file.endswith("cpu.cfs_quota_us"):
            words += _read(file.replace("quota", "period")).split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def _group_files(controller: str, unified: str, legacy: str) -> List[str]:
    """Returns the files of that name in this process's control group and its parents, for both cgroup versions."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0" and not controllers:
            root, name = "/sys/fs/cgroup", unified
        elif controller in controllers.split(","):
            root, name = "/sys/fs/cgroup/" + controller, legacy
        else:
            continue
        parts = [part for part in path.split("/") if part]
        found += [os.path.join(root, *([*parts[:depth], name])) for depth in range(len(parts), -1, -1)]
    return found


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


# ---- facts


def probe_facts(argument: str) -> Dict[str, Any]:
    """Returns the facts of this interpreter's environment and of the machine as seen from it."""
    gpus, trouble = _gpus()
    return {
        "python": {"terminal": _python(_which("python") or _which("python3")), "kernel": _python(_kernel_python())},
        "cpu": {"count": len(os.sched_getaffinity(0)), "limit": cpu_limit()},
        "memory_bytes": memory_limit(),
        "gpu": gpus,
        "gpu_error": trouble,
        "packages": _packages(),
        "os": _os(),
    }


def _which(command: str) -> Optional[str]:
    import shutil

    return shutil.which(command)


def _python(executable: Optional[str]) -> Optional[Dict[str, Any]]:
    if executable is None:
        return None
    code = "import sys; print(sys.prefix); print(sys.executable); print('.'.join(map(str, sys.version_info[:3])))"
    exit_code, text = run_program([executable, "-c", code], 30.0, stderr=subprocess.DEVNULL)
    lines = text.splitlines()
    if exit_code != 0 or len(lines) < 3:
        return {"executable": executable, "version": None, "prefix": None}
    return {"executable": lines[-2], "version": lines[-1], "prefix": lines[-3]}


def _kernel_python() -> Optional[str]:
    """Returns the executable of the default notebook kernel."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return None
    try:
        first = str(KernelSpecManager().get_kernel_spec("python3").argv[0])
    except (NoSuchKernel, IndexError, ValueError):
        return None
    return sys.executable if first in ("python", "python3") else _which(first) or first


def run_program(
    argv: List[str], timeout_s: float, stderr: int = subprocess.STDOUT, env: Optional[Dict[str, str]] = None
) -> Tuple[Optional[int], str]:
    """Returns (exit code, output), or (None, reason) if the program cannot be started or times out. It is then killed
    with all processes that it started in its session."""
    import signal

    none, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        child = subprocess.Popen(argv, env=env, stdin=none, stdout=pipe, stderr=stderr, start_new_session=True)
    except OSError as error:
        return None, str(error)
    with child:  # closes the pipe also if a process in another session still has it
        try:
            output = child.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired as error:
            os.killpg(child.pid, signal.SIGKILL)
            return None, str(error)
    return child.returncode, output.decode("utf-8", "replace")


def nvidia_smi_scope(env: Mapping[str, str]) -> Optional[List[str]]:
    """Returns the option that limits nvidia-smi to the GPUs that CUDA makes visible in this environment; None if there
    are none."""
    shown = env.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return []
    names = []
    for name in (part.strip() for part in shown.split(",")):
        if not (name.isdigit() or name.startswith("GPU-")):  # like CUDA, stop at the first invalid name
            break
        names.append(name)
    return ["--id=" + ",".join(names)] if names else None


def _gpus() -> Tuple[List[Dict[str, Any]], str]:
    """Returns the GPUs, and the error if nvidia-smi exists but failed."""
    nvidia_smi, scope = _which("nvidia-smi"), nvidia_smi_scope(os.environ)
    if nvidia_smi is None or scope is None:
        return [], ""
    query = [nvidia_smi, *scope, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    code, text = run_program(query, 60.0)
    if code is None:
        return [], "nvidia-smi did not answer: %s" % text
    if code != 0:
        return [], "nvidia-smi failed with exit code %d: %s" % (code, text.strip()[:500])
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.rsplit(",", 2)]
        if len(fields) == 3:
            memory = int(float(fields[1]) * 2**20) if fields[1].replace(".", "", 1).isdigit() else None
            gpus.append({"model": fields[0], "memory_bytes": memory, "driver": fields[2]})
    return gpus, ""


def _packages() -> Dict[str, str]:
    try:
        from importlib import metadata
    except ImportError:
        return {}
    named = ((distribution.metadata["Name"], distribution.version) for distribution in metadata.distributions())
    return {str(name): str(version) for name, version in sorted(named, key=str) if name}


def _os() -> Dict[str, str]:
    uname = os.uname()
    pretty = [line for line in _read("/etc/os-release").splitlines() if line.startswith("PRETTY_NAME=")]
    name = pretty[0].partition("=")[2].strip("\"'") if pretty else uname.sysname
    return {"name": name, "kernel": uname.release, "machine": uname.machine}


_PROBES = {"import": probe_import, "which": probe_version, "facts": probe_facts}


def main(arguments: List[str]) -> int:
    kind, argument = arguments[0], "".join(arguments[1:])
    note = dict(_PROBES[kind](argument), note=kind)
    with os.fdopen(os.dup(int(os.environ["SEATRIAL_NOTES_FD"])), "wb") as notes:
        notes.write(json.dumps(note).encode("utf-8") + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
