"""What a cell came to: the kernel's reply, the errors that it showed and the commands that failed, as one outcome."""

import re
from typing import Any, Dict, List, Optional

from ..steps.probe import memory_limit
from .document import RAISES_TAG, tags, without_colors

CellOutcome = Dict[str, Any]
OUTPUT_CHARS = 2000  # of a failed cell's printed text, to be reported with its failure
_GPU_MEMORY = re.compile(r"(CUDA|HIP|XLA|GPU|device|ROCm|CUBLAS|cuDNN)[^\n]*out of memory|RESOURCE_EXHAUSTED", re.I)


def failed_as(class_: str, message: str, error: str = "", traceback: str = "") -> CellOutcome:
    return {"state": "failed", "class": class_, "message": message, "error": error or message, "traceback": traceback}


def cell_passed(error: str = "", shell: Optional[List[Any]] = None) -> CellOutcome:
    return {"state": "passed", "class": "", "message": "", "error": error, "shell": shell or []}


def judge_cell(
    cell: Any, reply: Dict[str, Any], shown: List[Dict[str, Any]], shell: List[Any], allowed: bool
) -> CellOutcome:
    """The outcome of a cell that the kernel has replied to.

    An error that was shown counts even where the reply says `ok`: `%run`, `%%capture`, widgets and figures that cannot
    be drawn show what was raised and swallow it. `allowed`: the notebook says that its cells may raise.
    """
    if exits(reply):
        return failed_as("dead", "it ended the kernel with exit(): no cell can run after it")
    raised = _raised(reply, shown)
    error, traceback = "", ""
    if raised is not None:
        error = without_colors("%s: %s" % (raised.get("ename"), raised.get("evalue")))
        traceback = without_colors("\n".join(raised.get("traceback") or []))
    elif reply["status"] != "ok":
        error = "the kernel did not run the cell: it answered %r" % reply["status"]
    commands = "; ".join("`%s` failed with exit code %d" % (command, code) for command, code in shell)
    if not error and not shell:
        return failed_as("error", _RAISED_NOTHING) if RAISES_TAG in tags(cell) else cell_passed()
    if RAISES_TAG in tags(cell):
        return cell_passed(error or commands, shell)
    if allowed:
        return dict(cell_passed(error or commands, shell), allowed=True)
    if not error:
        return dict(failed_as("shell", commands), shell=shell)
    message = error if not shell else "%s (before it, %s)" % (error, commands)
    return dict(failed_as(error_class(cell.source, raised or {}, error), message, error, traceback), shell=shell)


_RAISED_NOTHING = "it is tagged `%s` and raised nothing" % RAISES_TAG


def _raised(reply: Dict[str, Any], shown: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """The error of the reply, else the first that was shown. A reply may be an error without one: IPython says
    `NoneType: None` of an object that failed while it was displayed."""
    if reply["status"] == "error" and (reply.get("ename") not in (None, "NoneType") or not shown):
        return reply
    return shown[0] if shown else None


def exits(reply: Dict[str, Any]) -> bool:
    """Whether the cell called `exit()` or `quit()`, after which the kernel ends by itself, a moment later."""
    asked = (one for one in reply.get("payload") or [] if one.get("source") == "ask_exit")
    return any(not one.get("keepkernel") for one in asked)


def error_class(source: str, raised: Dict[str, Any], error: str) -> str:
    name = str(raised.get("ename") or "")
    if (
        name.endswith("MemoryError")
        or name in ("OutOfMemoryError", "ResourceExhaustedError")
        or _GPU_MEMORY.search(error)
    ):
        return "memory"
    if name == "CalledProcessError" and source.lstrip().startswith("%%"):
        return "shell"
    return "error"


def with_kills(outcome: CellOutcome, kills: int) -> CellOutcome:
    """The outcome of a cell during which the system killed so many processes for the memory that they used."""
    if not kills or outcome["class"] == "memory":
        return outcome
    if outcome["state"] == "passed":
        processes = "a process" if kills == 1 else "%d processes" % kills
        return failed_as(
            "memory",
            "%s of this cell %s killed for memory, and the cell ended as if nothing were wrong"
            % (processes, "was" if kills == 1 else "were"),
        )
    text = (
        memory_message() if outcome["class"] == "dead" else "out of memory: " + (outcome["message"] or outcome["error"])
    )
    return dict(outcome, message=text, error=text, **{"class": "memory"})


def printed(cell: Any) -> str:
    """The end of what a cell printed: what a failed command complained of is there."""
    texts = [str(output.get("text", "")) for output in cell.outputs if output.get("output_type") == "stream"]
    return without_colors("".join(texts))[-OUTPUT_CHARS:]


def memory_message() -> str:
    """Said of a kernel that was killed for the memory that it used."""
    limit = memory_limit()
    return "out of memory: the kernel was killed" + (" at the limit of %d MiB" % (limit >> 20) if limit else "")
