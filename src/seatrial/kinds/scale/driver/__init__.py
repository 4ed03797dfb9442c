"""The load generator of scale trials: creates workloads on schedule, follows their stages, and reports metrics."""

import asyncio
import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from seatrial.kinds.arrivals import Arrivals, offsets
from seatrial.kinds.driver import Driver, DriverError, in_background, wait_for
from seatrial.kinds.scale import work as records
from seatrial.kinds.scale.driver import stages
from seatrial.kinds.scale.driver.audit import use_audit
from seatrial.kinds.scale.driver.cluster import ClusterWorkloads
from seatrial.kinds.scale.driver.health import PrometheusSampler
from seatrial.kinds.scale.driver.plan import PlannedWorkload, SubmissionPlan, WorkloadTarget
from seatrial.kinds.scale.driver.processes import ProcessWorkloads
from seatrial.kinds.scale.driver.submit import Submitter
from seatrial.kinds.scale.followed import CREATED, DELETED, DELTAS, FINISHED, SCHEDULED, STAGES
from seatrial.kinds.search import Flow, Try, measure_flow, search_rate
from seatrial.kubernetes import KubernetesError
from seatrial.targets import HasApi, HasProcesses, TargetError

_POLL_S = 0.25
_LEAD_S = 0.25  # before the first send
REPORT_S = 5.0
_STUCK_S = 10.0  # without progress, before and between two looks at the reasons
_MOST_REASONS = 5
LAG_WITHIN_S = 60.0  # time limit for the first measurement of the watch lag
_LONGER = 3  # times the workloads, when a rate is tried a second time
_CLOSE = 1.05  # a search ends when the lowest broken rate is at most this many times the highest that holds
EXTRA_AT_ONCE = 64  # concurrent requests for workloads outside the metrics


async def drive(driver: Driver) -> None:
    work = driver.work_as(records.ScaleWork)
    if (job := driver.job) is not None:
        digest = hashlib.sha256(f"{job.run} {job.cell} {job.attempt}".encode()).hexdigest()[:8]
        work = msgspec.structs.replace(work, prefix=f"scale-{digest}", **msgspec.structs.asdict(job))
    plan, target = SubmissionPlan(work), driver.target()
    if isinstance(target, HasApi):
        namespaces = tuple(one.namespace for one in plan.samples() if one.namespace)
        inside = bool(work.version)  # only a load generator on the cluster is given a version
        try:
            async with target.api(work.run, work.cell, work.attempt, namespaces, work.at_once, inside) as mine:
                await _Scale(driver, work, plan, ClusterWorkloads(driver, work, plan, mine)).run()
        except (KubernetesError, TargetError) as error:
            driver.note("unusable")
            raise DriverError(f"cannot use the cluster: {error}") from error
    elif isinstance(target, HasProcesses):
        await _Scale(driver, work, plan, ProcessWorkloads(driver, work, plan, target.cpus())).run()
    else:
        raise DriverError(f"a scale trial needs a Kubernetes target or this machine; target {target.name} is neither")


