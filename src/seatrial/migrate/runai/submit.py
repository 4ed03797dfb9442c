"""Submits workloads in waves, like Run:ai's `submitter.py`: several in parallel, then a pause.

1. The manifest is tried in a dry run before the first workload is sent.
2. Every workload is in the result, including those that the server refused. The last wave may be smaller.
3. All workloads carry the run's label, by which `clean` finds them."""

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from seatrial import SeatrialError
from seatrial.kinds.scale.work import NAME
from seatrial.kubernetes import AlreadyExists, ApiError, Kubernetes, KubernetesError, Manifest, Resource, pod_metadata
from seatrial.migrate.runai.files import (
    SUBMISSION_FILE,
    SUBMITTED_FILE,
    BegunSubmission,
    SubmittedWorkload,
    write_file,
)

SAVE_SHARE = 0.1  # maximum share of the time for writing submitted workloads
LOOK_S, CLEAN_S = 0.5, 600.0
_TRIES = 5  # attempts at finding a free name


class Waves(msgspec.Struct, frozen=True):
    run: str
    project: str
    namespace: str
    manifest: Manifest  # with NAME where its name goes
    count: int
    parallel: int
    delay_s: float
    labels: Mapping[str, str]  # of the run


async def submit_workloads(
    client: Kubernetes,
    waves: Waves,
    folder: Path,
    context: str,
    stopping: asyncio.Event,
    say: Callable[[str], None],
) -> list[SubmittedWorkload]:
    """Writes the files of the submission to the folder. Raises SeatrialError before anything is created."""
    resource = await client.resource_of(waves.manifest)
    manifest, names, done = labelled(waves), _names(), list[SubmittedWorkload]()

    async def create(name: str, dry_run: bool = False) -> None:
        body = manifest.replace(NAME.encode(), name.encode())
        await client.create(body, resource=resource, name=name, dry_run=dry_run)

    async def submit_one() -> SubmittedWorkload:
        problem = f"no free name found in {_TRIES} attempts"
        for name in itertools.islice(names, _TRIES):
            made = SubmittedWorkload(name, waves.project, waves.namespace, datetime.now(UTC).isoformat())
            try:
                await create(name)
                return msgspec.structs.replace(made, acknowledged_timestamp=datetime.now(UTC).isoformat())
            except AlreadyExists:
                continue  # from an earlier run
            except KubernetesError as error:
                problem = str(error)
                break
        return msgspec.structs.replace(made, error=problem)

    try:
        await create(next(names), dry_run=True)
    except ApiError as error:
        raise SeatrialError(f"the server rejected the {resource.kind} in a dry run: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder / SUBMITTED_FILE, folder / SUBMISSION_FILE):
        if path.exists():
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y%m%d-%H%M%S-%f")
            path.rename(path.with_name(f"{path.stem}-{at}{path.suffix}"))
            say(f"renamed {path} of an earlier test to {path.stem}-{at}{path.suffix}")
    begun = (waves.run, waves.namespace, resource.api_version, resource.kind, waves.count, context)
    write_file(folder / SUBMISSION_FILE, BegunSubmission(1, *begun))
    saved_s = took_s = 0.0
    while len(done) < waves.count and not stopping.is_set():
        together = min(waves.parallel, waves.count - len(done))
        done += await asyncio.gather(*(submit_one() for _ in range(together)))
        begun_s = time.monotonic()
        if begun_s - saved_s > took_s / SAVE_SHARE:
            write_file(folder / SUBMITTED_FILE, done)
            saved_s, took_s = time.monotonic(), time.monotonic() - begun_s
            say(f"{len(done):,} of {waves.count:,} workloads submitted")
        if waves.delay_s and len(done) < waves.count:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), waves.delay_s)
    write_file(folder / SUBMITTED_FILE, done)
    return done


async def remove_workloads(client: Kubernetes, resource: Resource, labels: Mapping[str, str]) -> bool:
    """Deletes all workloads of a run by its labels; returns whether none is left."""
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    until_s = time.monotonic() + CLEAN_S
    while time.monotonic() < until_s:
        if not await client.delete_some(resource, labels=selector):
            return True
        await asyncio.sleep(LOOK_S)
    return False


def labelled(waves: Waves) -> bytes:
    """The manifest with the run's labels, also on its pod templates, and NAME in place of its name."""
    made = dict(waves.manifest)
    made["metadata"] = {**made["metadata"], "name": NAME, "namespace": waves.namespace}
    for metadata in (made["metadata"], *pod_metadata(made.get("spec"))):
        metadata["labels"] = {**waves.labels, **(metadata.get("labels") or {})}
    return msgspec.json.encode(made)


def _names() -> Iterator[str]:
    """Unique names in the format of Run:ai's tool, by which volume claims are matched. Six digits alone would repeat
    within a few thousand."""
    given = set()
    while True:
        name = f"j-{uuid.uuid4().hex[:6]}"
        if name not in given:
            given.add(name)
            yield name
