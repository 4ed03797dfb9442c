"""Drives one notebook through its passes: `python AGENT notebook SPEC`. Every cell of every pass gets a note.

SPEC is the path of a JSON file (see `steps/kinds.py`, which writes it). This is run by the runtime's Python when that
has nbclient, else by the fallback in the SPEC; the kernel is the runtime's own in both cases.
"""

import asyncio
import copy
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from ..masking.mask import Mask
from . import document, usage
from .document import Broken

_ORDER = ("fresh", "rerun", "restart")


class NotebookNotes:
    """JSON lines to the runner, masked before they are cut."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        number = os.environ.pop("SEATRIAL_NOTES_FD", None)
        self._fd = int(number) if number else None

    def __call__(self, kind: str, **fields: Any) -> None:
        note = self._mask.data(dict(fields, note=kind))
        for field, limit in (("source", 200), ("error", 2000), ("message", 2000)):
            if len(note.get(field) or "") > limit:
                note[field] = note[field][:limit] + "…"
        if len(note.get("traceback") or "") > 16000:
            note["traceback"] = note["traceback"][:4000] + "\n…\n" + note["traceback"][-12000:]
        line = json.dumps(note).encode("utf-8") + b"\n"
        while self._fd is not None and line:
            line = line[os.write(self._fd, line) :]


OLDEST_JUPYTER_CLIENT = 7  # it brought what starts and watches kernels now


class NotebookSpec:
    """What to do, as `steps/kinds.py` wrote it."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.path: str = data["path"]
        asked = data.get("passes") or ["fresh"]
        last = max(_ORDER.index(name) for name in asked)
        # A pass builds on those before it: what was not asked for but is needed is run, and said to be implied.
        self.passes = [name for name in _ORDER if name in asked or (name == "fresh" and last > 0)]
        self.asked = asked
        self.timeout_s: Optional[float] = data.get("timeout_s")
        self.cell_timeout_s: Optional[float] = data.get("cell_timeout_s")
        self.stall_s: Optional[float] = data.get("stall_s")
        self.keep_going: bool = bool(data.get("keep_going"))
        self.parameters: Dict[str, Any] = data.get("parameters") or {}
        self.requires: Dict[str, List[str]] = data.get("requires") or {}
        self.python: Optional[str] = data.get("python")
        self.driver: Optional[str] = data.get("driver")
        self.files: str = os.path.abspath(data["files"])
        self.secrets: List[str] = data.get("secrets") or []
        self.oom_file: Optional[str] = data.get("oom_file")


