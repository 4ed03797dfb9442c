"""The kinds of steps: the program that each starts, and the result of its exit. The runner runs them."""

import json
import os
import re
import shutil
import signal
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..masking.mask import MASK, Mask

if TYPE_CHECKING:
    from ..readers.log import Reading

Result = Dict[str, Any]
SHELL = ["/bin/sh", "-c"]


class Context(NamedTuple):
    """Environment of a job's steps."""

    work: str  # the working directory of every step
    files: str  # files that the job keeps
    env: Dict[str, str]  # the environment of every step
    python: Optional[str] = None  # the runtime's interpreter
    driver: Optional[str] = None  # an interpreter with nbclient, if the runtime has none
    agent: str = ""  # path of the agent: `python AGENT ...`
    secrets: Sequence[str] = ()  # values to mask
    oom_file: Optional[str] = None  # has a line `oom_kill N`
    begun_s: float = 0.0  # start of the job
    host: Optional[int] = None  # number of this host, if each runs its own agent; None: all hosts are here
    hosts: int = 1

    def interpreter(self) -> Optional[str]:
        """Returns the runtime's Python, else the one on PATH."""
        return self.python or self.which("python") or self.which("python3")

    def which(self, command: str) -> Optional[str]:
        """Returns the path at which a shell in the work folder would find `command`."""
        if os.sep in command:
            return shutil.which(os.path.join(self.work, command))
        folders = self.env.get("PATH", os.defpath).split(os.pathsep)
        return shutil.which(command, path=os.pathsep.join(os.path.join(self.work, folder) for folder in folders))


class Ended(NamedTuple):
    """How the program of a step ended, as the runner saw it."""

    outcome: str
    code: Optional[int] = None
    signal: Optional[int] = None
    output: str = ""
    notes: Sequence[Result] = ()
    oom_kills: int = 0

    def note(self, kind: str) -> Optional[Result]:
        """Returns the fields of the last note of that kind."""
        found = next((note for note in reversed(self.notes) if note.get("note") == kind), None)
        return found and {key: value for key, value in found.items() if key != "note"}

    def how(self) -> str:
        """Describes how it ended."""
        if self.outcome == "timeout":
            return "timed out"
        if self.oom_kills or self.outcome == "memory":
            return "ran out of memory"
        if self.signal:
            try:
                return "was killed by " + signal.Signals(self.signal).name
            except ValueError:
                return "was killed by signal %d" % self.signal
        return "exited with code %s" % self.code


class Prepared(NamedTuple):
    """The program to start (`argv`, with `env` added) and how its end becomes the result; without `argv`, just
    `result`."""

    argv: Optional[List[str]] = None
    env: Mapping[str, str] = {}
    result: Mapping[str, Any] = {}
    finish: Optional[Callable[[Ended], Result]] = None  # None: its result is `result`
    outcome: str = "exited"  # of a step without `argv`
    reading: "Optional[Reading]" = None  # receives the output while it is written, and may stop the program
    again: Optional[Callable[[List[Result]], Any]] = None  # returns the Prepared to restart, from its notes so far
    keep: str = ""  # file for the complete output
    memory: Sequence[int] = ()  # its files in memory, to be closed after its end


def prepare(step: Dict[str, Any], context: Context) -> Prepared:
    """Returns the program for `step`. Raises nothing for an invalid step: its program reports the error and fails."""
    kind = _KINDS.get(step.get("kind", ""))
    if kind is None:
        return _fails("unknown step kind %r; known: %s" % (step.get("kind"), ", ".join(sorted(_KINDS))))
    try:
        return kind(step.get("args") or {}, context)
    except KeyError as missing:
        return _fails("step %r needs the argument %s" % (step.get("name"), missing))
    except (TypeError, ValueError, AttributeError) as error:
        return _fails("invalid arguments for step %r: %s" % (step.get("name"), error))


def _fails(message: str) -> Prepared:
    return Prepared([*SHELL, 'echo "$1" >&2; exit 2', "sh", message], result={"error": message})


