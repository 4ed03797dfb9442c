"""One pass of a notebook: cell after cell, each watched for its reply, its output, its time and the kernel's life.

Imports nbclient, so it is imported while the kernel starts.
"""

import asyncio
import json
import logging
import re
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import from_dict

from ..steps.probe import memory_limit
from . import usage
from .document import INJECTED_TAG, RAISES_TAG, SKIP_TAGS, plain, tags
from .kernel import evaluated
from .setup import SETUP, TAKE

node: Callable[[Any], Any] = from_dict
logging.getLogger("traitlets").setLevel(logging.CRITICAL)  # what it would say is in the findings

WATCH_S = 0.1  # how often the kernel's life and the clocks are looked at
SAMPLE_S = 0.2
GPU_SAMPLE_S = 2.0
INTERRUPT_S = 5.0  # how long a kernel has to heed an interrupt
KEPT_STREAM_CHARS = 4 << 20  # of one cell's printed text
OUTPUT_CHARS = 2000  # of a failed cell's printed text, to be reported with its failure
_GPU_MEMORY = re.compile(r"(CUDA|HIP|XLA|GPU|device|ROCm|CUBLAS|cuDNN)[^\n]*out of memory|RESOURCE_EXHAUSTED", re.I)


class Client(NotebookClient):
    """nbclient, asked also for failed shell commands and telling when a cell last said something."""

    def __init__(self, notebook: Any, kernel: Any) -> None:
        super().__init__(notebook, km=kernel.km, record_timing=True)
        self.kc = kernel.kc
        self.reported_s = time.monotonic()
        self.printed_chars = 0
        self.omitted_chars = 0

    def process_message(self, msg: Dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            text = msg["content"].get("text", "")
            self.reported_s = time.monotonic()
            sys.stdout.write(text)
            sys.stdout.flush()
            self.printed_chars += len(text)
            if self.printed_chars > KEPT_STREAM_CHARS:
                self.omitted_chars += len(text)
                return None
        elif msg["msg_type"] != "status":
            self.reported_s = time.monotonic()
        return super().process_message(msg, cell, cell_index)


class Pass:
    def __init__(self, spec: Any, name: str, kernel: Any, notebook: Dict[str, Any], notes: Any) -> None:
        self.spec, self.name, self.kernel, self.notes = spec, name, kernel, notes
        self.notebook = node(notebook)
        self.client = Client(self.notebook, kernel)
        self.usage = usage.Usage(kernel.pid)
        self.deadline_s: Optional[float] = None
        self.started_s = 0.0  # of the cell that runs

    async def run(self) -> Dict[str, Any]:
        """Cell by cell until one fails; the rest is reported as not run."""
        if self.spec.timeout_s is not None:
            self.deadline_s = time.monotonic() + self.spec.timeout_s
        await self.kernel.ask(SETUP)
        failed: Optional[Dict[str, Any]] = None
        ran = 0
        number = 0
        for index, cell in enumerate(self.notebook.cells):
            number += INJECTED_TAG not in tags(
                cell
            )  # as in the user's own file; what is injected has the number before
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            if failed is not None or any(tag in SKIP_TAGS for tag in tags(cell)):
                why = "not run: cell %d did not pass" % failed["cell"] if failed else "tagged `skip`"
                self._note(number, cell, {"state": "skipped", "class": "", "message": why})
                continue
            ran += 1
            outcome = await self._cell(number, index, cell)
            if outcome["state"] == "failed":
                failed = dict(outcome, cell=number)
        self.client.set_widgets_metadata()
        if failed is None:
            return {"state": "passed", "class": "", "message": "", "cells": ran}
        message = "cell %d: %s" % (failed["cell"], failed["message"] or failed["error"])
        return {"state": "failed", "class": failed["class"], "message": message, "cells": ran, "cell": failed["cell"]}

    def _note(self, number: int, cell: Any, outcome: Dict[str, Any]) -> None:
        self.notes("cell", **dict(outcome, cell=number, source=cell.source, **{"pass": self.name}))

    async def _cell(self, number: int, index: int, cell: Any) -> Dict[str, Any]:
        oom_before = usage.oom_kills(self.spec.oom_file)
        self.client.printed_chars = self.client.omitted_chars = 0
        self.usage.begin()
        self.started_s = self.client.reported_s = time.monotonic()
        outcome = await self._execute(index, cell)
        seconds = time.monotonic() - self.started_s
        figures = self.usage.end()
        if (
            outcome["state"] == "failed"
            and outcome["class"] != "memory"
            and usage.oom_kills(self.spec.oom_file) > oom_before
        ):
            text = "out of memory: " + (outcome["message"] or outcome["error"])
            outcome["message"] = outcome["error"] = out_of_memory() if outcome["class"] == "dead" else text
            outcome["class"] = "memory"
        if self.client.omitted_chars:
            text = "\n[%d characters more were printed and are left out here]\n" % self.client.omitted_chars
            cell.outputs.append(node({"output_type": "stream", "name": "stderr", "text": text}))
        if outcome["state"] == "failed":
            outcome["output"] = printed(cell)
        self._note(number, cell, dict(outcome, seconds=round(seconds, 4), **figures))
        return outcome

    async def _execute(self, index: int, cell: Any) -> Dict[str, Any]:
        reply: Dict[str, Any] = {}
        self.client.on_cell_executed = lambda cell, cell_index, execute_reply: reply.update(execute_reply)
        task = asyncio.ensure_future(self.client.async_execute_cell(cell, index))
        ended = await self._watch(task)
        if ended is not None:
            return ended
        try:
            task.result()
        except CellExecutionError:
            pass  # the reply says it
        except DeadKernelError:
            return await self._dead()
        shell = json.loads(evaluated(reply) or "[]")
        if reply["content"]["status"] != "ok":  # the kernel was not asked then
            shell = json.loads(await self.kernel.ask("", TAKE, 5.0) or "[]")
        return judge(cell, reply["content"], shell)

    async def _watch(self, task: "asyncio.Future[Any]") -> Optional[Dict[str, Any]]:
        """Wait for the cell. None when it ended by itself, else what ended it."""
        wait_s, sampled_s = 0.02, time.monotonic()
        gpu_s = sampled_s - GPU_SAMPLE_S + 0.5
        while True:
            done, _ = await asyncio.wait({task}, timeout=wait_s)
            if done:
                return None
            wait_s = WATCH_S
            if not await self.kernel.alive():
                await self._drop(task)
                return await self._dead()
            now_s = time.monotonic()
            if now_s - sampled_s >= SAMPLE_S:
                self.usage.sample()
                sampled_s = now_s
            if self.usage.has_gpu and now_s - gpu_s >= GPU_SAMPLE_S:
                await asyncio.get_running_loop().run_in_executor(None, self.usage.sample_gpu)
                gpu_s = time.monotonic()
            over = self._over(now_s)
            if over:
                return failed_as("timeout", "%s; %s" % (over, await self._stop(task)))

    def _over(self, now_s: float) -> str:
        if self.spec.cell_timeout_s is not None and now_s - self.started_s > self.spec.cell_timeout_s:
            return "over the cell's limit of %g s" % self.spec.cell_timeout_s
        if self.deadline_s is not None and now_s > self.deadline_s:
            return "over the pass's limit of %g s" % self.spec.timeout_s
        if self.spec.stall_s is not None and now_s - self.client.reported_s > self.spec.stall_s:
            return "stalled: no output for %g s" % self.spec.stall_s
        return ""

    async def _stop(self, task: "asyncio.Future[Any]") -> str:
        """Interrupt the kernel, wait, kill it; say which it took."""
        await self.kernel.interrupt()
        done, _ = await asyncio.wait({task}, timeout=INTERRUPT_S)
        if done:
            task.exception()
            return "an interrupt ended it"
        await self.kernel.end(now=True)
        await self._drop(task)
        return "it ignored the interrupt and was killed after %g s" % INTERRUPT_S

    async def _drop(self, task: "asyncio.Future[Any]") -> None:
        """Let go of a cell that will never answer; nbclient calls that a dead kernel, which is known already."""
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()

    async def _dead(self) -> Dict[str, Any]:
        code = await self.kernel.exit_code()
        limit = memory_limit()
        if code == -9 and limit is not None and self.usage.peak_bytes > 0.9 * limit:
            return failed_as("memory", out_of_memory())
        if code is not None and code < 0:
            return failed_as("dead", "the kernel died: killed by signal %d" % -code)
        return failed_as("dead", "the kernel died: it ended with exit code %s" % code)


def printed(cell: Any) -> str:
    """The end of what a cell printed: what a failed command complained of is there."""
    texts = [str(output.get("text", "")) for output in cell.outputs if output.get("output_type") == "stream"]
    return plain("".join(texts))[-OUTPUT_CHARS:]


def out_of_memory() -> str:
    """Said of a kernel that was killed for the memory that it used."""
    limit = memory_limit()
    return "out of memory: the kernel was killed" + (" at the limit of %d MiB" % (limit >> 20) if limit else "")


def failed_as(class_: str, message: str, error: str = "", traceback: str = "") -> Dict[str, Any]:
    return {"state": "failed", "class": class_, "message": message, "error": error or message, "traceback": traceback}


def judge(cell: Any, reply: Dict[str, Any], shell: List[Any]) -> Dict[str, Any]:
    """What the kernel's reply and the failed commands of a cell come to."""
    error, traceback = "", ""
    if reply["status"] == "error":
        error = plain("%s: %s" % (reply.get("ename"), reply.get("evalue")))
        traceback = plain("\n".join(reply.get("traceback") or []))
    elif reply["status"] != "ok":
        error = "the kernel did not run the cell: it answered %r" % reply["status"]
    commands = "; ".join("`%s` failed with exit code %d" % (command, code) for command, code in shell)
    if RAISES_TAG in tags(cell):
        if error or shell:
            return {"state": "passed", "class": "", "error": error or commands, "shell": shell, "message": ""}
        return failed_as("error", "it is tagged `%s` and raised nothing" % RAISES_TAG)
    if not error and not shell:
        return {"state": "passed", "class": "", "error": "", "message": ""}
    if not error:
        return dict(failed_as("shell", commands), shell=shell)
    message = error if not shell else "%s (before it, %s)" % (error, commands)
    return dict(failed_as(error_class(cell.source, reply, error), message, error, traceback), shell=shell)


def error_class(source: str, reply: Dict[str, Any], error: str) -> str:
    name = str(reply.get("ename") or "")
    if (
        name.endswith("MemoryError")
        or name in ("OutOfMemoryError", "ResourceExhaustedError")
        or _GPU_MEMORY.search(error)
    ):
        return "memory"
    if name == "CalledProcessError" and source.lstrip().startswith("%%"):
        return "shell"
    return "error"
