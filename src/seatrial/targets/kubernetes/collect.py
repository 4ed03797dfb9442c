"""Fetches a job's output from the keeper of each pod, or what is left in the pod status once the keeper is gone."""

import asyncio
import contextlib
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import seatrial.kubernetes as k8s
from seatrial.job import Event, Unreadable, read_json
from seatrial.targets import job_files
from seatrial.targets.job_files import Progress
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.log import LinePrefixer
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.watcher import JobWatcher
from seatrial.targets.protocol import TargetError
from seatrial.targets.tasks import end_tasks, shared_task

FETCH_PATIENCE_S = 120.0  # retry limit for a node that does not answer
LAST_LOG_S = 5.0
REFUSED_S = 15.0  # retry limit for a node that refuses, as it may just after its start
# Packed by the agent if the image has a Python, else by tar, without the files if they are too large.
PACK = (
    "/bin/sh", "-c", f'python=$(/bin/sh {names.AGENT}/start.sh find) && exec "$python" -I -S {names.AGENT}/agent.pyz '
    'pack "$@"', "sh", names.OUT,
)  # fmt: skip
WITHOUT_FILES = ("/bin/sh", "-c", f"cd {names.OUT} && tar cf - $(ls | grep -vx files)")
OWN_BYTES = 1 << 30  # limit for records and log, in addition to the files
UNKEPT = "unkept.json"  # as in agent/pod/pack.py
FETCH_RETRY_S = 1.0
# After these errors the job is intact, and its output stays where it is.
LOST = (k8s.CredentialsError, k8s.Forbidden, k8s.Unreachable)