def _command(args: Result, context: Context) -> Prepared:
    """A command line. With `hosts` it runs once per host, with the host's number in its environment. With `keep`, its
    complete output is kept in that file of the job."""
    argv = [*SHELL, args["command"]]
    keep = os.path.join(context.files, args["keep"]) if args.get("keep") else ""
    if args.get("hosts") is None:
        return Prepared(argv, keep=keep, **follow(args, context))
    count = int(args["hosts"]) if context.host is None else context.hosts
    if count > 1 and context.host is None:
        argv = [sys.executable, "-I", "-S", "-c", source("hosts"), str(count), args["command"]]
    env = {"SEATRIAL_HOST": str(context.host or 0), "SEATRIAL_HOSTS": str(count)}
    return Prepared(argv, env=env, keep=keep, **follow(args, context))


def follow(args: Result, context: Context) -> Dict[str, Any]:
    """With `follow`, the output of a command is read while it runs, and can stop it."""
    if not args.get("follow"):
        return {}
    from ..readers.log import Reading

    reading = Reading(args["follow"], args.get("hosts") or 1, context.begun_s, context.host, Mask(context.secrets))
    return {"reading": reading, "finish": lambda ended: reading.result(time.monotonic())}


def _which(args: Result, context: Context) -> Prepared:
    path = context.which(args["command"])
    if path is None:
        return Prepared(result={"path": None, "version": None})
    argv = [sys.executable, "-I", "-S", "-c", source("probe"), "which", path]
    return Prepared(argv, finish=lambda ended: {"path": path, **(ended.note("which") or {"version": None})})


def _import(args: Result, context: Context) -> Prepared:
    module = args["module"]
    python = context.interpreter()
    if python is None:
        return Prepared(result=_crashed("cannot import %s: Python not found on PATH" % module))

    def finish(ended: Ended) -> Result:
        return ended.note("import") or _crashed("Python %s while importing %s" % (ended.how(), module), ended.output)

    return Prepared([python, "-c", source("probe"), "import", module], finish=finish)


def _crashed(error: str, traceback: str = "") -> Result:
    return {"state": "crashed", "version": None, "file": None, "error": error, "traceback": traceback}


_SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|SIGNATURE", re.I)
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def _facts(args: Result, context: Context) -> Prepared:
    env = {name: hide(name, value) for name, value in sorted(context.env.items())}

    def finish(ended: Ended) -> Result:
        facts = ended.note("facts") or {"error": "could not collect facts: Python %s" % ended.how()}
        found: Result = Mask(context.secrets).data(dict(facts, env=env))
        return found

    return Prepared([context.interpreter() or sys.executable, "-c", source("probe"), "facts"], finish=finish)


def hide(name: str, value: str) -> str:
    """Returns a variable for display: values of variables named like secrets, and passwords in URLs, are masked."""
    return MASK if _SECRET_NAME.search(name) and value else _URL_PASSWORD.sub(MASK, value)


# A shallow fetch of the ref; some servers refuse that for a commit, so then fetch everything.
_CLONE = """
set -e
git init -q .
git remote add origin "$1" 2>/dev/null || git remote set-url origin "$1"
git fetch -q --depth 1 origin "$2" || {
    git fetch -q --tags origin "+refs/heads/*:refs/remotes/origin/*"
    git rev-parse -q --verify "$2^{commit}" >/dev/null || { echo "ref not found: $2 in $1" >&2; exit 64; }
    git update-ref FETCH_HEAD "$2^{commit}" 2>/dev/null || git rev-parse "$2^{commit}" > .git/FETCH_HEAD
}
git -c advice.detachedHead=false checkout -q --force --detach FETCH_HEAD
if test -f .gitmodules; then git submodule -q update --init --recursive --depth 1; fi
git rev-parse HEAD
"""


