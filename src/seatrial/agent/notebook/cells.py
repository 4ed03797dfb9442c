"""Runs one pass of a notebook, cell by cell: waits for the reply, output, limits and the kernel's exit at once.

Imports nbclient, which takes time, so it is imported while the kernel starts.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import from_dict

from ..contain.process import Stat, descendants, oom_kills, read_proc, stat
from ..steps.probe import memory_limit, nvidia_smi_scope, run_program
from .document import INJECTED_TAG, RAISES_TAG, SKIP_TAGS, execution, tags, without_colors
from .kernel import SETTLE, SETUP, TAKE, evaluated

# Turns a kernel's reply, shown errors and failed commands into one outcome per notebook cell.


CellOutcome = Dict[str, Any]
OUTPUT_CHARS = 2000  # of a failed notebook cell's output, for its note
_GPU_MEMORY = re.compile(r"(CUDA|HIP|XLA|GPU|device|ROCm|CUBLAS|cuDNN)[^\n]*out of memory|RESOURCE_EXHAUSTED", re.I)


# How Python prints an exception of a thread or task that nothing handles; for notebooks that replace our hooks.
_IN_BACKGROUND = re.compile(
    r"^(Exception in thread .*|(?:Task|Future) exception was never retrieved)\n(?:.*\n)?"
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\w[\w.]*)(?:: (.*))?$",
    re.MULTILINE,
)
_STDERR_CHARS = 256 << 10  # of a notebook cell, searched for it


def failed_as(class_: str, message: str, error: str = "", traceback: str = "") -> CellOutcome:
    return {"state": "failed", "class": class_, "message": message, "error": error or message, "traceback": traceback}


def cell_passed(error: str = "") -> CellOutcome:
    return {"state": "passed", "class": "", "message": "", "error": error}


def judge_cell(
    cell: Any, reply: Dict[str, Any], shown: List[Dict[str, Any]], shell: List[Any], allowed: bool
) -> CellOutcome:
    """Returns the outcome of a notebook cell that the kernel has replied to.

    A displayed error counts even if the reply is `ok`: `%run`, `%%capture`, widgets and values that cannot be displayed
    show an exception and swallow it. `allowed`: the notebook permits its cells to raise.
    """
    # After `exit()` or `quit()` the kernel exits a moment later.
    if any(one.get("source") == "ask_exit" and not one.get("keepkernel") for one in reply.get("payload") or []):
        return failed_as("dead", "exit() stopped the kernel; later notebook cells cannot run")
    # The reply's error, else the first displayed one. A reply may have no error of its own: for an object that could
    # not be displayed, IPython replies `NoneType: None`.
    raised = shown[0] if shown else None
    if reply["status"] == "error" and (reply.get("ename") not in (None, "NoneType") or not shown):
        raised = reply
    error, traceback = "", ""
    if raised is not None:
        error = without_colors("%s: %s" % (raised.get("ename"), raised.get("evalue")))
        traceback = without_colors("\n".join(raised.get("traceback") or []))
    elif reply["status"] != "ok":
        error = "the kernel did not run the notebook cell: status %r" % reply["status"]
    commands = "; ".join("`%s` failed with exit code %d" % (command, code) for command, code in shell)
    must_raise = RAISES_TAG in tags(cell)
    if not error and not shell:
        nothing = "tagged `%s` but raised nothing" % RAISES_TAG
        return failed_as("error", nothing) if must_raise else cell_passed()
    if must_raise:
        return cell_passed(error or commands)
    if allowed:
        return dict(cell_passed(error or commands), allowed=True)
    if not error:
        return failed_as("shell", commands)
    message = error if not shell else "%s (before that, %s)" % (error, commands)
    return failed_as(error_class(cell.source, raised or {}, error), message, error, traceback)


def error_class(source: str, raised: Dict[str, Any], error: str) -> str:
    name = str(raised.get("ename") or "")
    if name.endswith(("MemoryError", "ResourceExhaustedError")) or _GPU_MEMORY.search(error):
        return "memory"
    if name == "CalledProcessError" and source.lstrip().startswith("%%"):
        return "shell"
    return "error"


def with_kills(outcome: CellOutcome, kills: int) -> CellOutcome:
    """Returns the outcome, corrected if the kernel OOM-killed `kills` processes during the notebook cell."""
    if not kills or outcome["class"] == "memory":
        return outcome
    if outcome["state"] == "passed":
        killed = ("a process", "was") if kills == 1 else ("%d processes" % kills, "were")
        text = "%s of this notebook cell %s killed (out of memory), but the cell succeeded"
        return failed_as("memory", text % killed)
    text = "out of memory: " + (outcome["message"] or outcome["error"])
    if outcome["class"] == "dead":
        text = memory_message()
    return dict(outcome, message=text, error=text, **{"class": "memory"})


def memory_message() -> str:
    """Message for a Jupyter kernel that was killed because it ran out of memory."""
    limit = memory_limit()
    return "out of memory: the kernel was killed" + (" at the limit of %d MiB" % (limit >> 20) if limit else "")


# CPU time and peak memory of a kernel and its children during one notebook cell.


GPU_QUERY_S = 10.0


class Usage:
    """Measures one process tree: call `begin`, then `sample` repeatedly, then `end`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak_bytes = 0
        nvidia_smi, scope = shutil.which("nvidia-smi"), nvidia_smi_scope(os.environ)
        self.nvidia_smi = None if nvidia_smi is None or scope is None else [nvidia_smi, *scope]
        self._exact = False
        self._gpu_peak: Optional[int] = None
        self._gpu_source: Optional[str] = None
        self._before: Dict[int, Stat] = {}

    def begin(self) -> None:
        """Starts a window. Resets the process's own high-water mark if the system allows it."""
        try:
            with open("/proc/%d/clear_refs" % self.pid, "w") as control:
                control.write("5")
            self._exact = True
        except OSError:
            self._exact = False
        self.peak_bytes, self._gpu_peak, self._gpu_source = 0, None, None
        self._before = self._tree()

    def sample(self) -> Dict[int, Stat]:
        """Records the memory in use and returns the current processes."""
        tree = self._tree()
        self.peak_bytes = max(self.peak_bytes, sum(member.resident_bytes for member in tree.values()))
        return tree

    def sample_gpu(self) -> None:
        """Samples the GPU memory of these processes, or of whole devices if nvidia-smi does not list them (in a
        container)."""
        tree, source = self._tree(), "process"
        used = [mib for pid, mib in self._ask("--query-compute-apps=pid,used_memory") if pid in tree]
        if not used:
            used, source = [mib for _, mib in self._ask("--query-gpu=index,memory.used")], "device"
        if used and sum(used) << 20 >= (self._gpu_peak or 0):
            self._gpu_peak, self._gpu_source = sum(used) << 20, source

    def end(self) -> Dict[str, object]:
        """Returns the metrics of the window; None for those that could not be measured."""
        after = self.sample()
        if self._exact:
            try:
                high_water = re.search(rb"VmHWM:\s*(\d+)", read_proc("/proc/%d/status" % self.pid))
            except OSError:
                high_water = None
            self.peak_bytes = max(self.peak_bytes, int(high_water.group(1)) * 1024 if high_water else 0)
        used_s = sum(member.cpu_s for member in after.values())
        used_s -= sum(self._before[pid].cpu_s for pid in after if pid in self._before)
        return {
            "cpu_s": round(max(0.0, used_s), 3) if after else None,
            "peak_memory_bytes": self.peak_bytes or None,
            "gpu_peak_memory_bytes": self._gpu_peak,
            "gpu_memory_source": self._gpu_source,
        }

    def _tree(self) -> Dict[int, Stat]:
        members = ((pid, stat(pid)) for pid in (self.pid, *descendants(self.pid)))
        return {pid: member for pid, member in members if member is not None}

    def _ask(self, query: str) -> List[Tuple[int, int]]:
        argv = [*(self.nvidia_smi or ()), query, "--format=csv,noheader,nounits"]
        text = run_program(argv, GPU_QUERY_S, stderr=subprocess.DEVNULL)[1]
        pairs = re.findall(r"^ *(\d{1,15}) *, *(\d{1,15}) *$", text, re.MULTILINE)
        return [(int(first), int(second)) for first, second in pairs]


