"""The driver itself: prepare, send, follow to the end, clean up, and say what was seen.

1. Before the clock starts the manifest is checked by the server (a dry run), and the watch has seen all that is there.
2. A driver that was killed makes what is missing and looks again at all of it. Its open loop was broken, and it says
   so: what it measures of the whole is then not to be judged.
3. Whatever happens, what it made is deleted, and it says so only when nothing of it is left."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import orjson

from seatrial.drive.arrivals import offsets
from seatrial.drive.driver import Driver, DriverError
from seatrial.drive.scale.canary import Canary
from seatrial.drive.scale.stages import (
    Arrived,
    Reached,
    failed_workloads,
    lateness,
    rate_of,
    reached_stages,
    read_stamps,
    share_of,
    stage_figures,
)
from seatrial.drive.scale.submit import Submitted, Submitter, render
from seatrial.drive.scale.watch import SYNCED, WatchWork
from seatrial.job import convert
from seatrial.job.scale import (
    CREATED,
    NAME,
    NUMBER,
    STAGES,
    STAMPS,
    SUBMITTED,
    WORKLOAD_LABEL,
    ScaleWork,
    Stamp,
    WholeScale,
)
from seatrial.kubernetes import PODS, AlreadyExists, Kubernetes, KubernetesError, Resource, load_access
from seatrial.target import TargetError
from seatrial.target.kubernetes.belongings import Belongings
from seatrial.target.kubernetes.manifest.marks import pod_metadata
from seatrial.target.kubernetes.options import KubernetesOptions

POLL_S = 0.25
GONE_S = 600.0  # for the deletion of all workloads
WATCH_S = 60.0  # for the first list
MOST_PROBLEMS = 5


async def drive(driver: Driver) -> None:
    work = convert(driver.work, ScaleWork)
    if driver.peer is None or driver.peer.kind != "kubernetes":
        raise DriverError("a scale trial needs a target of kind kubernetes: name one as the trial's `target`")
    options = KubernetesOptions.model_validate(driver.peer.options)
    try:
        access = load_access(options.kubeconfig, options.context)
        access = replace(access, namespace=options.namespace or access.namespace)
        async with (
            Kubernetes(access, at_once=work.at_once) as client,
            Belongings(client, options, work.run, work.cell, work.attempt) as mine,
        ):
            await _Scale(driver, work, client, mine, options).run()
    except (KubernetesError, TargetError) as error:
        raise DriverError(f"the cluster cannot be used: {error}") from error


class _Scale:
    def __init__(
        self, driver: Driver, work: ScaleWork, client: Kubernetes, mine: Belongings, options: KubernetesOptions
    ) -> None:
        self._driver, self._work, self._client, self._mine, self._options = driver, work, client, mine, options
        self._submitted = Submitted(driver.files / SUBMITTED)
        self._again = bool(self._submitted.all) or "start" in driver.finished or "start" in driver.unknown

    async def run(self) -> None:
        resource = await self._client.resource_of(self._work.manifest)
        manifest = self._own(resource)
        await self._check(resource, manifest)
        try:
            async with self._watching(), Canary(self._client, self._mine, self._work.prefix) as canary:
                await self._send(resource, manifest)
                end_s = await self._settle()
            self._report(end_s, canary.lags(self._driver.files / STAMPS))
        finally:
            await self._clean(resource)

    def _own(self, resource: Resource) -> dict[str, Any]:
        """With a label on the workload and on its pods that says which one it is."""
        made = self._mine.own(self._work.manifest, resource)
        made["metadata"]["name"] = NAME
        for metadata in (made["metadata"], *pod_metadata(made.get("spec"))):
            metadata["labels"][WORKLOAD_LABEL] = NUMBER
        return made

    async def _check(self, resource: Resource, manifest: dict[str, Any]) -> None:
        """A template that the server refuses is told before the first one is sent."""
        body = render(orjson.dumps(manifest), self._work.prefix, 0)
        try:
            await self._client.create(body, resource=resource, name=f"{self._work.prefix}-0", dry_run=True)
        except AlreadyExists:
            return  # by an earlier life of this driver
        except KubernetesError as error:
            raise DriverError(f"the server refuses such a {resource.kind}: {error}") from error

    async def _send(self, resource: Resource, manifest: dict[str, Any]) -> None:
        work, driver = self._work, self._driver
        times = offsets(work.arrivals, work.count, seed=work.seed)
        if not self._again:
            driver.begin("start")
        submitter = Submitter(self._client, resource, work, manifest, self._submitted)
        telling = asyncio.create_task(self._tell(len(times)))
        try:
            await submitter.run(times, time.monotonic() + POLL_S, driver.stopping)
        finally:
            telling.cancel()
        if not self._again:
            driver.finish("start")

    async def _tell(self, count: int) -> None:
        while True:
            self._driver.progress(f"{len(self._submitted.all):,} of {count:,} workloads submitted")
            await asyncio.sleep(5)

    async def _settle(self) -> float:
        """Until all have come as far as they should, or their time is over; when that was."""
        until_s = time.monotonic() + self._work.settle_s
        made = {number for number, one in self._submitted.all.items() if one.acknowledged_s is not None}
        arrived = Arrived(self._driver.files / STAMPS, self._work.until, self._work.pods)
        while time.monotonic() < until_s and not self._driver.stopping.is_set():
            there = made if self._work.until == CREATED else arrived.look()
            if made <= there:
                break
            self._driver.progress(f"{len(there):,} of {len(made):,} workloads {self._work.until}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._driver.stopping.wait(), POLL_S)
        return time.monotonic()

    # ---- the watch

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        path = self._driver.files / "watch.json"
        stamps = self._driver.files / STAMPS
        last_s = max((stamp.at_s for stamp in self._stamps()), default=None)
        kubeconfig = str(self._options.kubeconfig.expanduser().absolute()) if self._options.kubeconfig else None
        namespace = self._client.access.namespace
        work = WatchWork(kubeconfig, self._options.context, namespace, self._mine.selector, str(stamps), last_s)
        path.write_bytes(msgspec.json.encode(work))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "seatrial.drive.scale.watch", str(path),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(WATCH_S):
                first = await process.stdout.readline()
            if first.strip().decode() != SYNCED:
                raise DriverError(f"the watch of the workloads ended at once, with {await process.wait()}")
            yield
            if process.returncode is not None:
                raise DriverError(f"the watch of the workloads ended before they did, with {process.returncode}")
        except TimeoutError:
            raise DriverError(f"the watch of the workloads saw nothing within {WATCH_S:g} s") from None
        finally:
            process.stdin.close()
            if process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            path.unlink(missing_ok=True)

    def _stamps(self) -> list[Stamp]:
        return read_stamps(self._driver.files / STAMPS)

    def _reached(self) -> Reached:
        return reached_stages(self._submitted.all, self._stamps(), self._work.pods)

    # ---- what was seen

    def _report(self, end_s: float, lags: list[float]) -> None:
        submissions, reached = self._submitted.all, self._reached()
        late = lateness(submissions.values())
        lag_s = share_of(lags, 0.99)
        for stage in STAGES:
            if reached.times[stage] or stage == self._work.until:
                figures = stage_figures(stage, submissions, reached, end_s, lag_s)
                self._driver.note("stage", **msgspec.to_builtins(figures))
        whole = WholeScale(
            count=self._work.count,
            submitted=sum(one.acknowledged_s is not None for one in submissions.values()),
            failed=failed_workloads(submissions, reached),
            unfinished=self._work.count - len(reached.times[self._work.until]),
            refused=sum(len(one.refusals) for one in submissions.values()),
            problems=sorted({one.problem for one in submissions.values() if one.problem})[:MOST_PROBLEMS],
            rate=rate_of(one.sent_s for one in submissions.values() if one.sent_s is not None),
            offered_rate=rate_of(one.intended_s for one in submissions.values()),
            late_p99_s=share_of(late, 0.99),
            lag_p50_s=share_of(lags, 0.5),
            lag_p99_s=lag_s,
            lags=len(lags),
            again=self._again,
            stopped=self._driver.stopping.is_set(),
        )
        self._driver.note("whole", **msgspec.to_builtins(whole))

    async def _clean(self, resource: Resource) -> None:
        """Deleted by their label, together; and waited for."""
        self._submitted.close()
        begun_s, chosen = time.monotonic(), self._mine.selector
        asked, left, problem = False, True, ""
        while left and time.monotonic() - begun_s < GONE_S:
            try:
                if not asked:
                    await self._client.delete_all(resource, labels=chosen, grace_s=0)
                asked, problem = True, ""
                left = any([await self._client.has_any(one, labels=chosen) for one in {resource, PODS}])
            except KubernetesError as error:
                problem = str(error)
                if error.lasting:  # a right that is missing does not come by waiting
                    break
            if left:
                await asyncio.sleep(POLL_S)
        self._driver.note("clean", left=left, seconds=time.monotonic() - begun_s, problem=problem)
