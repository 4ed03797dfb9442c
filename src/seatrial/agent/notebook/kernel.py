"""The kernel of a notebook: chooses one, starts it with the runtime's own Python, queries, interrupts and stops it."""

import asyncio
import contextlib
import functools
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..steps.probe import run_program
from .document import Broken

# Setup code that runs inside the kernel before the first notebook cell: it notes each failed shell command. IPython
# ignores a failed `!command`. The wrappers below change neither the output nor the result of a command; they only note
# it with its exit code, to be read after each notebook cell. Variables (`{name}`, `$name`) are expanded in the caller's
# frame, so the expansion is done here, one frame below, and only once.
# It also notes exceptions of threads and asyncio tasks, which Python only prints, or does not even print.


# Evaluated by the kernel after each successful notebook cell: the commands that failed since the last time, and the
# exceptions in the background, as JSON.
TAKE = "__import__('IPython').get_ipython()._seatrial_take()"
# Run after the last notebook cell: ends what has almost ended, and finds tasks that failed without being awaited.
SETTLE = "__import__('IPython').get_ipython()._seatrial_settle()"

SETUP = """
def _seatrial_setup():
    import asyncio, functools, gc, json, logging, threading, time, traceback
    shell = get_ipython()
    if shell is None or hasattr(shell, "_seatrial_take"):
        return
    failed, raised, state, expand = [], [], threading.local(), shell.var_expand
    ours, hook = set(threading.enumerate()), threading.excepthook

    def note_error(where, error):
        if isinstance(error, Exception) and len(raised) < 20:  # not SystemExit, nor a cancelled task
            lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
            raised.append({"ename": type(error).__name__, "evalue": "%s (in %s)" % (error, where), "traceback": lines})

    def excepthook(args):
        hook(args)
        note_error("thread %s" % getattr(args.thread, "name", "?"), args.exc_value)
    threading.excepthook = excepthook
    note_task = functools.partial(note_error, "an asyncio task or callback")
    logging.getLogger("asyncio").addFilter(lambda one: one.exc_info and note_task(one.exc_info[1]) or True)

    def settle():
        until_s = time.monotonic() + 1
        for thread in set(threading.enumerate()) - ours:
            thread.daemon or thread.join(max(0, until_s - time.monotonic()))
        gc.collect()
        for task in gc.get_objects():
            if issubclass(type(task), asyncio.Task) and task.done() and task._log_traceback:
                note_error("asyncio task %s, which was never awaited" % task.get_name(), task.exception())
    shell._seatrial_settle = settle

    def note(command, code):
        if isinstance(code, int) and code != 0 and len(failed) < 100:
            failed.append([str(command)[:1000], code])

    def var_expand(command, depth=0, *args, **kwargs):
        return command if getattr(state, "busy", False) else expand(command, depth + 1, *args, **kwargs)

    def watch(run, is_output):
        @functools.wraps(run)
        def watched(cmd, *args, **kwargs):
            if getattr(state, "busy", False):
                return run(cmd, *args, **kwargs)
            depth = kwargs.get("depth", args[1] if len(args) > 1 else 0) if is_output else 0
            expanded = expand(cmd, depth + 1)
            state.busy, state.code = True, None
            try:
                result = run(expanded, *args, **kwargs)
            finally:
                state.busy = False
            note(expanded, state.code if is_output else shell.user_ns.get("_exit_code"))
            return result
        return watched

    shell.var_expand = var_expand
    for name in ("system", "system_piped", "system_raw"):
        if hasattr(shell, name):
            setattr(shell, name, watch(getattr(shell, name), False))
    try:
        from IPython.utils import _process_common as common
        handler = common.process_handler
    except (ImportError, AttributeError):
        pass
    else:
        def process_handler(cmd, callback, *args, **kwargs):
            def called(process):
                result = callback(process)
                state.code = process.returncode
                return result
            return handler(cmd, called, *args, **kwargs)
        common.process_handler = process_handler
        shell.getoutput = watch(shell.getoutput, True)

    def take():
        taken = json.dumps([failed, raised])
        del failed[:], raised[:]
        return taken
    shell._seatrial_take = take

    def leave():
        import logging, os, sys
        logging.shutdown()
        for stream in (sys.__stdout__, sys.__stderr__):
            stream is None or stream.flush()
        os._exit(0)
    # What a notebook registers comes after this and so runs before it. Behind it are only the kernel's own threads,
    # which in ipykernel 7 sometimes wait for each other for good.
    __import__("atexit").register(leave)
_seatrial_setup()
del _seatrial_setup
"""

