"""Starts the program of a step inside the job's sandbox and collects its output and notes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Optional, Tuple

from ..contain.sandbox import Sandbox
from ..masking.mask import Mask
from ..steps.kinds import SHELL, Context, Prepared

if TYPE_CHECKING:
    from ..readers.log import Reading

# Captures a step's output, keeping its head and tail, and its notes.


_HEAD_BYTES = 16 << 10
_TAIL_BYTES = 48 << 10
_LINE_BYTES = 1 << 20  # of a note
_KEPT_BYTES = 64 << 20


class Output:
    """Collects masked bytes; `text` is always valid in JSON. `keep`: a file for all of them, which is deleted if they
    exceed its limit or the disk is full, because a reader must not mistake a part for the whole."""

    def __init__(self, mask: Mask, keep: str = "") -> None:
        self.stream = mask.stream()
        self._keep = keep
        self._file: Optional[BinaryIO] = None
        if keep:
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(keep), exist_ok=True)
                self._file = open(keep, "xb", buffering=0)  # noqa: SIM115 (it is open as long as the step runs)
        self._head = b""
        self._tail = b""
        self._seen_bytes = 0

    def take(self, data: bytes) -> None:
        self._seen_bytes += len(data)
        if self._file is not None:
            try:
                if self._seen_bytes > _KEPT_BYTES or self._file.write(data) != len(data):
                    raise OSError
            except OSError:
                self._file.close()
                self._file = None
                os.unlink(self._keep)
        room = _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    @property
    def omitted_bytes(self) -> int:
        return self._seen_bytes - len(self._head) - len(self._tail)

    def text(self) -> str:
        if not self.omitted_bytes:
            return (self._head + self._tail).decode("utf-8", "replace")
        between = "\n[%d bytes left out here]\n" % self.omitted_bytes
        return self._head.decode("utf-8", "replace") + between + self._tail.decode("utf-8", "replace")


class Notes:
    """Splits the notes pipe into JSON objects. Other lines, and lines that are too long, are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._too_long = False

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            try:
                note = None if self._too_long else json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                note = None
            self._too_long = False
            if isinstance(note, dict):
                found.append(note)
        if len(self._rest) > _LINE_BYTES:
            self._rest, self._too_long = b"", True
        return found


PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
_NOTES_FD = 3  # a single digit, because some shells support no more
DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


class Child:
    def __init__(self, mask: Mask, reading: Optional[Reading] = None, keep: str = "") -> None:
        self.pid = 0
        self.reading = reading
        self.status: Optional[int] = None  # wait status, once it has exited
        self.largest_bytes = 0
        self.output = Output(mask, keep)
        self.notes = Notes()
        self.kept_notes: List[Dict[str, Any]] = []

    def how(self) -> Tuple[Optional[int], Optional[int]]:
        """Returns (code, None), (None, signal), or (None, None) if unknown."""
        if self.status is None:
            return None, None
        if os.WIFSIGNALED(self.status):
            return None, os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status), None


def start(prepared: Prepared, context: Context, sandbox: Sandbox, mask: Mask) -> Tuple[Child, int, int]:
    """Starts the program. Returns the child and the pipes for its output and its notes. Raises OSError if resources run
    out."""
    child = Child(mask, prepared.reading, prepared.keep)
    output, child_output = os.pipe()
    notes, child_notes = os.pipe()
    with contextlib.suppress(OSError):  # the user's pipe memory is used up: the default size is only slower
        fcntl.fcntl(output, F_SETPIPE_SZ, PIPE_BYTES)
    argv, env = prepared.argv or [], dict(context.env, SEATRIAL_NOTES_FD=str(_NOTES_FD), **prepared.env)
    try:
        child.pid = _spawn(argv, env, context.work, sandbox, child_output, child_notes) or os.fork()
        if child.pid == 0:
            _become(argv, env, context.work, sandbox, child_output, child_notes)
    except BlockingIOError as error:
        text = (
            "cannot start a process: the process limit of this user or its control group is reached; raise `ulimit -u`"
        )
        raise OSError(error.errno, text) from None
    finally:
        os.close(child_output)
        os.close(child_notes)
    return child, output, notes


def _spawn(argv: List[str], env: Dict[str, str], work: str, sandbox: Sandbox, output: int, notes: int) -> Optional[int]:
    """Starts a shell command without forking this process, which is slower than the shell: the shell itself enters the
    sandbox. None if that is not possible."""
    entry = sandbox.entry_command()
    if entry is None or notes == _NOTES_FD or len(argv) != 3 or argv[:2] != SHELL:
        return None
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        (os.POSIX_SPAWN_DUP2, notes, _NOTES_FD),
    ]
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.makedirs(work, exist_ok=True)  # an earlier step may have deleted it
        os.chdir(work)
        # On the command's own first line, so that line numbers in the shell's messages stay correct.
        command = "%s || exit 126; %s" % (entry, argv[2]) if entry else argv[2]
        return os.posix_spawn(
            SHELL[0], [*SHELL, command], env, file_actions=actions, setsid=True, setsigdef=DEFAULT_SIGNALS
        )
    except (OSError, ValueError, NotImplementedError):  # not supported by this libc; fork reports other errors
        return None
    finally:
        os.fchdir(before)
        os.close(before)


def _become(argv: List[str], env: Dict[str, str], work: str, sandbox: Sandbox, output: int, notes: int) -> None:
    """Becomes the program, in the new process. Never returns."""
    code = 126
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(notes, _NOTES_FD)
        signal.set_wakeup_fd(-1)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        sandbox.enter()
        os.makedirs(work, exist_ok=True)  # an earlier step may have deleted it
        os.chdir(work)
        code = 127
        os.execvpe(argv[0], argv, env)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must end here, and say why
        os.write(2, ("cannot start: %s\n" % error).encode("utf-8", "replace"))
    finally:
        os._exit(code)
