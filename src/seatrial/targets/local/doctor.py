"""Diagnostics of the local target for `seatrial doctor`."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from seatrial.targets.agent_file import agent_file
from seatrial.targets.local.containers import start_container, working_engine
from seatrial.targets.local.programs import ask, machine_path, uv_path
from seatrial.targets.protocol import Diagnostic, TargetError, ok, problem, warning

CONTAINER_S = 60.0  # limit for the first container to start
LITTLE_BYTES, TOO_LITTLE_BYTES = 2 << 30, 100 << 20
_MESSAGE_CHARACTERS = 500
# Runs the agent's own code from the file that jobs get, so the result is the same as for a job.
_TRY_LIMIT = """
import sys
sys.path.insert(0, sys.argv[1])
from seatrial_agent.contain import cgroup
groups = cgroup.Cgroup(cgroup.plan(sys.argv[2]))
groups.create(64 << 20)
print("limited" if groups.memory_limited else "not limited", len(groups.folders))
groups.remove()
"""
_GPU_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


async def examine_machine(state: Path, cache: Path, engine: str | None) -> list[Diagnostic]:
    """Diagnostics of a local target with these folders and this container engine."""
    asked = await asyncio.gather(
        _folder("job folder", state, "state"),
        _folder("environment folder", cache, "cache"),
        _python(),
        _uv(),
        _memory_limit(),
        _engine(engine),
        _gpus(),
    )
    return list(asked)


async def _folder(what: str, path: Path, option: str) -> Diagnostic:
    fix = f"free disk space, or set another folder: `{option}:` in the target, or ${f'seatrial_{option}'.upper()}"
    there = next(one for one in (path, *path.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        return problem(what, f"cannot write to {path}: {error.strerror or error}", fix)
    found = f"{path}, {free / (1 << 30):,.1f} GiB free"
    if free < TOO_LITTLE_BYTES:
        return problem(what, found, fix)
    return warning(what, found, fix) if free < LITTLE_BYTES else ok(what, found)


async def _python() -> Diagnostic:
    what = "system Python"
    found = shutil.which("python3", path=machine_path())
    if found is None:
        fix = "install Python, or set `python:`, `interpreter:` or `image:` in each runtime"
        return warning(what, "command not found: python3 (jobs without a runtime need it)", fix)
    code, out = await ask(found, "-I", "-c", "import platform; print(platform.python_version())")
    if code != 0:
        return warning(what, f"{found} does not start: {out}", "repair it, or put another python3 first on PATH")
    return ok(what, f"{out}, {found}")


async def _uv() -> Diagnostic:
    what = "uv, for runtimes with `python:`"
    try:
        code, out = await ask(uv_path(), "--version")
    except TargetError as error:
        return warning(what, str(error), "pip install uv")
    return ok(what, out) if code == 0 else warning(what, out, "pip install --upgrade uv")


async def _memory_limit() -> Diagnostic:
    what = "job memory limit"
    instead = "memory is limited by polling instead; short peaks can be missed"
    command = "systemd-run --user --scope -p Delegate=yes seatrial run …"
    fix = f"run as root, or in a control group of your own: `{command}`"
    with tempfile.TemporaryDirectory(prefix="seatrial-doctor-") as folder:
        scratch = Path(folder)
        try:
            agent = await asyncio.to_thread(agent_file, scratch)
        except OSError as error:
            return problem(what, f"cannot write the agent: {error}", "free disk space for temporary files")
        code, out = await ask(sys.executable, "-I", "-c", _TRY_LIMIT, str(agent), str(scratch / "doctor"))
    if code != 0:
        return problem(what, f"the agent does not start with {sys.executable}: {out}", "reinstall Seatrial")
    if out.startswith("limited"):
        return ok(what, "by the kernel (control group)")
    return warning(what, f"cannot create a control group; {instead}", fix)


async def _engine(preferred: str | None) -> Diagnostic:
    what = "containers, for runtimes with `image:`"
    fix = "install podman or docker and allow this user to use it; runtimes without `image:` need neither"
    try:
        async with asyncio.timeout(CONTAINER_S):
            engine = await working_engine(preferred)
            fix = f"make `{Path(engine).name} run` work for this user; runtimes without `image:` do not need it"
            if ulimits := await start_container(engine):
                found = f"{engine} works; its default ulimits cannot be set here, so jobs use {' '.join(ulimits)}"
                return warning(what, found, "to raise them, run with CAP_SYS_RESOURCE or raise this user's ulimits")
            return ok(what, f"{engine} works")
    except TargetError as error:
        return warning(what, str(error), fix)
    except OSError as error:
        return warning(what, f"not tested: {error}", "free disk space for temporary files")
    except TimeoutError:
        return warning(what, f"no container started within {CONTAINER_S:g} s", fix)


async def _gpus() -> Diagnostic:
    what = "GPUs"
    program = shutil.which("nvidia-smi")
    if program is None:
        return ok(what, "none (nvidia-smi not found)")
    code, out = await ask(program, *_GPU_QUERY)
    if code != 0:
        fix = "check that the NVIDIA driver is loaded; jobs can use GPUs once `nvidia-smi` lists them"
        return warning(what, f"{program} failed: {out}", fix)
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    return ok(what, f"{len(lines)}: {'; '.join(lines)[:_MESSAGE_CHARACTERS]}" if lines else "none")
