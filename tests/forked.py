"""Run `seatrial` in a process forked from one that has already imported it.

Importing takes two thirds of the CPU time of a short run, and the tests start hundreds of them. The process is still a
real one, with its own working directory, environment, output, signals and exit status.
"""

import gc
import importlib
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import connection
from pathlib import Path
from unittest import mock

TESTS = str(Path(__file__).parent)
SERVER = "SEATRIAL_TEST_FORK_SERVER"

_starting = threading.Lock()


def run_forked(
    args: tuple[str, ...], folder: Path, env: dict[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    """`seatrial ARGS` in `folder` with exactly the environment `env`; what `subprocess.run` returns for it."""
    with tempfile.TemporaryDirectory() as outputs:
        out, err = Path(outputs, "out"), Path(outputs, "err")
        process = start_forked(args, folder, env, out, err)
        code = exit_code(process, limit_s)
        if code is None:
            process.kill()
            exit_code(process, limit_s)
            raise subprocess.TimeoutExpired(args, limit_s, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(args, code, out.read_text(), err.read_text())


def exit_code(process: multiprocessing.process.BaseProcess, within_s: float) -> int | None:
    """None if it still runs after this time. Threads must use this instead of `join` and `exitcode`: starting a process
    also looks at all others, and of two threads that read the status of one process the second gets 255."""
    connection.wait([process.sentinel], within_s)
    with _starting:
        return process.exitcode


def start_forked(
    args: tuple[str, ...], folder: Path, env: dict[str, str], out: Path, err: Path
) -> multiprocessing.process.BaseProcess:
    """Like `run_forked`, without waiting for the end. `out` and `err` get its output."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forked"])
    process = context.Process(target=_run, args=(args, folder, env, out, err))
    # The server starts with the first process, and keeps this environment.
    path = os.pathsep.join([TESTS, *filter(None, [os.environ.get("PYTHONPATH")])])
    with _starting, mock.patch.dict(os.environ, {"PYTHONPATH": path, SERVER: "1"}):
        process.start()
    return process


def _run(args: tuple[str, ...], folder: Path, env: dict[str, str], out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["seatrial", *args]
    sys.path.remove(TESTS)
    from seatrial.__main__ import main

    main()


def _import_everything() -> None:
    import seatrial

    for module in pkgutil.walk_packages(seatrial.__path__, "seatrial."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


if os.environ.get(SERVER):
    _import_everything()
