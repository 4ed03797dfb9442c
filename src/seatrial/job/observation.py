"""The observation of an attempt, and the agent's records that it is read from.

The agent writes one JSON object per line while it works, so that nothing is lost if the job is killed. `at_s` is the
agent's monotonic clock; `begin` has the one pair of wall and monotonic time.

    {"event": "begin", "version": 1, "wall_s": 1.7e9, "at_s": 12.5, "host": "node-1", "pid": 4711,
     "hardware": {"cpu": "model name", "cores": 2, "memory_bytes": ..., "gpu": ["NVIDIA A100-SXM4-40GB"]}}
    {"event": "step", "step": 0, "at_s": ...}                       before a step starts
    {"event": "note", "step": 0, "at_s": ..., "data": {...}}        reported by the step's own program
    {"event": "sample", "step": 0, "at_s": ..., "memory_bytes": ..., "cpu_s": ...,
     "gpu": [{"index": 0, "utilization": 93.0, "memory_bytes": ...}]}
    {"event": "ready", "at_s": ...}                                 the job's port answered for the first time
    {"event": "done", "step": 0, "at_s": ..., "outcome": "exited", "code": 0, "signal": null, "message": "",
     "output": "...", "output_omitted_bytes": 0, "cpu_s": ..., "peak_memory_bytes": ..., "oom_kills": 0,
     "result": {...}}
    {"event": "end", "at_s": ..., "outcome": "exited", "message": "", "left": 0, "log_bytes": ...,
     "log_omitted_bytes": ...}
    {"event": "unkept", "at_s": 0, "data": {"count": ..., "bytes": ..., "names": [...]}}  by the fetcher

A step `command` with `follow` notes what it reads in its output: `values` (name, host, steps, values, lines, at),
`never` (pattern, host, line, text), `host` (host, code: it ended) and `progress` (text, for display); its result has
`lines`, `long_lines`, `steps`, `must`, `never`, `values`, `stopped` and `dropped`. The result of a step `read`
has the `count` and `files` of each entry, and `error` or `cut` if not everything could be read.
Separate hosts have an agent each, whose notes and results name its host; `hosts.py` merges their records.

`outcome` is a value of lifecycle.Outcome. `left` counts processes that outlived their steps and had to be killed.
A note `unseen` (text: why) comes from a target: the step's exit is known, its output and files are not. A note `unread`
comes from the engine: the job wrote files to a storage that could not be read.
A line that is not JSON (such as the last one of a killed job) is counted and skipped, never an error.
"""

from collections.abc import Iterable

import msgspec

from seatrial.job.lifecycle import Exit, Outcome, Place, StageTime
from seatrial.job.reading import JsonObject, Unreadable, convert, decode
from seatrial.job.spec import Step

LONGEST_S = 1e9  # 30 years; no monotonic clock shows more


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    at_s: float
    memory_bytes: int | None = None
    cpu_s: float | None = None
    gpu: list[JsonObject] = []


class ObservedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The observation of one step. `outcome` is None if it did not start, or was running when the job ended."""

    name: str
    kind: str
    args: JsonObject = {}
    started_s: float | None = None  # since the agent began
    ended_s: float | None = None
    outcome: Outcome | None = None
    code: int | None = None
    signal: int | None = None
    message: str = ""  # why it was stopped, if it did not exit by itself
    output: str = ""
    output_omitted_bytes: int = 0
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int = 0
    result: JsonObject = {}
    notes: list[JsonObject] = []
    samples: list[Sample] = []

    @property
    def unseen(self) -> str:
        """Why only its exit is known; "" if its output and files are known, too."""
        return self._noted("unseen")

    @property
    def unread(self) -> str:
        """Why the files of the job could not be fetched from its storage; "" if they could."""
        return self._noted("unread")

    def _noted(self, name: str) -> str:
        return next((str(note.get("text", "")) for note in self.notes if note.get("note") == name), "")

    @property
    def seconds(self) -> float | None:
        return None if self.started_s is None or self.ended_s is None else self.ended_s - self.started_s


# Error lines of programs in any language; a log has few of them, and the first one usually gives the cause.
ERROR_PATTERN = (
    r"\b\w*(?:Error|Exception|Interrupt)\b(?=[:(]|$)|\b(?:ERROR|error|FATAL|fatal|panic): "
    r"(?! *(?:Traceback \(most recent|Exception in ASGI application))"  # what follows is more specific
    r"|\b(?:out of memory|core dumped)\b"
    r"|\b(?:Segmentation fault|Bus error|CUDA error)\b|\bSIG(?:SEGV|BUS|ABRT|KILL)\b|\bNCCL (?:WARN|error)\b|\bXid \("
)


class LogError(msgspec.Struct, frozen=True):
    """The first line of a log that reports an error."""

    line: int  # from 1, in the kept log
    text: str
    window: str  # the line with its surrounding lines
    step: str = ""  # the step that printed it; empty if unknown


class Unkept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files of a job that were not fetched, because together they were too many or too large."""

    count: int | None = None  # None: all of them
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    names: tuple[str, ...] = ()  # of the first files


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The part of an observation that the agent recorded."""

    steps: list[ObservedStep] = []
    left: int = 0
    log_bytes: int = 0
    log_omitted_bytes: int = 0
    broken_records: int = 0
    seconds: float | None = None  # from the agent's first record to its last, by its own clock
    hardware: JsonObject = {}  # as seen by the agent: cpu (model), cores, memory_bytes, gpu (models)
    unkept: tuple[Unkept, ...] = ()  # of each host that has any


class Observation(Recorded, frozen=True, omit_defaults=True):
    job: str
    attempt: int
    place: Place
    exit: Exit
    stages: list[StageTime] = []
    files: list[str] = []  # relative to the attempt's `files/`
    error: LogError | None = None  # of the failed steps, if the log has one


class Records(Recorded, frozen=True):
    """The agent's records, decoded."""

    outcome: Outcome | None = None  # of the whole job; None if the agent did not report it
    message: str = ""
    began_s: float | None = None  # by the wall clock of its host