def _workspace(args: Result, context: Context) -> Prepared:
    url, ref = args["git"], args.get("ref") or "HEAD"
    if url.startswith("-") or ref.startswith("-"):
        return _fails("the workspace's git address and ref must not start with a dash: %s %s" % (url, ref))

    def finish(ended: Ended) -> Result:
        if ended.outcome != "exited" or ended.code != 0:
            return {"commit": None, "unknown_ref": ended.code == 64}
        return {"commit": ended.output.split()[-1]}  # its last command prints it

    env = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true"}
    return Prepared(["/bin/sh", "-c", _CLONE, "workspace", url, ref], env=env, finish=finish)


def _memory_file(name: str, data: bytes = b"") -> Tuple[int, str]:
    """Returns a file in this process's memory, which is neither on disk nor in a command line, and its path."""
    memory = os.memfd_create(name)
    os.pwrite(memory, data, 0)
    return memory, "/proc/%d/fd/%d" % (os.getpid(), memory)


def _notebook(args: Result, context: Context) -> Prepared:
    python = context.interpreter() or context.driver
    if python is None:
        return _fails("cannot run %s: Python not found on PATH" % args["path"])
    spec = dict(args, python=python, driver=context.driver, files=context.files, secrets=context.secrets)
    memory, path = _memory_file("notebook", json.dumps(dict(spec, oom_file=context.oom_file)).encode())
    return Prepared([python, context.agent, "notebook", path], memory=[memory])


RESTARTS = 3  # of one of Seatrial's own programs


def _drive(args: Result, context: Context) -> Prepared:
    """Runs one of Seatrial's own programs. If it is killed, restarts it with the notes it has written."""
    python = context.interpreter()
    if python is None:
        return _fails("cannot start %s: Python not found on PATH" % args["kind"])
    kind = str(args["kind"])
    memory, path = _memory_file("drive")

    def prepared(notes: List[Result], restarts: int) -> Prepared:
        given = {"work": args.get("work") or {}, "files": context.files, "notes": notes, "job": args.get("job")}
        data = json.dumps(given).encode()
        os.ftruncate(memory, 0)
        os.pwrite(memory, data, 0)
        again = (lambda noted: prepared(noted, restarts - 1)) if restarts else None
        return Prepared([python, "-m", "seatrial.kinds.driver", kind, path], again=again, memory=[memory])

    return prepared([], RESTARTS)


def _read(args: Result, context: Context) -> Prepared:
    """Reads the job's files in a separate process, because a file may crash its reader. Results are reported one by one
    into this process's memory, so that none is lost then."""
    named = args.get("roots") or [".", "files"]
    roots = [{".": context.work, "files": context.files}.get(root, root) for root in named]
    labels = ["files/" if root == "files" else "" for root in named]
    request, request_path = _memory_file("request", json.dumps(dict(args, roots=roots, labels=labels)).encode())
    report, report_path = _memory_file("report")

    def finish(ended: Ended) -> Result:
        from ..readers.files import gather

        with os.fdopen(report, "rb") as lines:
            lines.seek(0)
            well = ended.outcome == "exited" and ended.code == 0
            return gather(lines, args.get("entries") or {}, well, ended.how())

    program = [sys.executable, "-I", "-S", context.agent or sys.argv[0], "files"]
    return Prepared([*program, request_path, report_path], finish=finish, memory=[request])


@lru_cache(maxsize=None)
def agent_path() -> str:
    """Returns the path of the agent (`python AGENT ...`). Call it before changing the working directory."""
    return os.path.abspath(sys.argv[0])


def source(module: str) -> str:
    """Returns the source of a module in this package, also from inside a zipapp."""
    path = os.path.join(os.path.dirname(__file__), module + ".py")
    data: bytes = __spec__.loader.get_data(path)  # type: ignore[union-attr]
    return data.decode("utf-8")


_KINDS: Dict[str, Callable[[Result, Context], Prepared]] = {
    "command": _command,
    "read": _read,
    "which": _which,
    "import": _import,
    "facts": _facts,
    "workspace": _workspace,
    "notebook": _notebook,
    "drive": _drive,
}