class _Scale:
    def __init__(self, driver: Driver, work: records.ScaleWork, plan: SubmissionPlan, place: WorkloadTarget) -> None:
        self._driver, self._work, self._plan, self._place = driver, work, plan, place
        self._stamps = driver.files / records.STAMPS
        self._submitter = Submitter(place, driver.files, driver.stopping)
        self._tracker = stages.StageTracker(self._stamps, work.until, plan.pods())
        self._measured, self._reached = records.MeasuredScale(), stages.Reached({}, set())
        self._waiting: dict[str, int] = {}
        self._again = bool(self._submitter.submitted.all) or "start" in driver.finished or "start" in driver.unknown

    async def run(self) -> None:
        sampler = PrometheusSampler(self._work.prometheus or records.Prometheus("", {}))
        try:
            await self._place.check()
            if not self._again:
                self._driver.begin("start")
            async with self._place.watching():
                if (background := self._work.background) is not None:  # can never be scheduled
                    await self._create_extra("background", self._plan.background, background, CREATED)
                if (fill := self._work.fill) is not None:  # occupies the cluster before the measured ones
                    await self._create_extra("fill", self._plan.fill, fill, self._work.until)
                first_lag = len(self._place.lags())  # the lag of earlier phases does not count
                async with in_background(sampler.sample()):
                    if self._work.find is not None:
                        await self._find_limit(self._work.find)
                    else:
                        await (self._observe(self._work.observe) if self._work.observe else self._send())
                        planned = [*self._plan.measured, *self._plan.later]
                        self._report(*self._metrics(planned, await self._settle(planned, first_lag), first_lag))
                for one in sampler.results.values():
                    self._driver.note("query", **msgspec.to_builtins(one))
            if not self._again:
                self._driver.finish("start")
        finally:
            self._submitter.close()
            begun_s = time.monotonic()
            problem = await self._place.clean()
            self._driver.note("clean", left=bool(problem), seconds=time.monotonic() - begun_s, problem=problem)

    # ---- creating workloads

    async def _create_extra(
        self, name: str, planned: Sequence[PlannedWorkload], extra: records.ExtraWorkloads, stage: str
    ) -> None:
        async with self._reporting(name, planned):
            await self._submitter.closed_loop(planned, EXTRA_AT_ONCE)
        there = await self._wait(planned, stage, extra.within_s)
        if self._driver.stopping.is_set() or len(there) == len(planned):
            return
        problems = [one.problem for one in self._of(planned).values() if one.problem]
        problems += (await self._why_waiting(planned)).keys()
        why = f" within {extra.within_s:g} s{f': {problems[0]}' if problems else ''}"
        raise DriverError(f"{name} incomplete: {len(there)} of {len(planned)} workloads reached {stage}{why}")

    async def _send(self) -> None:
        work, measured = self._work, self._plan.measured
        async with self._reporting("workloads", measured):
            if work.arrivals.shape == "waves":
                await self._submitter.waves(measured, work.arrivals.burst, work.arrivals.every_s)
            elif work.arrivals.shape == "in_flight":
                done = None if work.until == CREATED else self._tracker.look
                await self._submitter.closed_loop(measured, work.arrivals.burst, done)
            else:
                times = self._send_times(work.arrivals, work.count)
                await self._submitter.open_loop(measured[: len(times)], times, time.monotonic() + _LEAD_S)
        if work.churn is not None:
            await self._settle(measured)
            start_s = time.monotonic() + _LEAD_S
            made = self._of(measured).items()
            ages = {number: start_s - one.acknowledged_s for number, one in made if one.acknowledged_s is not None}
            churn = self._plan.churn(work.churn, ages)
            async with self._reporting("replacements", self._plan.later):
                times, replaced = [at_s for at_s, _ in churn], [one for _, one in churn]
                await self._submitter.open_loop(self._plan.later, times, start_s, replaced)

    async def _observe(self, observe: records.Observe) -> None:
        """Watches the workloads that others create meanwhile."""
        until_s = time.monotonic() + observe.seconds

        def seen() -> list[records.Stamp]:
            return [stamp for stamp in stages.read_stamps(self._stamps) if stamp.stage == CREATED]

        while (left_s := until_s - time.monotonic()) > 0:
            self._driver.progress(f"{len(seen()):,} workloads of others in {observe.seconds - left_s:.0f} s")
            if await wait_for(self._driver.stopping, min(left_s, REPORT_S)):
                break
        of = self._work.classes[0].name
        for one in seen():
            self._submitter.submitted.add(records.Submission(one.workload, one.at_s, one.at_s, one.at_s, 1, of=of))
        self._plan.adopt(self._submitter.submitted.all.values())
        self._tracker = stages.StageTracker(self._stamps, self._work.until, self._plan.pods())

    def _send_times(self, arrivals: Arrivals, count: int) -> list[float]:
        try:
            return offsets(arrivals, count, seed=self._work.seed)
        except ValueError as error:
            raise DriverError(str(error)) from error

    async def _find_limit(self, find: records.Find) -> None:
        """Creates new workloads for each rate, and deletes them before the next."""
        work, place = self._work, self._place
        tries: list[records.TriedRate] = []

        async def attempt(rate: float, longer: bool) -> Try[tuple[records.ScaleSummary, list[records.StageMetrics]]]:
            planned, lags = self._plan.round(len(tries), _LONGER if longer else 1), len(place.lags())
            self._tracker = stages.StageTracker(self._stamps, work.until, self._plan.pods())
            times = self._send_times(msgspec.structs.replace(work.arrivals, rate=rate), len(planned))
            async with self._reporting(f"workloads at {rate:.4g}/s", planned):
                await self._submitter.open_loop(planned, times, time.monotonic() + _LEAD_S)
            whole, found = self._metrics(planned, await self._settle(planned, lags), lags)
            if problem := await place.clean(planned[0].phase):
                raise DriverError(f"workloads at {rate:.4g}/s were not all deleted: {problem}")
            broken, doubts = records.broken_scale_bounds(find.bounds, whole, found, exact=False)
            if longer and whole.unfinished and self._waiting:
                room = f"{len(planned):,} workloads may not fit: {next(iter(self._waiting))}"
                broken, doubts = [], [f"{room}; lower `count`"]
            elif not broken:
                done = next(one for one in found if one.name == work.until)
                behind, doubt = records.falls_behind(self._flow(planned), whole, done, rate, longer)
                broken, doubts = [behind] if behind else [], [*doubts, doubt] if doubt else doubts
            doubt = "; ".join([*records.doubts_of(whole), *([] if broken else doubts)])
            tries.append(records.TriedRate(rate, whole.rate, broken, doubt))
            return Try(rate, broken, doubt, (whole, found))

        def is_over() -> bool:
            return self._driver.stopping.is_set() or (self._again and bool(tries))

        done = await search_rate(work.arrivals.rate, find.most_rate, attempt, is_over, _CLOSE)
        self._driver.note("limit", **msgspec.to_builtins(records.FoundLimit(tries, done.low, done.high, done.doubt)))
        if done.holds or done.tries:
            self._report(*(done.holds or done.tries[-1].result))

    def _flow(self, planned: Sequence[PlannedWorkload]) -> Flow | None:
        """How many workloads were under way while these were sent."""
        starts = sorted((one.intended_s, number) for number, one in self._of(planned).items())
        begun_s, reached = min(starts, default=(0.0, 0))[0], self._reached.times[self._work.until]
        ends = [reached[number][1] - begun_s if number in reached else math.inf for _, number in starts]
        times = [at_s - begun_s for at_s, _ in starts]
        return measure_flow(times, ends, max(times, default=0.0))

    def _reporting(self, what: str, planned: Sequence[PlannedWorkload]) -> AbstractAsyncContextManager[None]:
        async def report() -> None:
            while True:
                self._driver.progress(f"{len(self._of(planned)):,} of {len(planned):,} {what} submitted")
                await asyncio.sleep(REPORT_S)

        return in_background(report())

    def _of(self, planned: Sequence[PlannedWorkload]) -> dict[int, records.Submission]:
        every = self._submitter.submitted.all
        return {one.number: every[one.number] for one in planned if one.number in every}

    # ---- waiting for stages

    async def _settle(self, planned: Sequence[PlannedWorkload], first_lag: int = 0) -> float:
        """Waits until all workloads have reached their stage or time is up, and returns when that was. Also waits for a
        measurement of the watch lag."""
        there = await self._wait(planned, self._work.until, self._work.settle_s)
        end_s = time.monotonic()
        self._waiting = await self._why_waiting([one for one in planned if one.number not in there])
        while len(self._place.lags()) <= first_lag and time.monotonic() < end_s + LAG_WITHIN_S:
            if await wait_for(self._driver.stopping, _POLL_S):
                break
        return end_s

    async def _why_waiting(self, planned: Sequence[PlannedWorkload]) -> dict[str, int]:
        """The number of workloads by reason, the most frequent first."""
        reasons = await self._place.waiting() if planned else {}
        counted = Counter(reasons[one.number][0] for one in planned if one.number in reasons)
        return dict(counted.most_common(_MOST_REASONS))

    async def _wait(self, planned: Sequence[PlannedWorkload], stage: str, within_s: float) -> set[int]:
        """Waits until all have reached the stage. Stops early if the rest can never get there."""
        until_s, look_s = time.monotonic() + within_s, time.monotonic() + _STUCK_S
        reached, stuck = 0, set[int]()
        made = {number for number, one in self._of(planned).items() if one.acknowledged_s is not None}
        made -= set(self._submitter.deleted.all)
        while True:
            there = made if stage == CREATED else made & self._tracker.look()
            if made <= there or time.monotonic() >= until_s or self._driver.stopping.is_set():
                return there
            if len(there) > reached:
                reached, stuck, look_s = len(there), set(), time.monotonic() + _STUCK_S
            elif time.monotonic() >= look_s:
                lasting = {number for number, (_, lasts) in (await self._place.waiting()).items() if lasts}
                if made - there <= lasting & stuck:
                    return there
                stuck, look_s = lasting, time.monotonic() + _STUCK_S
            self._driver.progress(f"{len(there):,} of {len(made):,} workloads {stage}")
            await wait_for(self._driver.stopping, _POLL_S)

    # ---- metrics

    def _metrics(
        self, planned: Sequence[PlannedWorkload], end_s: float, first_lag: int
    ) -> tuple[records.ScaleSummary, list[records.StageMetrics]]:
        # NumPy takes 14 MB: not loaded in the process that watches, nor here while workloads are sent.
        from seatrial.kinds.scale.driver import durations

        work, found = self._work, list[records.StageMetrics]()
        measured_lags = self._place.lags()[first_lag:]
        lags = [lag_s for _, lag_s in measured_lags]
        submissions = self._of(planned)
        stamps, pods = stages.read_stamps(self._stamps), self._plan.pods()
        reached = stages.reached_stages(submissions, stamps, pods)
        audit, exact = None, {}
        if work.audit_log:
            reached, audit = use_audit(Path(work.audit_log), work.prefix, submissions, reached, pods)
            known = () if audit.problem else (SCHEDULED, f"{CREATED}..{SCHEDULED}")
            exact = dict.fromkeys(known, ("audit", audit.within_s))
        self._reached = reached
        measured = self._place.measured(submissions, stamps, end_s)
        self._measured = msgspec.structs.replace(measured, evicted_by=reached.evicted_by, audit=audit)
        gone = {one.number: one.intended_s for one in self._submitter.deleted.all.values() if not one.problem}
        lag_s = stages.share_of(lags, 0.99)
        classes = [one.name for one in work.classes] if len(work.classes) > 1 else []
        for of in ("", *classes):
            some = {number: one for number, one in submissions.items() if of in ("", one.of)}
            timeline = durations.timeline_of(some, reached, end_s, gone)
            seen = {stage for stage in STAGES if (timeline.at(stage)[1] < math.inf).any()}
            for stage in (*DELTAS, *(stage for stage in STAGES if stage != CREATED or not work.observe)):
                if some and (seen.issuperset(stage.split("..")) or stage == work.until):
                    source, resolution_s = exact.get(stage, ("watch", lag_s))
                    found.append(durations.stage_metrics(stage, timeline, resolution_s, of, source, measured_lags))
        fill = {one.number for one in self._plan.fill if work.until not in (FINISHED, DELETED)}
        whole = stages.summary_of(
            len(planned),
            submissions,
            reached,
            work.until,
            self._submitter.deleted.all.values(),
            lags,
            again=self._again,
            stopped=self._driver.stopping.is_set(),
            waiting=self._waiting,
            fill_ended=len(fill & {*reached.times[FINISHED], *reached.times[DELETED]}),
            unreachable_s=sum(until_s - from_s for from_s, until_s in measured.outages),
        )
        return whole, found

    def _report(self, whole: records.ScaleSummary, found: Sequence[records.StageMetrics]) -> None:
        for stage in found:
            self._driver.note("stage", **msgspec.to_builtins(stage))
        self._driver.note("measured", **msgspec.to_builtins(self._measured))
        self._driver.note("whole", **msgspec.to_builtins(whole))
