"""Fetches the records, log and files of a job from all its hosts, and turns them into an observation."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from seatrial.agent.masking.escapes import all_visible
from seatrial.agent.masking.files import mask_file, mask_files, rewrite
from seatrial.agent.masking.mask import Mask, texts
from seatrial.checks import find_error
from seatrial.job import (
    Exit,
    Job,
    LogError,
    Observation,
    ObservedStep,
    Outcome,
    Place,
    Recorded,
    Records,
    Step,
    Unreadable,
    decode,
    lines,
    merged,
    read_records,
)
from seatrial.job.reading import MOST_LINE_BYTES
from seatrial.record import RecordError
from seatrial.record.remote import fetch_folder, is_address
from seatrial.targets import Target
from seatrial.targets.agent_file import agent_file

READ_S = 1800.0
_MEMORY_BYTES = 4 << 30


def read_as_agent(spec: dict[str, Any]) -> tuple[list[bytes], Exit]:
    """Lets the agent read logs and files in a separate process, because they may be hostile. Returns its records and
    exit. A file that crashes the reader is reported in Exit, not raised."""
    with tempfile.TemporaryDirectory(prefix="seatrial-check-") as scratch:
        agent = agent_file(Path(scratch))
        process = subprocess.Popen(
            [sys.executable, "-I", str(agent), "read"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            asked = {**spec, "memory_bytes": _MEMORY_BYTES, "seconds": READ_S}
            out, err = process.communicate(json.dumps(asked).encode(), timeout=READ_S + 30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return out.splitlines(), Exit(Outcome.TIMEOUT, message=f"reading timed out after {READ_S:g} s")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    if process.returncode == 0:
        return out.splitlines(), Exit(Outcome.EXITED, 0)
    message = err.decode("utf-8", "replace").strip()[-2000:] or "the log and file reader crashed"
    code = process.returncode
    ended = {"signal": -code} if code < 0 else {"code": code}
    return out.splitlines(), Exit(Outcome.INFRA, **ended, message=message)


def with_artifacts(job: Job, observation: Observation, mask: Mask) -> Observation:
    """Reads files that the job wrote to an address (`gs://…`), because the agent in the job cannot. If they cannot be
    fetched, the step's outcome is INFRA, with a note `unread`: it is not the job's fault."""
    far = {step.name: step for step in job.steps if step.kind == "read" and _address(step)}
    if not far or observation.exit.outcome in (Outcome.CANCELLED, Outcome.REFUSED):
        return observation
    steps = [
        _with_files(far[observed.name], observed, mask) if observed.name in far else observed
        for observed in observation.steps
    ]
    return msgspec.structs.replace(observation, steps=steps)


def _address(step: Step) -> str:
    return next((root for root in step.args.get("roots", ()) if is_address(root)), "")


def _with_files(step: Step, observed: ObservedStep, mask: Mask) -> ObservedStep:
    entries = step.args["entries"]
    with tempfile.TemporaryDirectory(prefix="seatrial-artifacts-") as scratch:
        try:
            fetch_folder(_address(step), [entry["match"] for entry in entries.values()], Path(scratch), logs=False)
        except FileNotFoundError:
            pass  # the checks report that the job wrote nothing
        except RecordError as error:
            note = {"note": "unread", "text": mask.text(str(error))}
            return msgspec.structs.replace(observed, outcome=Outcome.INFRA, notes=[*observed.notes, note], result={})
        records, ended = read_as_agent({"logs": [], "roots": [scratch], "entries": entries})
    nothing = Step("log", "command")
    found = read_records(records, [nothing, step]).steps[1]
    output = ended.message if ended.outcome is not Outcome.EXITED else observed.output
    return msgspec.structs.replace(
        observed, outcome=ended.outcome, output=output, result=mask.data(found.result, texts(entries))
    )


def with_searches(job: Job, observation: Observation) -> Observation:
    """Searches the kept outputs for patterns that need more than one line, or that no agent followed (in an image
    without Python). Done in a separate process, because a pattern may run forever."""
    asked: dict[str, tuple[Step, dict[str, Any]]] = {}
    for step, observed in zip(job.steps, observation.steps, strict=False):
        follow = step.args.get("follow") or {}
        if follow and observed.outcome is Outcome.EXITED and not observed.unseen:
            patterns = {
                kind: [one for one in follow.get(kind, ()) if one.get("across") or not observed.result]
                for kind in _PATTERN_KINDS
            }
            if any(patterns.values()):
                asked[observed.name] = step, {"text": observed.output, **patterns}
    if not asked:
        return observation
    places = [Step("log", "command"), Step("files", "read"), *(step for step, _ in asked.values())]
    records, _ = read_as_agent({"logs": [], "outputs": [output for _, output in asked.values()]})
    found = {step.name: step.result for step in read_records(records, places).steps[2:]}
    return msgspec.structs.replace(observation, steps=[_with_found(step, found) for step in observation.steps])


_PATTERN_KINDS = ("must", "never")


def _with_found(observed: ObservedStep, found: dict[str, dict[str, Any]]) -> ObservedStep:
    if not found.get(observed.name):
        return observed
    more, had = found[observed.name], observed.result
    both = {kind: {**had.get(kind, {}), **more.get(kind, {})} for kind in _PATTERN_KINDS}
    given_up = [*had.get("dropped", ()), *more.get("dropped", ())]
    if omitted := observed.output_omitted_bytes:
        why = f"without Python in the image, {omitted} bytes of output were not searched"
        unmatched = [text for text, match in more.get("never", {}).items() if not match["count"]]
        given_up += [{"pattern": text, "why": why, "fix": "print less, or add Python to it"} for text in unmatched]
    return msgspec.structs.replace(observed, result={**had, **both, "dropped": given_up})


_AT_ONCE = 8  # hosts to fetch from at the same time
RECORDS, LOG, FILES = "records.jsonl", "log.txt", "files"
FETCHED = ".fetched"  # not masked yet; hidden, so that it is removed if this process is killed


async def observe(
    target: Target, handle: str, job: Job, into: Path, place: Place, ended: Exit, mask: Mask, at: Callable[[str], None]
) -> Observation:
    """Returns the observation of a job that has ended. Raises TargetError."""
    fetched = into / FETCHED if mask.values else into
    apart = await collect(target, handle, job, fetched)
    at("fetched")
    # In a thread, because large records or remote files would block the event loop.
    return await asyncio.to_thread(_observed, job, into, apart, place, ended, mask)


def unobserved(job: Job, place: Place, ended: Exit) -> Observation:
    """The observation of a job that never ran or whose results cannot be fetched."""
    return Observation(job.name, job.attempt, place, ended, steps=read_records([], job.steps).steps)


def _observed(job: Job, into: Path, apart: bool, place: Place, ended: Exit, mask: Mask) -> Observation:
    unmasked = _mask_fetched(into, job, mask) if mask.values else ""
    if unmasked:
        ended = Exit(Outcome.INFRA, ended.code, ended.signal, "; ".join(filter(None, [ended.message, unmasked])))
    records = read_all(job, into, apart)
    observation = Observation(
        job.name,
        job.attempt,
        place,
        exit=msgspec.structs.replace(ended, message=mask.text(ended.message)),
        files=file_names(into / FILES),
        error=_log_error(into, ended, records),
        **{name: getattr(records, name) for name in Recorded.__struct_fields__},
    )
    return with_artifacts(job, with_searches(job, observation), mask)


def _mask_fetched(into: Path, job: Job, mask: Mask) -> str:
    """Masks the secrets of the whole run in everything that was fetched, then moves it to its place. The agent knows
    only the secrets of its own job, but a server may print those of its client, and the other way round. Returns a
    message about files that cannot be masked."""
    fetched = into / FETCHED
    ours = frozenset(texts(msgspec.to_builtins(job.steps)))
    for folder in (fetched, *fetched.glob("hosts/*")):
        if (folder / LOG).exists():
            mask_file(str(folder / LOG), mask, exact=False)
        if (folder / RECORDS).exists():
            with open(folder / RECORDS, "rb") as file:
                rewrite(str(folder / RECORDS), _masked_records(file, mask, ours), 0o644)
    unmasked = mask_files(str(fetched / FILES), mask)
    for path in fetched.iterdir():
        if (into / path.name).is_dir():  # of a process that was killed here
            shutil.rmtree(into / path.name)
        path.replace(into / path.name)
    fetched.rmdir()
    return unmasked


def _masked_records(file: BinaryIO, mask: Mask, ours: frozenset[str]) -> Iterator[bytes]:
    """A line that is too long comes in pieces, and a secret may be in two of them: they are masked as one stream."""
    stream = None
    for line in lines(file):
        ended = line.endswith(b"\n") or len(line) < MOST_LINE_BYTES
        if stream is None and ended:
            yield _masked_record(line, mask, ours)
        else:
            stream = stream or mask.stream()
            yield stream.feed(line) + (stream.flush() if ended else b"")
            stream = None if ended else stream


def _masked_record(line: bytes, mask: Mask, ours: frozenset[str]) -> bytes:
    if all_visible(line) and b"\\" not in line and not any(value in line for value in mask.values):
        return line
    try:
        return msgspec.json.encode(mask.data(decode(line, dict[str, Any]), ours)) + b"\n"
    except Unreadable:  # half a record of a host that was lost
        stream = mask.stream()
        return stream.feed(line) + stream.flush()


def _log_error(into: Path, ended: Exit, records: Records) -> LogError | None:
    """The first error in the log. Checks decide whether it matters: logs of good jobs may contain errors."""
    if ended.outcome is Outcome.RELEASED:  # a server that ran until it was no longer needed
        return None
    failed = {step.name for step in records.steps if step.code or step.signal}
    try:
        return find_error((into / LOG).read_bytes(), failed)
    except OSError:
        return None


async def collect(target: Target, handle: str, job: Job, into: Path) -> bool:
    """Fetches `records.jsonl`, `log.txt` and `files/` into `into`. If hosts have separate folders, also fetches
    `hosts/N/records.jsonl`, and the files of each host, including the first, go to `files/hosts/N/`. Returns whether
    they have."""
    into.mkdir(parents=True, exist_ok=True)
    await target.fetch(handle, RECORDS, into / RECORDS)
    apart = job.hosts > 1 and any(await _of_each(target, handle, range(1, job.hosts), RECORDS, into))
    await target.fetch(handle, LOG, into / LOG)
    if not apart:
        await target.fetch(handle, FILES, into / FILES)
    else:
        await _of_each(target, handle, range(job.hosts), FILES, into / FILES)
    return apart


def clear_scratch(into: Path) -> None:
    """Removes what a process left that was killed while fetching: targets keep partial files under hidden names."""
    for folder in (into, *into.glob("hosts/*")):
        for path in folder.glob(".*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def read_all(job: Job, into: Path, apart: bool) -> Records:
    """The collected records, merged over all hosts."""
    return merged([_read(into / _path(host, RECORDS), job) for host in range(job.hosts if apart else 1)])


async def _of_each(target: Target, handle: str, hosts: range, name: str, into: Path) -> list[bool]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def fetched(host: int) -> bool:
        goal = into / "hosts" / str(host)
        async with turn:
            return await target.fetch(handle, _path(host, name), goal if name == FILES else goal / name)

    return await asyncio.gather(*map(fetched, hosts))


def _path(host: int, name: str) -> str:
    return f"hosts/{host}/{name}" if host else name


def _read(path: Path, job: Job) -> Records:
    """Records of a host; empty if it left none."""
    try:
        with open(path, "rb") as file:
            return read_records(lines(file), job.steps)
    except FileNotFoundError:
        return read_records([], job.steps)


def file_names(folder: Path) -> list[str]:
    """Names of the kept files; bytes that are not UTF-8 are escaped."""
    if not folder.is_dir():
        return []
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(os.fsencode(name).decode("utf-8", "backslashreplace") for name in names)