node: Callable[[Any], Any] = from_dict
logging.getLogger("traitlets").setLevel(logging.CRITICAL)  # the findings have its messages

_WATCH_S = 0.1  # poll interval for the kernel's process and the limits
SAMPLE_S = 0.2
GPU_SAMPLE_S = 2.0
INTERRUPT_S = 5.0  # time for a kernel to react to an interrupt
KEPT_STREAM_CHARS = 4 << 20  # of one notebook cell's output


class KernelClient(NotebookClient):
    """nbclient that also collects failed shell commands and the time of a notebook cell's last output."""

    def __init__(self, notebook: Any, kernel: Any) -> None:
        super().__init__(notebook, km=kernel.km, record_timing=True)
        self.kc = kernel.kc
        self.reported_s = time.monotonic()
        self.printed_chars = 0
        self.omitted_chars = 0
        self.shown: List[Dict[str, Any]] = []  # displayed errors, including those inside a widget
        self.stderr = ""  # the end of it

    def process_message(self, msg: Dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            text = msg["content"].get("text", "")
            self.reported_s = time.monotonic()
            sys.stdout.write(text)
            sys.stdout.flush()
            self.printed_chars += len(text)
            if msg["content"].get("name") == "stderr":
                self.stderr = (self.stderr + text)[-_STDERR_CHARS:]
            if self.printed_chars > KEPT_STREAM_CHARS:
                self.omitted_chars += len(text)
                return None
        elif msg["msg_type"] != "status":
            self.reported_s = time.monotonic()
        if msg["msg_type"] == "error":
            self.shown.append(msg["content"])
        return super().process_message(msg, cell, cell_index)


def _is_run(cell: Any) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip()) and not any(tag in SKIP_TAGS for tag in tags(cell))


