"""The local target: one folder and one supervisor per job; this process only sends requests and watches."""

import asyncio
import builtins
import contextlib
import math
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from seatrial.job import Environment, Event, Job, Outcome
from seatrial.targets.agent_file import agent_file
from seatrial.targets.job_files import fetch, read_log
from seatrial.targets.local import LocalOptions, doctor, reservations
from seatrial.targets.local.containers import container_name, remove_container
from seatrial.targets.local.environments import Environments, layered
from seatrial.targets.local.folders import (
    JobFolder,
    JobSubmission,
    ProcessIdentity,
    cache_folder,
    job_path,
    state_folder,
)
from seatrial.targets.local.job_file import job_file
from seatrial.targets.local.leftovers import end_leftovers, end_unsupervised, remove_stray, strays
from seatrial.targets.local.supervisors import Zygote, alive, ends
from seatrial.targets.local.watcher import Watcher
from seatrial.targets.protocol import Diagnostic, Endpoint, Found, TargetError, handle_parts, refused
from seatrial.targets.route import accepts, until_answered

_T = TypeVar("_T")

_FORCE_S = 20.0  # after the job's own grace, until its supervisor is killed
APPEAR_S = 120.0  # limit for a started supervisor to write its identity
_STARTS = 20  # attempts to start a job that other processes are starting, too
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")