class Collector:
    """Fetches the output of an ended pod once, completely, and serves it from disk; that of a running pod each time."""

    def __init__(self, client: k8s.Kubernetes, watcher: JobWatcher, options: KubernetesOptions) -> None:
        self._client, self._watcher, self._options = client, watcher, options
        self._others = options.other_containers  # their logs are part of the job's
        self._whole: dict[tuple[str, int], asyncio.Task[Path]] = {}

    async def fetch(self, handle: str, job: JobAnnotation, path: str, into: Path) -> bool:
        # `hosts/3/files/x` is `files/x` of host 3; all other paths are of host 0.
        found = re.match(r"hosts/(\d+)/", path)
        number, path = (int(found[1]), path[found.end() :]) if found else (0, path)
        pods = {pod.number: pod for pod in self._watcher.pods(handle)}
        if number not in pods:
            return False
        if path == job_files.LOG_NAME and (job.hosts > 1 or self._others):
            logs: list[tuple[LinePrefixer, Iterable[bytes]]] = []
            for pod in pods.values():
                reader = job_files.LogReader(await self._folder(handle, job, pod, into.parent))
                logs.append((LinePrefixer(pod.number, job.hosts), reader.blocks()))
            for pod in [pod for pod in pods.values() if pod.real]:
                for name in self._others:
                    logs.append((LinePrefixer(pod.number, job.hosts, name), [await self._log(pod, name)]))
            await asyncio.to_thread(_join, logs, into)
            return True
        folder = await self._folder(handle, job, pods[number], into.parent)
        return await asyncio.to_thread(job_files.fetch, folder, path, into)

    async def forget(self, handle: str) -> None:
        for key in [key for key in self._whole if key[0] == handle]:
            task = self._whole.pop(key)
            task.cancel()
            for folder in await asyncio.gather(task, return_exceptions=True):
                if isinstance(folder, Path):
                    await asyncio.to_thread(shutil.rmtree, folder, True)

    async def close(self) -> None:
        for handle in {key[0] for key in self._whole}:
            await self.forget(handle)

    # ---- one pod

    async def _folder(self, handle: str, job: JobAnnotation, pod: TrackedPod, near: Path) -> Path:
        """All of a pod's `out`, on the same disk as its destination, so that files need not be copied again."""
        key = (handle, pod.number)
        if not pod.trial_ended:
            self._whole.pop(key, None)
        folder = near / f".{job.name}.{pod.number}"
        try:
            with target_errors(f"cannot fetch the output of {job.name}", LOST):
                return await shared_task(self._whole, key, lambda: self._fetch(job, pod, folder))
        except OSError as error:
            raise TargetError(f"cannot write the output of {job.name}: {error}") from error

    async def _fetch(self, job: JobAnnotation, pod: TrackedPod, folder: Path) -> Path:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        begun_s = time.monotonic()
        while True:
            if not pod.keeper_running:
                await self._from_status(job, pod, folder)
                return folder
            try:
                await self._from_keeper(self._client.pod(pod.name, names.KEEPER), folder)
                await asyncio.to_thread(_note_unkept, folder)
                return folder
            except k8s.KubernetesError as error:
                if time.monotonic() - begun_s > (REFUSED_S if error.lasting else FETCH_PATIENCE_S):
                    raise
            await asyncio.sleep(FETCH_RETRY_S)

    async def _from_keeper(self, keeper: k8s.Pod, folder: Path) -> None:
        most_files, most_bytes = self._options.fetch_files, self._options.fetch_bytes
        try:
            await keeper.fetch_folder(names.OUT, folder, (*PACK, str(most_files), str(most_bytes)))
        except k8s.CommandFailed:  # no Python
            try:
                await keeper.fetch_folder(names.OUT, folder, most_bytes=most_bytes + OWN_BYTES)
            except k8s.TooLarge:
                await keeper.fetch_folder(names.OUT, folder, WITHOUT_FILES)
                (folder / UNKEPT).write_bytes(b"{}")

    # ---- without a keeper

    async def _from_status(self, job: JobAnnotation, pod: TrackedPod, folder: Path) -> None:
        """The files are gone; the step results in the pod's status and the end of the log may still exist."""
        folder.mkdir(exist_ok=True)  # may exist from a failed fetch
        lines = job.records(pod.pod)
        if lines:
            (folder / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        if pod.real:
            with contextlib.suppress(k8s.KubernetesError):
                (folder / job_files.LOG_NAME).write_bytes(await self._log(pod, names.TRIAL))

    async def _log(self, pod: TrackedPod, container: str) -> bytes:
        log = self._client.pod(pod.name, container).log(LAST_LOG_S)
        with contextlib.suppress(k8s.NotFound):
            return b"".join([block async for block in log])
        return b""


def _join(logs: list[tuple[LinePrefixer, Iterable[bytes]]], into: Path) -> None:
    """Writes logs one after the other, each line with the prefix of its log."""
    into.parent.mkdir(parents=True, exist_ok=True)
    with open(into, "wb") as file:
        for lines, blocks in logs:
            file.writelines(map(lines.feed, blocks))
            file.write(lines.end())


def _note_unkept(folder: Path) -> None:
    """Records which files were not fetched."""
    with contextlib.suppress(FileNotFoundError, Unreadable):
        line = {"event": "unkept", "at_s": 0.0, "data": read_json(folder / UNKEPT, dict[str, Any])}
        with open(folder / "records.jsonl", "ab") as file:
            file.write(b"\n" + msgspec.json.encode(line) + b"\n")


AFTER_S = 0.3  # jobs that end sooner report no progress
_MOST = 64  # jobs at a time; each needs a connection through the API server
FOLLOW_AGAIN_S = (0.2, 0.5, 2.0)


class ProgressFollower:
    """Reports the progress of running jobs from the agent's records, unless they end at once."""

    def __init__(self, client: k8s.Kubernetes, watcher: JobWatcher) -> None:
        self._client, self._watcher = client, watcher
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()  # including tasks that are being cancelled
        self._places = asyncio.Semaphore(_MOST)

    def add(self, handle: str, job: JobAnnotation) -> None:
        if handle not in self._tasks and job.steps:
            task = self._tasks[handle] = asyncio.create_task(self._follow(handle, job))
            self._all.add(task)
            task.add_done_callback(self._all.discard)

    def forget(self, handle: str) -> None:
        task = self._tasks.pop(handle, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        await end_tasks(*self._all)

    async def _follow(self, handle: str, job: JobAnnotation) -> None:
        """Reports host 0 only. Errors here do not affect the job."""
        with contextlib.suppress(TargetError):  # raised for those who wait for the job's events
            await self._watcher.started(handle)
        await asyncio.sleep(AFTER_S)
        async with self._places:
            progress, offset, failures = Progress(job.steps), 0, 0
            while pod := next((pod for pod in self._watcher.pods(handle) if pod.trial_running and pod.real), None):
                keeper = self._client.pod(pod.name, names.KEEPER)
                with contextlib.suppress(k8s.KubernetesError):
                    command = ["tail", "-c", f"+{offset + 1}", "-f", f"{names.OUT}/records.jsonl"]
                    async with await keeper.start(command) as running:
                        async for channel, block in running:
                            if channel == k8s.STDOUT:
                                offset, failures = offset + len(block), 0
                                if step := progress.feed(block):
                                    self._watcher.report(Event(handle, progress=step))
                await asyncio.sleep(FOLLOW_AGAIN_S[min(failures, len(FOLLOW_AGAIN_S) - 1)])
                failures += 1
