"""What of this machine is in order for jobs, and what to do about the rest: `seatrial doctor` shows it."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from seatrial.targets.agent_file import agent_file
from seatrial.targets.local.containers import start_container, working_engine
from seatrial.targets.local.programs import ask, machine_path, uv_path
from seatrial.targets.protocol import Diagnostic, TargetError, ok, problem, warning

CONTAINER_S = 60.0  # for an engine to start its first container
LITTLE_BYTES, TOO_LITTLE_BYTES = 2 << 30, 100 << 20
_MESSAGE_CHARACTERS = 500
# The agent's own code, from the file that jobs get: what it cannot do here, it cannot do for a job.
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
    """Of a local target with these folders; `engine` is what it is to run images with."""
    asked = await asyncio.gather(
        _folder("folder of jobs", state, "state"),
        _folder("folder of environments", cache, "cache"),
        _python(),
        _uv(),
        _memory_limit(),
        _engine(engine),
        _gpus(),
    )
    return list(asked)


async def _folder(what: str, path: Path, option: str) -> Diagnostic:
    fix = f"free room there, or name another folder: `{option}:` of the target, or ${f'seatrial_{option}'.upper()}"
    there = next(one for one in (path, *path.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        return problem(what, f"{path} cannot be written to: {error.strerror or error}", fix)
    found = f"{path}, {free / (1 << 30):,.1f} GiB free"
    if free < TOO_LITTLE_BYTES:
        return problem(what, found, fix)
    return warning(what, found, fix) if free < LITTLE_BYTES else ok(what, found)


async def _python() -> Diagnostic:
    what = "python of the machine"
    found = shutil.which("python3", path=machine_path())
    if found is None:
        fix = "install one, or give each runtime `python:`, `interpreter:` or `image:`"
        return warning(what, "no python3 on the PATH: jobs without a runtime have none", fix)
    code, out = await ask(found, "-I", "-c", "import platform; print(platform.python_version())")
    if code != 0:
        return warning(what, f"{found} does not start: {out}", "fix it, or put another on the PATH")
    return ok(what, f"{out}, {found}")


async def _uv() -> Diagnostic:
    what = "uv, for runtimes with `python:`"
    try:
        code, out = await ask(uv_path(), "--version")
    except TargetError as error:
        return warning(what, str(error), "pip install uv")
    return ok(what, out) if code == 0 else warning(what, out, "pip install --upgrade uv")


async def _memory_limit() -> Diagnostic:
    what = "memory limit of jobs"
    instead = "a watch on their processes holds jobs to their memory instead, and sees a peak only when it looks"
    command = "systemd-run --user --scope -p Delegate=yes seatrial run …"
    fix = f"run as root, or with a control group of your own: `{command}`"
    with tempfile.TemporaryDirectory(prefix="seatrial-doctor-") as folder:
        scratch = Path(folder)
        try:
            agent = await asyncio.to_thread(agent_file, scratch)
        except OSError as error:
            return problem(what, f"the agent cannot be written: {error}", "free room for temporary files")
        code, out = await ask(sys.executable, "-I", "-c", _TRY_LIMIT, str(agent), str(scratch / "doctor"))
    if code != 0:
        return problem(what, f"the agent does not start with {sys.executable}: {out}", "install it anew")
    if out.startswith("limited"):
        return ok(what, "by the kernel (control group)")
    return warning(what, f"no control group may be made here: {instead}", fix)


async def _engine(preferred: str | None) -> Diagnostic:
    what = "containers, for runtimes with `image:`"
    fix = "install podman or docker, and let this user use it; runtimes without an image need neither"
    try:
        async with asyncio.timeout(CONTAINER_S):
            engine = await working_engine(preferred)
            fix = f"make `{Path(engine).name} run` work for this user; runtimes without an image need no containers"
            await start_container(engine)
            return ok(what, f"{engine} starts one")
    except TargetError as error:
        return warning(what, str(error), fix)
    except OSError as error:
        return warning(what, f"none could be tried: {error}", "free room for temporary files")
    except TimeoutError:
        return warning(what, f"it does not start one within {CONTAINER_S:g} s", fix)


async def _gpus() -> Diagnostic:
    what = "GPUs"
    program = shutil.which("nvidia-smi")
    if program is None:
        return ok(what, "none (there is no nvidia-smi)")
    code, out = await ask(program, *_GPU_QUERY)
    if code != 0:
        fix = "is the driver loaded? `nvidia-smi` must list the GPUs before a job can use one"
        return warning(what, f"{program} fails: {out}", fix)
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    return ok(what, f"{len(lines)}: {'; '.join(lines)[:_MESSAGE_CHARACTERS]}" if lines else "none")
