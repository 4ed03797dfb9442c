"""Runs the steps of a job one after the other, also after a failed one, and records what happens."""

from __future__ import annotations

import os
import selectors
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from ..contain.process import living, send_signal, stat
from ..contain.sandbox import Sandbox
from ..job_file import Ending, JobError, JobFile, RunLimits
from ..masking.mask import Mask
from ..steps.kinds import Context, Ended, Prepared, agent_path, prepare
from .child import PIPE_BYTES, Child, start
from .measure import GpuQuery, Meter
from .records import RecordsFile

if TYPE_CHECKING:
    from ..readers.log import Reading
    from .readiness import Readiness

_READ_BYTES = 1 << 18
SETTLE_S = 0.1  # grace for processes that are about to exit, before they count as left over
_FORCE_S = 60.0  # processes alive this long after SIGKILL cannot be killed
WATCH_FOLDER_S = 1.0
Step = Dict[str, Any]
Prepare = Callable[[Step, Context], Prepared]
STOP_GRACE_S = 1.0  # for a program that printed a forbidden line: its results are of no use


def step_context(
    job: JobFile, folders: Any, env: Dict[str, str], sandbox: Sandbox, python: Optional[str] = None
) -> Context:
    """`folders` has `work` and `files`."""
    driver, begun_s = job.environment.get("driver"), time.monotonic()
    return Context(
        folders.work, folders.files, env, python, driver, agent_path(), job.secrets, sandbox.oom_file, begun_s
    )