class _Record(msgspec.Struct, frozen=True):
    """A line of the agent's records, with the fields of all events."""

    event: str
    at_s: float
    step: int = -1
    wall_s: float | None = None
    hardware: JsonObject | None = None
    data: JsonObject = {}
    gpu: list[JsonObject] | None = None
    memory_bytes: int | None = None
    cpu_s: float | None = None
    outcome: Outcome | None = None
    code: int | None = None
    signal: int | None = None
    message: str | None = None
    output: str | None = None
    output_omitted_bytes: int | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int | None = None
    result: JsonObject | None = None
    left: int = 0
    log_bytes: int = 0
    log_omitted_bytes: int = 0


def read_records(lines: Iterable[bytes], steps: Iterable[Step]) -> Records:
    """Assembles the observation of each planned step from the agent's lines. Never raises for bad data."""
    planned = list(steps)
    found_steps: list[JsonObject] = [{"notes": [], "samples": []} for _ in planned]
    begin = end = None
    unkept: list[Unkept] = []
    origin: float | None = None
    broken = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            record = decode(line, _Record)
            if record.event == "unkept":
                unkept.append(convert(record.data, Unkept))
                continue
            if not 0.0 <= record.at_s - (origin or 0.0) < LONGEST_S:
                raise ValueError(record.at_s)
            if record.event == "begin":
                begin, origin = record, record.at_s
            elif record.event == "end":
                end = record
            elif record.event != "ready":
                _take(found_steps, record, record.at_s - (origin or 0.0))
        except (Unreadable, ValueError):
            broken += 1
    return Records(
        steps=[
            ObservedStep(name=s.name, kind=s.kind, args=s.args, **found)
            for s, found in zip(planned, found_steps, strict=True)
        ],
        outcome=end.outcome if end else None,
        message=(end.message if end else "") or "",
        left=end.left if end else 0,
        log_bytes=end.log_bytes if end else 0,
        log_omitted_bytes=end.log_omitted_bytes if end else 0,
        broken_records=broken,
        seconds=end.at_s - (end.at_s if origin is None else origin) if end else None,
        hardware=(begin.hardware if begin else None) or {},
        began_s=begin.wall_s if begin else None,
        unkept=tuple(unkept),
    )


_DONE = [name for name in _Record.__struct_fields__ if name in ObservedStep.__struct_fields__]


def _take(steps: list[JsonObject], record: _Record, at_s: float) -> None:
    """Raises ValueError."""
    if not 0 <= record.step < len(steps):
        raise ValueError(f"unknown step {record.step}")
    found = steps[record.step]
    if record.event == "step":
        found["started_s"] = at_s
    elif record.event == "note":
        found["notes"].append({**record.data, "at_s": at_s})
    elif record.event == "sample":
        found["samples"].append(Sample(at_s, record.memory_bytes, record.cpu_s, record.gpu or []))
    elif record.event == "done":
        if record.outcome is None:
            raise ValueError("`done` needs an outcome")
        found["ended_s"] = at_s
        found.update({key: value for key in _DONE if (value := getattr(record, key)) is not None})