def main(arguments: List[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        spec = NotebookSpec(json.load(file))
    if not _can_drive() and spec.driver and os.path.abspath(spec.driver) != os.path.abspath(sys.executable):
        os.execv(spec.driver, [spec.driver, sys.argv[0], "notebook", arguments[0]])
    mask = Mask(spec.secrets)
    notes = NotebookNotes(mask)
    unmet = missing(spec.requires)
    if unmet:
        return _all(notes, spec, "skipped", "", "skipped: " + unmet)
    try:
        if not _can_drive():
            raise Broken(
                "the runtime has no nbclient (with jupyter_client 7 or later), and there is no other Python here that "
                "has: add nbclient to it"
            )
        notebook = document.read_notebook(spec.path)
        document.execution(notebook)
        document.inject(notebook, spec.parameters)
        return asyncio.run(_drive(spec, notebook, notes, mask))
    except Broken as broken:
        return _all(notes, spec, "failed", "broken", str(broken))
    except KeyboardInterrupt:
        return 130


def _can_drive() -> bool:
    """Whether this Python has an nbclient, and a jupyter_client that is new enough to start kernels as we do."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("nbclient", "nbformat", "jupyter_client")):
        return False
    import jupyter_client

    return int(getattr(jupyter_client, "__version__", "0").split(".")[0]) >= OLDEST_JUPYTER_CLIENT


def _all(notes: NotebookNotes, spec: NotebookSpec, state: str, class_: str, message: str) -> int:
    for name in spec.asked:
        notes("pass", **{"pass": name})
        notes("passed-over", **{"pass": name, "state": state, "class": class_, "message": message, "seconds": 0.0})
    sys.stdout.write(message + "\n")
    return 1 if state == "failed" else 0


def missing(requires: Dict[str, List[str]]) -> str:
    """Why the notebook cannot be meant for this place; empty when nothing is missing."""
    lacks = [
        "there is no %s" % path for path in requires.get("paths", []) if not os.path.exists(os.path.expanduser(path))
    ]
    lacks += ["the variable %s is not set" % name for name in requires.get("variables", []) if not os.environ.get(name)]
    lacks += ["there is no command %s" % name for name in requires.get("commands", []) if shutil.which(name) is None]
    return "; ".join(lacks)


async def _drive(spec: NotebookSpec, notebook: Dict[str, Any], notes: NotebookNotes, mask: Mask) -> int:
    """All passes. Ended from outside, it still ends the kernel and keeps what there is of the pass."""
    from .kernel import Kernel, choose_kernel

    argv, env, remark = choose_kernel(notebook, spec.python)
    if remark:
        notes("kernel", message=remark)
    os.chdir(os.path.dirname(os.path.abspath(spec.path)))  # as in Jupyter: a notebook runs in its own folder
    kernel = Kernel(argv, env)
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    bad = 0
    try:
        for name in spec.passes:
            bad += not await _one(spec, name, kernel, copy.deepcopy(notebook), notes, mask)
    except asyncio.CancelledError:
        bad = 143
        await kernel.end(now=True)
    finally:
        await kernel.end(now=bool(bad))
        kernel.clean()
    return min(bad, 1) if bad != 143 else 143


async def _one(
    spec: NotebookSpec, name: str, kernel: Any, notebook: Dict[str, Any], notes: NotebookNotes, mask: Mask
) -> bool:
    """One pass in the kernel that belongs to it: the one that is there for `rerun` while it lives, else a new one."""
    from .kernel import Dead

    remark = ""
    if name == "rerun" and not await kernel.alive():
        remark = "in a new kernel, because the one before was gone"
    again = name == "rerun" and not remark
    if not again:
        await kernel.end()
    notes("pass", **{"pass": name})
    sys.stdout.write("== %s %s\n" % (spec.path, name))
    sys.stdout.flush()
    before_s = time.monotonic()
    kept = document.kept_path(spec.files, spec.path, name)
    oom_before = usage.oom_kills(spec.oom_file)
    verdict: Dict[str, Any]
    try:
        if not again:
            await kernel.launch()
        from .passes import NotebookPass  # imports nbclient, while a new kernel starts

        if not again:
            await kernel.ready()
        run = NotebookPass(spec, name, kernel, notebook, notes)
        try:
            verdict = await run.run()
        except (asyncio.CancelledError, Dead):
            raise
        except Exception as error:  # noqa: BLE001 - of nbclient, for a message that it does not understand
            message = "the notebook could not be driven on: %s: %s" % (type(error).__name__, error)
            verdict = {"state": "failed", "class": "error", "message": message}
            await kernel.end(now=True)
        finally:
            trouble = document.keep_notebook(run.notebook, kept, mask)
    except Dead as dead:
        trouble = None
        memory = usage.oom_kills(spec.oom_file) > oom_before
        verdict = {"state": "failed", "class": "memory" if memory else "dead", "message": str(dead)}
        await kernel.end(now=True)
    if trouble:
        verdict["message"] = "; ".join(filter(None, [verdict["message"], trouble]))
        verdict["kept"] = False
    if remark:
        verdict["message"] = "; ".join(filter(None, [verdict["message"], remark]))
    seconds = round(time.monotonic() - before_s, 4)
    implied = {} if name in spec.asked else {"implied": True}
    notes("passed-over", **dict(verdict, **implied, seconds=seconds, **{"pass": name}))
    return bool(verdict["state"] != "failed")