class Runner:
    """Single-threaded: one selector for output, notes, GPU answers and signals. `stop` may be called from a signal
    handler."""

    def __init__(
        self,
        steps: List[Step],
        context: Context,
        records: RecordsFile,
        log: Callable[[bytes], object],
        sandbox: Sandbox,
        limits: RunLimits,
        keep_folder: Optional[Callable[[], None]] = None,
        prepare: Prepare = prepare,
        keep_s: float = WATCH_FOLDER_S,
        readiness: Optional[Readiness] = None,
    ) -> None:
        self.done: List[Tuple[str, Optional[int]]] = []  # outcome and exit code of each finished step
        self.ended: Optional[Ended] = None  # the last program
        self._steps = steps
        self._context = context
        self._records = records
        self._log = log
        self._sandbox = sandbox
        self._limits = limits
        self._prepare = prepare
        self._keep_folder = keep_folder or (lambda: None)
        self._mask = Mask(context.secrets)
        self._meter = Meter(sandbox)
        self._gpu = GpuQuery(context.env)
        self._selector = selectors.DefaultSelector()
        self._child: Optional[Child] = None
        self._index = 0
        self._stopped: Optional[Ending] = None
        self._line_ended = True
        self._first_code = 0
        self._last_word_s = time.monotonic()
        self._keep_s = keep_s
        self._next_keep_s = self._last_word_s + keep_s
        self._stop_probing: Callable[[], None] = (lambda: None) if readiness is None else readiness.stop
        reader, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        self._read_from(reader, lambda data: self._reap())
        if readiness is not None:
            self._read_from(readiness.start(), readiness.take)

    def stop(self, outcome: str, message: str) -> None:
        """Stops the job as soon as possible; the first reason is kept."""
        if self._stopped is None:
            self._stopped = Ending(outcome, None, message)
            self._stop_probing()

    def run(self) -> Ending:
        """Runs all steps. No process of the job is left when it returns."""
        left = 0
        try:
            for index, step in enumerate(self._steps):
                if self._stopped is not None:
                    break
                self._index = index
                self._run_step(step)
        except (JobError, OSError) as error:  # a full disk; no processes or descriptors left
            self.stop("infra", str(error))
        self._gpu.stop()
        self._stop_probing()
        self._limits = self._limits._replace(run_s=None, stall_s=None)  # these limits apply only to steps
        try:
            if self._settle():
                return self._stopped or Ending("exited", self._first_code)
            left = self._end(self._sandbox.members)
        except JobError as error:  # from a late note, or because the folder cannot be restored
            self.stop("infra", str(error))
            self._keep_folder = lambda: None  # it would fail again
            left = self._end(self._sandbox.members)
        ending = self._stopped or Ending("exited", self._first_code)
        unended = living(self._sandbox.members())
        if unended:
            text = "processes still running after SIGKILL: %s" % ", ".join(map(str, sorted(unended)))
            ending = Ending("infra", None, text)
        return ending._replace(left=left)

    # ---- one step

    def _run_step(self, step: Step) -> None:
        self._say("[%d/%d] %s" % (self._index + 1, len(self._steps), step["name"]))
        prepared = self._prepare(step, self._context)
        self._last_word_s = self._records.write("step", step=self._index)
        if prepared.argv is None:
            code = 0 if prepared.outcome == "exited" else None
            self.done.append((prepared.outcome, code))
            self._records.write("done", step=self._index, outcome=prepared.outcome, code=code, result=prepared.result)
            return
        before = self._sandbox.members()
        sessions = {member.session for member in map(stat, before) if member is not None}
        oom_before = self._sandbox.oom_kills()
        self._meter.begin(before)
        child = self._child = self._start(prepared)
        why = self._wait(child, step.get("timeout_s"))
        while why is None and self._stopped is None and prepared.again is not None and child.how()[1] is not None:
            child, prepared = self._start_again(child, prepared)
            why = self._wait(child, step.get("timeout_s"))
        if why is not None:
            self._end(
                lambda: self._of_step(before, sessions) if self._stopped is None else self._sandbox.members(),
                STOP_GRACE_S if why.outcome == "stopped" else None,
            )
        self._done(child, prepared, why, self._sandbox.oom_kills() - oom_before)
        self._child = None

    def _of_step(self, before: Set[int], sessions: Set[int]) -> Set[int]:
        """Returns the processes that this step started, without those that an earlier step left running on purpose."""
        there = ((pid, stat(pid)) for pid in self._sandbox.members() - before)
        return {pid for pid, member in there if member is not None and member.session not in sessions}

    def _wait(self, child: Child, timeout_s: Optional[float]) -> Optional[Ending]:
        """Waits until the program exits (None) or must be stopped (the reason)."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if child.status is not None:
                return None
            if self._stopped is not None:
                return self._stopped
            now_s = time.monotonic()
            if timeout_s is not None and deadline_s is not None and now_s >= deadline_s:
                return Ending("timeout", None, "still running after %g s" % timeout_s)
            if child.reading is not None:
                self._note(child.reading.notes(now_s))
                over = child.reading.over(now_s)
                if over is not None:
                    return Ending(over)
            if now_s >= self._meter.due_s:
                self._sample()
            self._turn(self._until(deadline_s, child.reading))

    def _note(self, notes: List[Dict[str, Any]]) -> None:
        for note in notes:
            self._records.note(self._index, note)

    def _done(self, child: Child, prepared: Prepared, why: Optional[Ending], oom_kills: int) -> None:
        """Records the end of a step. `why` it was stopped; None: it exited by itself."""
        code, number = child.how()
        if why is not None:
            outcome = why.outcome
        elif oom_kills and (number is not None or code):
            outcome = "memory"
        else:
            outcome = "exited" if number is None else "signal"
        self._drain()
        if child.reading is not None:
            now_s = time.monotonic()
            child.reading.flush(now_s)
            self._note(child.reading.notes(now_s, last=True))
            self._note(child.reading.gone(code if number is None else 128 + number))
            if outcome not in ("stopped", "stall"):
                child.reading.stopped = None  # it ended for another reason before that took effect
        sample = self._meter.sample()
        self._records.write("sample", step=self._index, **sample)
        ended = self.ended = Ended(outcome, code, number, child.output.text(), child.kept_notes, oom_kills)
        self._records.write(
            "done",
            step=self._index,
            outcome=outcome,
            code=code,
            signal=number,
            message=why.message if why is not None else "",
            output=ended.output,
            output_omitted_bytes=child.output.omitted_bytes,
            cpu_s=sample["cpu_s"],
            peak_memory_bytes=self._meter.peak_bytes(child.largest_bytes),
            oom_kills=oom_kills,
            result=prepared.finish(ended) if prepared.finish else prepared.result,
        )
        for memory in prepared.memory:
            os.close(memory)
        self.done.append((outcome, code))
        if not self._first_code and (code or number):
            self._first_code = code or 128 + (number or 0)

    # ---- the program of a step

    def _start(self, prepared: Prepared) -> Child:
        child, output, notes = start(prepared, self._context, self._sandbox, self._mask)
        index = self._index
        self._read_from(output, lambda data: self._take_output(child, data))
        self._read_from(notes, lambda data: self._take_notes(child, index, data))
        return child

    def _start_again(self, killed: Child, prepared: Prepared) -> Tuple[Child, Prepared]:
        """Restarts a program that a signal killed; its output and notes continue."""
        assert prepared.again is not None
        self._drain()
        self._note([{"note": "restarted", "signal": killed.how()[1]}])
        self._say("killed by signal %s; restarting" % killed.how()[1])
        again = prepared.again(killed.kept_notes)
        child = self._child = self._start(again)
        child.output, child.kept_notes = killed.output, killed.kept_notes
        return child, again

    def _take_output(self, child: Child, data: bytes) -> None:
        """Writes output to the log, and to the step if it is still the current one. No data: the pipe is closed."""
        self._last_word_s = time.monotonic()
        masked = child.output.stream.feed(data) if data else child.output.stream.flush()
        if masked:
            self._line_ended = masked.endswith(b"\n")
            self._log(masked)
            if child is self._child:
                child.output.take(masked)
        # Unmasked, because a pattern may match a secret. Displayed text is masked.
        if data and child is self._child and child.reading is not None:
            child.reading.feed(data, self._last_word_s)

    def _take_notes(self, child: Child, index: int, data: bytes) -> None:
        self._last_word_s = time.monotonic()
        for note in child.notes.feed(data or b"\n"):  # at the end, the last line may lack its line feed
            # Keys and names in the notes of our own programs are never secrets.
            ours = [*note, str(note.get("thing"))] if self._steps[index].get("kind") == "drive" else ()
            if self._records.note(index, note, ours) and child is self._child:
                child.kept_notes.append(note)
                if child.reading is not None and note.get("note") == "host" and isinstance(note.get("host"), int):
                    child.reading.ended(note["host"])

    def _say(self, line: str) -> None:
        """Writes a line of the agent to the log."""
        text = self._mask.text(" ".join(line.split()))
        self._log(("" if self._line_ended else "\n").encode() + ("--- %s\n" % text).encode("utf-8", "replace"))
        self._line_ended = True

    # ---- waiting

    def _read_from(self, fd: int, take: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._selector.register(fd, selectors.EVENT_READ, lambda: self._read(fd, take))

    def _turn(self, timeout_s: float) -> None:
        """Waits for events and handles them."""
        for key, _ in self._selector.select(timeout_s):
            key.data()
        now_s = time.monotonic()
        self._sandbox.check_memory()
        if now_s >= self._next_keep_s:
            self._next_keep_s = now_s + self._keep_s
            self._keep_folder()
        if self._limits.run_s is not None and now_s >= self._context.begun_s + self._limits.run_s:
            self.stop("timeout", "still running after %g s" % self._limits.run_s)
        if self._limits.stall_s is not None and now_s >= self._last_word_s + self._limits.stall_s:
            self.stop("stall", "no output for %g s" % self._limits.stall_s)

    def _read(self, fd: int, take: Callable[[bytes], None]) -> int:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        take(data)
        if not data:
            self._selector.unregister(fd)
            os.close(fd)
        return len(data)

    def _drain(self) -> None:
        """Reads what the program wrote before it exited, but not what others still write to the same pipe."""
        for key in list(self._selector.get_map().values()):
            taken = 0
            while taken < PIPE_BYTES:
                size = key.data()
                if not size:
                    break
                taken += size

    def _until(self, deadline_s: Optional[float], reading: Optional[Reading]) -> float:
        run_s, stall_s = self._limits.run_s, self._limits.stall_s
        times = [
            self._meter.due_s,
            self._next_keep_s,
            deadline_s,
            self._sandbox.next_check_s(),
            None if reading is None else reading.due_s(),
            None if run_s is None else self._context.begun_s + run_s,
            None if stall_s is None else self._last_word_s + stall_s,
        ]
        return max(0.0, min(at_s for at_s in times if at_s is not None) - time.monotonic())

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._gpu.pid:
                continue
            self._meter.reaped(usage)
            if self._child is not None and pid == self._child.pid:
                self._child.status = status
                self._child.largest_bytes = usage.ru_maxrss * 1024

    def _sample(self) -> None:
        self._records.write("sample", step=self._index, **self._meter.sample())
        pipe = self._gpu.ask()
        if pipe is not None and self._gpu.pid is not None:
            self._sandbox.apart = self._gpu.pid
            child = self._child
            self._read_from(pipe, lambda data: self._take_gpu(child, data))

    def _take_gpu(self, child: Optional[Child], data: bytes) -> None:
        if data:
            self._gpu.take(data)
            return
        answer = self._gpu.answer()
        self._gpu.pid = None
        if answer and child is self._child and child is not None:
            self._records.write("sample", step=self._index, gpu=answer)

    # ---- stopping processes

    def _settle(self) -> bool:
        """Waits briefly for processes that are about to exit. True: no process is left, not even a zombie, so no more
        output can come."""
        until_s = time.monotonic() + SETTLE_S
        there = self._sandbox.members()
        while living(there) and time.monotonic() < until_s:
            self._turn(0.01)
            there = self._sandbox.members()
        self._reap()
        return not there

    def _end(self, members: Callable[[], Set[int]], grace_s: Optional[float] = None) -> int:
        """Sends SIGTERM, then SIGKILL after the grace period, until no process is left. Returns how many there were.
        Meanwhile output is read and children are reaped: a process that is blocked on a full pipe could not exit."""
        found = living(members())
        if not found:
            return 0
        send_signal(found, signal.SIGTERM)
        send_signal(found, signal.SIGCONT)  # a stopped process would not handle SIGTERM
        grace_s = self._limits.grace_s if grace_s is None else min(grace_s, self._limits.grace_s)
        until_s = time.monotonic() + grace_s
        while living(members()) and time.monotonic() < until_s:
            self._turn(0.02)
        until_s = time.monotonic() + _FORCE_S
        while time.monotonic() < until_s:
            there = members()
            if not there:
                break
            if there == self._sandbox.members():
                self._sandbox.kill(there)
            else:
                send_signal(there, signal.SIGKILL)
            self._turn(0.02)
            self._reap()
        self._sandbox.cgroup.allow()
        return len(found)