class LocalTarget:
    """Implements `targets.Target`; numbers in comments refer to its guarantees."""

    def __init__(self, name: str, options: LocalOptions) -> None:
        self.name = name
        self._options = options
        self._host = socket.gethostname()
        self._state = (options.state or state_folder()).absolute()  # the zygote works in another folder
        self._cache = (options.cache or cache_folder()).absolute()
        self._watcher = Watcher()
        self._environments = Environments(self._cache, options.engine)
        self._zygote: Zygote | None = None
        self._agent: Path | None = None

    async def open(self) -> None:
        try:
            self._agent = agent_file(self._cache, compiled=True)
        except OSError as error:
            raise TargetError(f"cannot write the agent below {self._cache}: {error}") from error
        self._zygote = Zygote(self._agent)

    async def close(self) -> None:
        await self._environments.close()
        await self._watcher.close()
        if self._zygote is not None:
            await self._zygote.close()

    # ---- submitting and adopting

    async def prepare(self, environment: Environment) -> None:
        with contextlib.suppress(TargetError):
            await self._environments.ready(environment)

    def preparing(self, environment: Environment) -> str:
        return self._environments.doing(environment)

    async def verify(self, job: Job) -> None:
        _check(job)  # (11)

    async def examine(self) -> builtins.list[Diagnostic]:
        return await doctor.examine_machine(self._state, self._cache, self._options.engine)

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        folder = JobFolder(job_path(self._state, job.run, job.name))
        handle = self._handle(job.run, job.name)
        if folder.identity() is None:  # (2) else a process started it
            await self._start(job, folder, secrets)
        self._take_up(handle, folder)
        return handle

    async def adopt(self, handle: str) -> None:
        folder = self._folder(handle)
        await self._supervisor(folder)
        self._take_up(handle, folder)

    def _take_up(self, handle: str, folder: JobFolder) -> None:
        submission, identity = folder.submission(), folder.identity()
        if submission is None or identity is None:
            raise TargetError(f"job not found: {handle} ({folder.path} has no record of its start)")
        self._watcher.add(handle, folder, submission, identity)

    async def _start(self, job: Job, folder: JobFolder, secrets: Mapping[str, str]) -> None:
        assert self._zygote is not None, "open() comes first"
        _check(job)
        environment = await self._environments.ready(job.environment)
        submission = JobSubmission(job, self._host, time.time(), self._choose_cpus(job.resources.cpu))
        if environment.image is not None:
            container = container_name(folder.path)
            submission = msgspec.structs.replace(submission, engine=environment.image.engine, container=container)
        for _ in range(_STARTS):
            made = await self._made(folder, submission)
            if made is None:
                return
            try:
                layer = layered(environment, folder.path / "layer")
                given = job_file(made, folder.path, layer, secrets, str(self._agent))
                answer = await _to_its_end(self._zygote.spawn(given))
            except asyncio.CancelledError:
                await self._end_and_remove(folder)  # it was started, but the caller will not get its handle
                raise
            if answer.error is not None:
                raise TargetError(f"cannot start {job.name}: {answer.error}")
            if not answer.taken:  # else another process started it or was about to
                return

    async def _made(self, folder: JobFolder, submission: JobSubmission) -> JobSubmission | None:
        """Creates the folder once enough GPUs are free; the engine's queue limit ends the wait. None if another process
        started the job meanwhile."""
        gpus = await reservations.gpus_of_machine() if submission.job.resources.gpu.count else []
        until_s = time.monotonic() + APPEAR_S
        while time.monotonic() < until_s:
            pause_s = 0.01
            try:
                os.makedirs(folder.path, 0o700, exist_ok=True)
                with folder.locked() as lock:
                    if folder.identity() is not None:
                        return None
                    free = lock is not None
                    if free and (submission.job.inputs or submission.job.ports or gpus):  # slow: use a thread
                        return await _to_its_end(asyncio.to_thread(_make, folder, submission, gpus))
                    if free:
                        return _make(folder, submission, gpus)
            except FileNotFoundError:
                pass  # a cleanup removed it before it had a claim
            except OSError as error:
                raise TargetError(f"cannot create the folder {folder.path}: {error}") from error
            except (TargetError, asyncio.CancelledError) as error:  # it was not started
                folder.remove()
                if not isinstance(error, TargetError) or error.outcome is not Outcome.QUEUE:
                    raise
                pause_s, until_s = reservations.LOOK_AGAIN_S, time.monotonic() + reservations.LOOK_AGAIN_S + APPEAR_S
            await asyncio.sleep(pause_s)
        raise TargetError(f"{folder.path} is locked by another process that did not start the job")

    def _choose_cpus(self, wanted: float | None) -> list[int]:
        """The least used CPUs, shared if there are too few; all if `wanted` is None."""
        allowed = sorted(os.sched_getaffinity(0))
        if wanted is None or wanted >= len(allowed):
            return allowed
        used = Counter(cpu for cpus in self._watcher.cpus() for cpu in cpus)
        return sorted(sorted(allowed, key=lambda cpu: used[cpu])[: max(1, math.ceil(wanted))])

    # ---- observing

    def cpus(self) -> int:
        return len(os.sched_getaffinity(0))

    def address(self) -> dict[str, str]:
        return {"state": str(self._state), "cache": str(self._cache)}

    async def watch(self) -> AsyncIterator[Event]:
        async for event in self._watcher.events():
            yield event

    async def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]:
        folder = self._folder(handle)
        async for block in read_log(folder.path, lambda: not alive(folder.identity()), follow):
            yield block

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        folder = self._folder(handle)
        # (14) Several hosts are processes of this machine.
        if path.startswith("hosts/") or (path == "files" and folder.kept_nothing()):
            return False
        if path.startswith("files"):
            return await asyncio.to_thread(fetch, folder.path, path, into)
        return fetch(folder.path, path, into)

    @contextlib.asynccontextmanager
    async def endpoint(self, handle: str, port: str) -> AsyncIterator[Endpoint]:
        folder = self._folder(handle)
        submission = folder.submission()
        ports = submission.ports if submission is not None else {}
        if port not in ports:
            raise refused(f"{handle} has no port {port!r}; it has: {', '.join(ports) or 'none'}")
        address = f"127.0.0.1:{ports[port]}"

        async def answers() -> str:
            if folder.end() is not None or not alive(folder.identity()):
                raise refused(f"{handle} has ended, so its port {port!r} is closed")
            return await accepts(address)

        await until_answered(answers, f"port {port!r} of {handle}")
        yield Endpoint(address)

    async def addresses(self, handle: str, asker: Mapping[str, Any]) -> dict[str, str]:
        return {}  # local callers open an endpoint, which has the same address; other machines cannot connect

    async def list(self, run: str | None = None) -> list[Found]:
        jobs = self._state / "jobs"
        found = []
        for path in sorted(jobs.glob("*/*" if run is None else f"{quote(run)}/*")):
            folder = JobFolder(path)
            if user := folder.other_user():
                found.append(msgspec.structs.replace(self._found(path, True, {}, path.stat().st_mtime), user=user))
                continue
            claim, identity = folder.claim(), folder.identity()
            if claim is not None and claim.host != self._host:
                continue  # a job of another machine in a shared home folder
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                labels = claim.job.labels if claim is not None else {}
                created_s = claim.created_s if claim is not None else path.stat().st_mtime
                found.append(self._found(path, alive(identity), labels, created_s))
        for path in jobs.glob("*" if run is None else quote(run)):
            with contextlib.suppress(OSError):
                if not os.listdir(path):  # a process was killed while it created or removed a job
                    handle, created_s = self._handle(path.name, ""), path.stat().st_mtime
                    found.append(Found(handle, "", path.name, False, {}, created_s))
        if run is None:  # also jobs without a folder; that takes longer, so only for all runs
            found += [self._found(path, True, {}, time.time()) for path in sorted(await strays(jobs))]
        return found

    def _found(self, path: Path, is_alive: bool, labels: dict[str, str], created_s: float) -> Found:
        name, run = path.name, path.parent.name
        return Found(self._handle(run, name), name, run, is_alive, labels, created_s)

    # ---- stopping

    async def cancel(self, handle: str) -> None:
        folder = self._folder(handle)
        self._watcher.mark_cancelled(handle)
        await self._stop(folder, await self._supervisor(folder))

    async def remove(self, handle: str) -> None:
        if handle.endswith("/"):  # a run without jobs
            with contextlib.suppress(OSError):  # a job was created meanwhile
                os.rmdir(self._path(f"{handle}job").parent)
            return
        path = self._path(handle)
        if path.exists():
            await self._end_and_remove(JobFolder(path))
        elif path in await strays(self._state / "jobs"):
            await remove_stray(path)
        self._watcher.forget(handle)

    async def _end_and_remove(self, folder: JobFolder) -> None:
        identity = await self._supervisor(folder)
        await self._stop(folder, identity)
        # A job that killed its supervisor could have written end.json itself; a supervisor removes its cgroups first.
        if folder.end() is None or (identity is not None and any(map(os.path.isdir, identity.cgroups))):
            submission = folder.submission()
            if identity is not None:
                await asyncio.to_thread(end_leftovers, folder.path, identity.cgroups)
            else:
                await asyncio.to_thread(end_unsupervised, folder.path)
            if submission is not None and submission.container:
                await remove_container(submission.engine, submission.container)
        if not folder.remove_shallow():
            await asyncio.to_thread(folder.remove)

    async def _supervisor(self, folder: JobFolder) -> ProcessIdentity | None:
        """The job's supervisor, alive or not; None if it was never started or its identity is lost. A job can delete or
        damage these files; a live supervisor restores them."""
        until_s = time.monotonic() + APPEAR_S
        while (identity := folder.identity()) is None or folder.submission() is None:
            try:
                with folder.locked() as lock:
                    if lock is not None:
                        return folder.identity()
            except OSError:  # the whole folder is gone
                return None
            if time.monotonic() > until_s and identity is not None:
                return identity
            if time.monotonic() > until_s:
                raise TargetError(f"{folder.path} is locked by an unknown process")
            await asyncio.sleep(0.05)
        return identity

    async def _stop(self, folder: JobFolder, identity: ProcessIdentity | None) -> None:
        """Asks the job to stop; kills its supervisor if it does not exit within its grace and some more."""
        if not alive(identity):
            return
        assert identity is not None
        submission = folder.submission()
        within_s = _FORCE_S + (submission.job.limits.grace_s if submission else 0.0)
        for number, wait_s in ((signal.SIGTERM, within_s), (signal.SIGKILL, _FORCE_S)):
            if await ends(identity, number, wait_s):
                return

    # ---- handles

    def _handle(self, run: str, name: str) -> str:
        return f"local://{quote(self._host)}/{quote(run)}/{quote(name)}"

    def _path(self, handle: str) -> Path:
        host, run, name = handle_parts(handle, "local://HOST/RUN/NAME")
        if host != self._host:
            raise refused(f"{handle} runs on another machine; use it there (this is {self._host})")
        return job_path(self._state, run, name)

    def _folder(self, handle: str) -> JobFolder:
        path = self._path(handle)
        if not path.exists():
            raise TargetError(f"job not found: {handle} ({path} does not exist)")
        return JobFolder(path)


def _check(job: Job) -> None:
    if job.resources.select:
        raise refused("a local target has no node labels to select by; remove `select` from the machine")
    names = [port.name for port in job.ports]
    for name in names:
        if not _PORT_NAME.fullmatch(name) or names.count(name) > 1:
            use = "use up to 15 lower case letters, digits and dashes, and each name once"
            raise refused(f"invalid port name {name!r}; {use}")
    if job.ready is not None and job.ready.port not in names:
        raise refused(f"`ready` names port {job.ready.port!r}, but the job has no such port")


def _make(folder: JobFolder, submission: JobSubmission, gpus: Sequence[reservations.LocalGpu]) -> JobSubmission:
    before = folder.submission() if submission.job.ports else None
    with reservations.locked_gpus(folder) if gpus else contextlib.nullcontext():
        if gpus:
            given = reservations.choose_gpus(gpus, submission.job.resources.gpu.count, folder, submission.host)
            submission = msgspec.structs.replace(submission, gpus=given)
        folder.make(submission)
        with reservations.reserved(folder, submission, before) as ports:
            submission = msgspec.structs.replace(submission, ports=ports)
            folder.write(submission)
    return submission


async def _to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Finishes `work` even if this task is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
