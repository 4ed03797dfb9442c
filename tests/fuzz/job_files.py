"""What a job leaves or says: records, its folder, logs, profiles, files of metrics, notes of a driver."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from fuzz import mutate
from fuzz.fuzzing import Kind, Use
from fuzz.seeds import ROOT, Seeds
from seatrial import plugins
from seatrial.agent.readers import files as read_files
from seatrial.agent.readers.json_file import UnreadableFile
from seatrial.agent.readers.log import Reading
from seatrial.agent.run.child import Notes
from seatrial.checks import find_error
from seatrial.engine import reopen
from seatrial.engine.judge import judge_attempt, result_of
from seatrial.job import Exit, Observation, Outcome, Part, Place, Unreadable, decode, merged, read_records
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.driver.merge import merge_shards, read_shard
from seatrial.kinds.scale.followed import POD_CREATED, STARTED
from seatrial.kinds.scale.work import STAMPS, SUBMITTED, ScaleWork, Stamp, Submission, WorkloadClass
from seatrial.record import RunFolder
from seatrial.suite import Cell
from seatrial.targets.job_files import Progress
from seatrial.targets.local.folders import JobFolder
from seatrial.targets.local.supervisors import alive

KINETO = json.dumps({
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": n * 100, "dur": 90}
        for n in range(4)
    ] + [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {"device": 0}}],
}).encode()  # fmt: skip
SUPERVISOR = (
    b'{"boot_id":"0a1b","pid":4711,"start":99,"host":"node","wall_s":1767225600.5,"at_s":12.5,"cgroups":["/a"]}'
)
END = b'{"outcome":"exited","wall_s":1767225600.5,"code":0,"message":"","left":0,"version":1}'
LOG = "".join(f"[rank{n % 2}]: step: {n}, loss: {1 / (n + 1):.4f}, 12:0{n % 10}:00\n" for n in range(40)).encode() + (
    b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no\nFinished training run\n'
)


def of_jobs(seeds: Seeds) -> Iterator[Kind]:
    cells = {cell.hash: cell for cell in reopen(RunFolder(seeds.run)).plan.cells}
    parts: dict[str, Part] = {}
    for path in seeds.attempts("records.jsonl"):
        cell = cells[path.parts[-3]]
        part = parts[cell.trial] = decode((path.parent / "job.json").read_bytes(), Part)
        yield Kind(
            f"records-{cell.trial}",
            [path.read_bytes()],
            mutate.json_lines,
            lambda data, part=part, cell=cell: _records(part, cell, data),
        )
    folder = JobFolder(seeds.folder / "fuzzed-job")
    folder.path.mkdir()
    submission = {"job": msgspec.to_builtins(part.job), "host": "node", "created_s": 1.5, "ports": {"http": 8080}}
    for name, data in {
        "job.json": msgspec.json.encode(submission),
        "supervisor.json": SUPERVISOR,
        "end.json": END,
    }.items():
        yield Kind(
            f"job-folders-{name.removesuffix('.json')}",
            [data],
            mutate.json_text,
            lambda data, name=name: _job_folder(folder, name, data),
        )
    follow = next(step.args for step in parts["train"].job.steps if "follow" in step.args)["follow"]
    yield from _of_scale(seeds)
    yield Kind("logs", [LOG], mutate.log_text, lambda data: _log(follow, data))
    yield Kind("notes", [b'{"note":"progress","text":"3 of 4"}\n{"note":"cell","cell":1}\n'], mutate.json_lines, _notes)
    profile = (ROOT / "tests/agent/profiles/cpu.xplane.pb").read_bytes()
    errors = (UnreadableFile, OSError, EOFError, zlib.error, MemoryError)  # which whoever calls it reports

    def read(name: str, reader: str, data: bytes) -> object:
        path = seeds.folder / name
        path.write_bytes(data)
        return json.dumps(read_files.read_one(str(path), reader, {"keys": ["a.b", "step_execution_time"]}))

    metrics = b'{"step_execution_time": 0.5, "a": {"b": [1, 2]}}'
    yield Kind(
        "profiles-xplane", [profile], mutate.plain_bytes, lambda data: read("p.xplane.pb", "xplane", data), errors
    )
    yield Kind("profiles-kineto", [KINETO], mutate.json_text, lambda data: read("p.json", "kineto", data), errors)
    packed = gzip.compress(KINETO)
    yield Kind("profiles-gz", [packed], mutate.plain_bytes, lambda data: read("p.json.gz", "kineto", data), errors)
    yield Kind("metrics-json", [metrics], mutate.json_text, lambda data: read("m.json", "json", data), errors)
    yield Kind(
        "metrics-lines", [metrics + b"\n"], mutate.json_lines, lambda data: read("m.jsonl", "json", data), errors
    )


def _records(part: Part, cell: Cell, data: bytes) -> object:
    """From the records to a result, as after an attempt, and through the file that attach would read."""
    progress = Progress([step.name for step in part.job.steps])
    progress.feed(data)
    records = merged([read_records(io.BytesIO(data), part.job.steps), read_records([], part.job.steps)])
    records = read_records(io.BytesIO(data), part.job.steps)
    observation = Observation(
        job=part.job.name,
        attempt=1,
        place=Place("here", "cpu"),
        exit=Exit(Outcome.EXITED, 0),
        steps=records.steps,
        left=records.left,
        log_bytes=records.log_bytes,
        log_omitted_bytes=records.log_omitted_bytes,
        broken_records=records.broken_records,
        seconds=records.seconds,
        hardware=records.hardware,
    )
    again = decode(msgspec.json.encode(observation), Observation)
    judged = judge_attempt(cell, plugins.kinds()[cell.kind], 1, {"job": again})
    return msgspec.json.encode(result_of(cell, [judged], ""))


def _job_folder(folder: JobFolder, name: str, data: bytes) -> object:
    (folder.path / name).write_bytes(data)
    return folder.submission(), folder.end(), alive(folder.identity())


def _log(follow: dict[str, Any], data: bytes) -> object:
    reading = Reading(follow, hosts=2, begun_s=0.0)
    for start in range(0, len(data), 1000):
        reading.feed(data[start : start + 1000], float(start))
    reading.flush(1e6)
    json.dumps([*reading.notes(None, last=True), reading.result()], allow_nan=True)
    return find_error(data)


def _notes(data: bytes) -> object:
    return json.dumps(Notes().feed(data + b"\n"))


def _of_scale(seeds: Seeds) -> Iterator[Kind]:
    """What drivers of scale trials wrote, which is merged afterwards."""
    folder = seeds.folder / "scale"
    folder.mkdir(exist_ok=True)
    submitted = [Submission(number, 1.0 + number, 1.0 + number, 1.5 + number, 2, (429,)) for number in range(3)]
    stamps = [Stamp(number, "a", stage, 9.0, 8.0) for number in range(3) for stage in (POD_CREATED, STARTED)]
    both = {
        name: b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        for name, lines in ((SUBMITTED, submitted), (STAMPS, stamps))
    }
    work = ScaleWork("r", "c", 1, "p", (WorkloadClass("job", ()),), 3, Arrivals("rate", rate=1.0))

    def reading(name: str) -> Use:
        def use(data: bytes) -> object:
            for each, content in both.items():
                (folder / each).write_bytes(data if each == name else content)
            return merge_shards([read_shard(folder, work)])

        return use

    for name, data in both.items():
        yield Kind(f"scale-{name.partition('.')[0]}", [data], mutate.log_text, reading(name), (Unreadable,))