START_TIMEOUT_S = 120.0
ANSWER_S = 30.0  # for a request of ours; a kernel that has just replied is idle
SHUTDOWN_S = 1.5  # for a kernel's own clean-up, in which ipykernel 7 sometimes hangs
SOCKET_PATH_BYTES = 107  # longest path of a Unix socket
NATIVE_ARGV = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
# No history on disk: concurrent kernels would wait for its database.
QUIET_ARGV = ["--HistoryManager.hist_file=:memory:"]
_NO_IPYKERNEL = "kernel not found: the runtime's Python (%s) has no ipykernel; add it to the runtime"


class Dead(Exception):
    """The kernel exited or did not start."""


def choose_kernel(notebook: Dict[str, Any], python: Optional[str]) -> Tuple[List[str], Dict[str, str], str]:
    """Returns the command and variables of the notebook's kernel, and a remark if it is not the one it names."""
    spec = notebook["metadata"].get("kernelspec")
    spec = spec if isinstance(spec, dict) else {}
    info = notebook["metadata"].get("language_info") or {}
    name = spec.get("name") or "python3"
    language = str(spec.get("language") or info.get("name") or "").lower()
    if language and language not in ("python", "ipython"):
        raise Broken(
            "unsupported kernel: the notebook is for %s (kernel %r); only Python is supported" % (language, name)
        )
    interpreter = python or sys.executable
    # A symlink in another environment is a different interpreter.
    own = os.path.abspath(interpreter) == os.path.abspath(sys.executable)
    found = _installed(name, own, interpreter)
    if found and found.get("language", "python").lower() != "python":
        raise Broken("unsupported kernel: %r is for %s; only Python is supported" % (name, found["language"]))
    remark = ""
    if not found and not name.startswith("python"):
        if not language:
            text = "kernel not found: %r is not installed in the runtime, and the notebook does not name its language"
            raise Broken(text % name)
        remark = "kernel %r is not installed in the runtime; used its Python kernel instead" % name
    found = found or _installed("python3", own, interpreter)
    if found:
        program, *arguments = found["argv"]
        # A plain `python` means the environment's own.
        program = interpreter if program in ("python", "python3") else program
        return [program, *arguments], dict(found.get("env") or {}), remark
    if own and importlib.util.find_spec("ipykernel_launcher") is None:
        raise Broken(_NO_IPYKERNEL % interpreter)
    return [interpreter, *NATIVE_ARGV], {}, remark


def _installed(name: str, own: bool, python: str) -> Optional[Dict[str, Any]]:
    """Returns the runtime's kernelspec `name`, as its own Jupyter would find it."""
    if own:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        try:
            spec = KernelSpecManager().get_kernel_spec(name)
        except (NoSuchKernel, ValueError):
            return None
        return {"argv": spec.argv, "env": spec.env, "language": spec.language or "python"}
    prefix = os.path.dirname(os.path.dirname(python))
    path = os.path.join(prefix, "share", "jupyter", "kernels", name, "kernel.json")
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("argv"), list) and found["argv"] else None


def _socket_folder() -> str:
    """Creates a folder with a path that is short enough for sockets; a relative one if the full path is too long.

    It is in the job's temporary folder, so that it is deleted with the job even if this process is killed.
    """
    folder = tempfile.mkdtemp(prefix="k")
    for name in (folder, os.path.relpath(folder)):
        if len(os.fsencode(os.path.join(name, "0000-ipc-00000"))) <= SOCKET_PATH_BYTES:
            return name
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="k", dir="/tmp")


