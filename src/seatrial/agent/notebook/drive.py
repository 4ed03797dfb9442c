"""`python AGENT notebook SPEC`: runs the passes of one notebook, with a note for every notebook cell.

SPEC is the path of a JSON file, which `steps/kinds.py` writes. The runtime's Python runs this if it has nbclient, else
the fallback Python in SPEC; the kernel is the runtime's own in both cases.
"""

import asyncio
import copy
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ..contain.process import oom_kills
from ..masking.mask import Mask
from . import document
from .document import Broken

_ORDER = ("fresh", "rerun", "restart")


class NotebookNotes:
    """Sends JSON lines to the agent, masked before they are shortened."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        number = os.environ.pop("SEATRIAL_NOTES_FD", None)
        self._fd = int(number) if number else None

    def __call__(self, kind: str, **fields: Any) -> None:
        note = self.mask.data(dict(fields, note=kind))
        for field, limit in (("source", 200), ("error", 2000), ("message", 2000)):
            if len(note.get(field) or "") > limit:
                note[field] = note[field][:limit] + "…"
        if len(note.get("traceback") or "") > 16000:
            note["traceback"] = note["traceback"][:4000] + "\n…\n" + note["traceback"][-12000:]
        line = json.dumps(note).encode("utf-8") + b"\n"
        while self._fd is not None and line:
            line = line[os.write(self._fd, line) :]


OLDEST_JUPYTER_CLIENT = 7  # the first version with the kernel API used here


class NotebookSpec(NamedTuple):
    """The spec that `steps/kinds.py` wrote."""

    path: str
    files: str
    name: str = ""  # of the executed copies; empty: that of the notebook
    passes: Sequence[str] = ("fresh",)
    timeout_s: Optional[float] = None
    cell_timeout_s: Optional[float] = None
    stall_s: Optional[float] = None
    keep_going: bool = False
    background_errors: bool = True
    parameters: Mapping[str, Any] = {}
    requires: Mapping[str, List[str]] = {}
    python: Optional[str] = None
    driver: Optional[str] = None
    secrets: Sequence[str] = ()
    oom_file: Optional[str] = None


def main(arguments: List[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        given = json.load(file)
    spec = NotebookSpec(**{name: given[name] for name in NotebookSpec._fields if given.get(name) not in (None, [])})
    spec = spec._replace(files=os.path.abspath(spec.files))
    if not _can_drive() and spec.driver and os.path.abspath(spec.driver) != os.path.abspath(sys.executable):
        os.execv(spec.driver, [spec.driver, sys.argv[0], "notebook", arguments[0]])
    notes = NotebookNotes(Mask(spec.secrets))
    unmet = missing(spec.requires)
    if unmet:
        return _all(notes, spec, "skipped", "", "skipped: " + unmet)
    try:
        if not _can_drive():
            raise Broken(
                "nbclient (with jupyter_client 7 or later) not found in the runtime or another Python here; "
                "add nbclient to the runtime"
            )
        notebook = document.read_notebook(spec.path)
        document.execution(notebook)
        document.inject(notebook, spec.parameters)
        return asyncio.run(_drive(spec, notebook, notes))
    except Broken as broken:
        return _all(notes, spec, "failed", "broken", str(broken))
    except KeyboardInterrupt:
        return 130


def _can_drive() -> bool:
    """Whether this Python has nbclient, and a jupyter_client that is recent enough."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("nbclient", "nbformat", "jupyter_client")):
        return False
    import jupyter_client

    return int(getattr(jupyter_client, "__version__", "0").split(".")[0]) >= OLDEST_JUPYTER_CLIENT


def _all(notes: NotebookNotes, spec: NotebookSpec, state: str, class_: str, message: str) -> int:
    for name in spec.passes:
        notes("pass", **{"pass": name})
        notes("passed-over", **{"pass": name, "state": state, "class": class_, "message": message, "seconds": 0.0})
    sys.stdout.write(message + "\n")
    return 1 if state == "failed" else 0


def missing(requires: Mapping[str, List[str]]) -> str:
    """Reason to skip the notebook here; empty if all of its `requires` are met."""
    paths = [path for path in requires.get("paths", []) if not os.path.exists(os.path.expanduser(path))]
    lacks = ["path not found: %s" % path for path in paths]
    lacks += ["variable not set: %s" % name for name in requires.get("variables", []) if not os.environ.get(name)]
    lacks += ["command not found: %s" % name for name in requires.get("commands", []) if shutil.which(name) is None]
    return "; ".join(lacks)


async def _drive(spec: NotebookSpec, notebook: Dict[str, Any], notes: NotebookNotes) -> int:
    """Runs all passes. If cancelled, it still stops the kernel and keeps the notebook of the current pass."""
    from .kernel import Kernel, choose_kernel

    argv, env, other_kernel = choose_kernel(notebook, spec.python)
    os.chdir(os.path.dirname(os.path.abspath(spec.path)))  # as in Jupyter: a notebook runs in its own folder
    kernel = Kernel(argv, env)
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    bad = 0
    try:
        for name in _ORDER:
            # Other passes build on `fresh`, which is always run, and marked as implied if it was not requested.
            if name not in spec.passes and name != "fresh":
                continue
            bad += not await _one(spec, name, kernel, copy.deepcopy(notebook), notes, other_kernel)
    except asyncio.CancelledError:
        bad = 143
        await kernel.end(now=True)
    finally:
        await kernel.end(now=bool(bad))
        kernel.clean()
    return min(bad, 1) if bad != 143 else 143


async def _one(
    spec: NotebookSpec, name: str, kernel: Any, notebook: Dict[str, Any], notes: NotebookNotes, other_kernel: str
) -> bool:
    """Runs one pass: `rerun` in the existing kernel if it is alive, others in a new one. `other_kernel`: a remark, if
    it is not the one that the notebook names."""
    from .kernel import Dead

    again = name == "rerun" and await kernel.alive()
    if not again:
        await kernel.end()
    notes("pass", **{"pass": name})
    sys.stdout.write("== %s %s\n" % (spec.path, name))
    sys.stdout.flush()
    before_s = time.monotonic()
    kept = document.kept_path(spec.files, spec.name or spec.path, name)
    oom_before = oom_kills(spec.oom_file)
    verdict: Dict[str, Any]
    trouble = None
    try:
        if not again:
            await kernel.launch()
        from .cells import NotebookPass  # imports nbclient, while a new kernel starts

        if not again:
            await kernel.ready()
        run = NotebookPass(spec, name, kernel, notebook, notes)
        try:
            verdict = await run.run()
        except (asyncio.CancelledError, Dead):
            raise
        except Exception as error:  # noqa: BLE001 - of nbclient, for a message that it does not understand
            message = "the notebook runner failed: %s: %s" % (type(error).__name__, error)
            verdict = {"state": "failed", "class": "error", "message": message}
            await kernel.end(now=True)
        finally:
            trouble = document.keep_notebook(run.notebook, kept, notes.mask)
    except Dead as dead:
        memory = oom_kills(spec.oom_file) > oom_before
        verdict = {"state": "failed", "class": "memory" if memory else "dead", "message": str(dead)}
        await kernel.end(now=True)
    remark = "in a new kernel, because the previous one had exited" if name == "rerun" and not again else None
    verdict["message"] = "; ".join(filter(None, [verdict["message"], trouble, remark, other_kernel]))
    seconds = round(time.monotonic() - before_s, 4)
    implied = {} if name in spec.passes else {"implied": True}
    notes("passed-over", **dict(verdict, **implied, seconds=seconds, **{"pass": name}))
    return bool(verdict["state"] != "failed")