class NotebookPass:
    def __init__(self, spec: Any, name: str, kernel: Any, notebook: Dict[str, Any], notes: Any) -> None:
        self.spec, self.name, self.kernel, self.notes = spec, name, kernel, notes
        own_timeout_s, self.allow_errors = execution(notebook)
        self.cell_timeout_s = own_timeout_s if spec.cell_timeout_s is None else spec.cell_timeout_s
        self.notebook = node(notebook)
        self.last = max((index for index, cell in enumerate(self.notebook.cells) if _is_run(cell)), default=-1)
        self.client = KernelClient(self.notebook, kernel)
        self.usage = Usage(kernel.pid)
        self.deadline_s: Optional[float] = None
        self.started_s = 0.0  # of the current notebook cell
        self.failed: List[CellOutcome] = []
        self.allowed = 0  # notebook cells that raised, as `allow_errors` permits

    async def run(self) -> CellOutcome:
        """Runs notebook cells until one fails, or all with `keep_going`. Reports the others as not run."""
        if self.spec.timeout_s is not None:
            self.deadline_s = time.monotonic() + self.spec.timeout_s
        await self.kernel.ask(SETUP)
        ran = number = 0
        not_run = ""
        for index, cell in enumerate(self.notebook.cells):
            # Numbers are those of the user's file; an injected cell shares the number of the one before it.
            number += INJECTED_TAG not in tags(cell)
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            if not_run or not _is_run(cell):
                self._note(number, cell, {"state": "skipped", "class": "", "message": not_run or "tagged `skip`"})
                continue
            ran += INJECTED_TAG not in tags(cell)
            outcome = await self._cell(number, index, cell)
            self.allowed += bool(outcome.get("allowed"))
            if outcome["state"] == "failed":
                self.failed.append(dict(outcome, cell=number))
                not_run = await self._why_not_on(number, outcome)
        self.client.set_widgets_metadata()
        if self.failed:  # report the first; each has its own note
            first = self.failed[0]
            message = "cell %d: %s" % (first["cell"], first["message"] or first["error"])
            return {"state": "failed", "class": first["class"], "message": message, "cells": ran, "cell": first["cell"]}
        cells = "1 cell" if self.allowed == 1 else "%d cells" % self.allowed
        message = "%s raised, as the notebook allows (`allow_errors`)" % cells if self.allowed else ""
        return {"state": "passed", "class": "", "message": message, "cells": ran}

    async def _why_not_on(self, number: int, outcome: CellOutcome) -> str:
        """After a failed notebook cell: why the following ones are not run; "" if they are."""
        if outcome["class"] == "dead":  # after exit() the kernel is still shutting down
            await self.kernel.end()
        if not self.spec.keep_going:
            return "not run: cell %d failed" % number
        if not await self.kernel.alive():
            return "not run: the kernel stopped in cell %d" % number
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            return "not run: the pass timed out in cell %d" % number
        return ""

    def _note(self, number: int, cell: Any, outcome: CellOutcome) -> None:
        self.notes("cell", **dict(outcome, cell=number, source=cell.source, **{"pass": self.name}))

    async def _cell(self, number: int, index: int, cell: Any) -> CellOutcome:
        oom_before = oom_kills(self.spec.oom_file)
        self.client.printed_chars = self.client.omitted_chars = 0
        self.client.shown, self.client.stderr = [], ""
        self.usage.begin()
        self.started_s = self.client.reported_s = time.monotonic()
        outcome = await self._execute(index, cell)
        seconds = time.monotonic() - self.started_s
        metrics = self.usage.end()
        outcome = with_kills(outcome, oom_kills(self.spec.oom_file) - oom_before)
        if self.client.omitted_chars:
            text = "\n[%d more characters omitted]\n" % self.client.omitted_chars
            cell.outputs.append(node({"output_type": "stream", "name": "stderr", "text": text}))
        if outcome["state"] == "failed":
            # The end of the output: it has the error messages of failed commands.
            texts = [str(output.get("text", "")) for output in cell.outputs if output.get("output_type") == "stream"]
            outcome["output"] = without_colors("".join(texts))[-OUTPUT_CHARS:]
            lines = ["", "[cell %d failed: %s]" % (number, outcome["message"] or outcome["error"])]
            sys.stdout.write("\n".join([*lines, *str(outcome.get("traceback") or "").splitlines()]) + "\n")
            sys.stdout.flush()
        self._note(number, cell, dict(outcome, seconds=round(seconds, 4), **metrics))
        return outcome

    async def _execute(self, index: int, cell: Any) -> CellOutcome:
        reply: Dict[str, Any] = {}
        self.client.on_cell_executed = lambda cell, cell_index, execute_reply: reply.update(execute_reply)
        task = asyncio.ensure_future(self.client.async_execute_cell(cell, index))
        ended = await self._watch(task)
        if ended is not None:
            return ended
        try:
            task.result()
        except CellExecutionError:
            pass  # the reply has the error
        except DeadKernelError:
            return await self._dead()
        shell, raised = json.loads(evaluated(reply) or "[[], []]")
        if index == self.last or reply["content"]["status"] != "ok":  # the expression was not evaluated then
            more = json.loads(await self.kernel.ask(SETTLE if index == self.last else "", TAKE) or "[[], []]")
            shell, raised = shell + more[0], raised + more[1]
        if self.spec.background_errors:
            self.client.shown += raised or [
                {"ename": name, "evalue": "%s (%s)" % (text, where.rstrip(":")), "traceback": []}
                for where, name, text in _IN_BACKGROUND.findall(without_colors(self.client.stderr))
            ]
        return judge_cell(cell, reply["content"], self.client.shown, shell, self.allow_errors)

    async def _watch(self, task: "asyncio.Future[Any]") -> Optional[CellOutcome]:
        """Waits for the notebook cell. None if it ended by itself, else the outcome that stopped it."""
        wait_s, sampled_s = 0.02, time.monotonic()
        gpu_s = sampled_s - GPU_SAMPLE_S + 0.5
        while True:
            done, _ = await asyncio.wait({task}, timeout=wait_s)
            if done:
                return None
            wait_s = _WATCH_S
            if not await self.kernel.alive():
                await self._drop(task)
                return await self._dead()
            now_s = time.monotonic()
            if now_s - sampled_s >= SAMPLE_S:
                self.usage.sample()
                sampled_s = now_s
            if self.usage.nvidia_smi and now_s - gpu_s >= GPU_SAMPLE_S:
                await asyncio.get_running_loop().run_in_executor(None, self.usage.sample_gpu)
                gpu_s = time.monotonic()
            over = self._over(now_s)
            if over:
                return failed_as("timeout", "%s; %s" % (over, await self._stop(task)))

    def _over(self, now_s: float) -> str:
        if self.cell_timeout_s is not None and now_s - self.started_s > self.cell_timeout_s:
            return "timed out after %g s (cell limit)" % self.cell_timeout_s
        if self.deadline_s is not None and now_s > self.deadline_s:
            return "timed out after %g s (pass limit)" % self.spec.timeout_s
        if self.spec.stall_s is not None and now_s - self.client.reported_s > self.spec.stall_s:
            return "stalled: no output for %g s" % self.spec.stall_s
        return ""

    async def _stop(self, task: "asyncio.Future[Any]") -> str:
        """Interrupts the kernel and kills it if that does not help. Returns which of the two stopped it."""
        await self.kernel.km.interrupt_kernel()
        done, _ = await asyncio.wait({task}, timeout=INTERRUPT_S)
        if done:
            task.exception()
            return "stopped by an interrupt"
        await self.kernel.end(now=True)
        await self._drop(task)
        return "killed after ignoring the interrupt for %g s" % INTERRUPT_S

    async def _drop(self, task: "asyncio.Future[Any]") -> None:
        """Abandons a notebook cell that will never reply. nbclient reports a dead kernel, which the caller already
        knows."""
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()

    async def _dead(self) -> CellOutcome:
        code = await self.kernel.exit_code()
        limit = memory_limit()
        if code == -9 and limit is not None and self.usage.peak_bytes > 0.9 * limit:
            return failed_as("memory", memory_message())
        if code is not None and code < 0:
            advice = "; memory may have run out" if code == -9 else ""
            return failed_as("dead", "the kernel died: killed by signal %d%s" % (-code, advice))
        return failed_as("dead", "the kernel died: exited with code %s" % code)