class Kernel:
    """Runs one kernel process after another in the current folder, with sockets in a separate folder."""

    def __init__(self, argv: List[str], env: Dict[str, str]) -> None:
        self.argv, self.env = argv, env
        self.km: Any = None
        self.kc: Any = None
        self._folder = _socket_folder()
        self._count = 0

    async def launch(self) -> None:
        """Starts the process; `ready` waits until it answers."""
        from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager

        spec = KernelSpec(argv=self.argv + QUIET_ARGV, env=self.env, language="python", display_name="Python")

        class OneSpec(KernelSpecManager):
            def get_kernel_spec(self, kernel_name: str) -> Any:
                return spec

        self._count += 1
        connection = os.path.join(self._folder, "%d.json" % self._count)
        self.km = AsyncKernelManager(
            kernel_name="python3", kernel_spec_manager=OneSpec(), transport="ipc", connection_file=connection
        )
        environment = dict(os.environ, PYDEVD_DISABLE_FILE_VALIDATION="1")
        try:
            await self.km.start_kernel(cwd=os.getcwd(), env=environment)
        except OSError as error:
            raise Broken("cannot start the kernel: %s: %s" % (self.argv[0], error)) from None
        with contextlib.suppress(OSError), open("/proc/%d/oom_score_adj" % self.pid, "w") as file:
            file.write("500")  # if memory runs out, kill the kernel, not the process that reports it

    async def ready(self) -> None:
        self.kc = self.km.client()
        self.kc.start_channels()
        waiting = asyncio.ensure_future(self.kc.wait_for_ready(timeout=START_TIMEOUT_S))
        while not (await asyncio.wait({waiting}, timeout=0.2))[0] and await self.alive():
            pass
        if not waiting.done() or waiting.exception() is not None:
            waiting.cancel()
            code = await self.exit_code()
            # The usual reason is that the Python has no ipykernel.
            if code is not None and self.argv[1:3] == NATIVE_ARGV[:2]:
                seek = "import sys; from importlib.util import find_spec as f; sys.exit(3 * (f('%s') is None))"
                if run_program([self.argv[0], "-c", seek % NATIVE_ARGV[1]], 60.0)[0] == 3:
                    raise Broken(_NO_IPYKERNEL % self.argv[0])
            how = "no response within %g s" % START_TIMEOUT_S if code is None else "exited with code %d" % code
            raise Dead("the kernel did not start: %s; to see why, run %s" % (how, " ".join(self.argv[:3])))
        self.kc.allow_stdin = False
        self.kc.shell_channel.send = sending(self.kc.shell_channel)
        self.kc.execute = functools.partial(self.kc.execute, user_expressions={"seatrial": TAKE})

    @property
    def pid(self) -> int:
        return int(self.km.provisioner.pid)

    async def alive(self) -> bool:
        return self.km is not None and bool(await self.km.is_alive())

    async def exit_code(self) -> Optional[int]:
        provisioner = self.km.provisioner
        code = await provisioner.poll() if provisioner is not None and provisioner.has_process else None
        return None if code is None else int(code)

    async def ask(self, code: str, expression: str = "") -> Optional[str]:
        """Runs `code` silently and returns the value of `expression`, if any."""
        message = self.kc.execute(
            code, silent=True, store_history=False, user_expressions={"seatrial": expression} if expression else None
        )
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s and await self.alive():
            try:
                reply = await self.kc.shell_channel.get_msg(timeout=1.0)
            except Exception as error:
                if type(error).__name__ != "Empty":
                    raise
                continue
            if reply["parent_header"].get("msg_id") == message:
                return evaluated(reply)
        return None

    async def end(self, now: bool = False) -> None:
        """Stops the process: politely, so that it can clean up, or immediately."""
        if self.km is None:
            return
        km, kc, self.km, self.kc = self.km, self.kc, None, None
        try:
            if km.has_kernel:
                if not now:
                    await km.request_shutdown()
                    for _ in range(int(SHUTDOWN_S / 0.02)):  # a kernel exits within 0.1 s
                        if not await km.is_alive():
                            break
                        await asyncio.sleep(0.02)
                await km.shutdown_kernel(now=True)
        finally:
            if kc is not None:
                kc.stop_channels()
            await km.cleanup_resources() if hasattr(km, "cleanup_resources") else None

    def clean(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def sending(channel: Any) -> Callable[[Dict[str, Any]], None]:
    """Returns a `send` that is safe while the next message of `channel` is awaited, as nbclient does for widgets.

    jupyter_client sends on the plain socket below the asyncio one. libzmq signals a new message once, to the next user
    of the socket: if a reply arrives at that moment, the send consumes the signal, and the asyncio socket waits
    forever. Its own `send_multipart` checks for messages that have arrived.
    """

    def send(message: Dict[str, Any]) -> None:
        frames = [*channel.session.serialize(message), *(message.get("buffers") or [])]
        sent = channel.socket.send_multipart(frames)
        if sent.done():  # otherwise it stays in the socket's own queue, in order
            sent.result()

    return send


def evaluated(reply: Dict[str, Any]) -> Optional[str]:
    """Returns the value of our expression in a reply, if the kernel evaluated it."""
    import ast

    answer = (reply.get("content", {}).get("user_expressions") or {}).get("seatrial") or {}
    text = (answer.get("data") or {}).get("text/plain")
    try:
        value = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, str) else None
