"""Workloads on a Kubernetes cluster, in one or several namespaces.

In each namespace an object of the attempt owns everything, so that `remove`, `reap` and the cluster itself can delete
it. Manifests are rendered to bytes before the clock starts."""

import asyncio
import contextlib
import itertools
import math
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import msgspec

from seatrial.http.http1 import RequestAttempt
from seatrial.job import Outcome, decode
from seatrial.kinds.driver import Driver, DriverError, in_background
from seatrial.kinds.scale import work as records
from seatrial.kinds.scale.driver import health, watch
from seatrial.kinds.scale.driver.clock import ServerClock, agreements, measure_clock
from seatrial.kinds.scale.driver.health import ServerHealth, read_lines
from seatrial.kinds.scale.driver.plan import PlannedWorkload, SubmissionPlan
from seatrial.kinds.scale.driver.preflight import asked_of, limits_of
from seatrial.kinds.scale.driver.stages import read_stamps
from seatrial.kubernetes import PODS, AlreadyExists, Forbidden, Kubernetes, KubernetesError, Resource
from seatrial.kubernetes.objects import pod_metadata, pod_templates
from seatrial.targets import OwnedObjects, TargetError

NUMBER, PHASE = "SEATRIAL-WORKLOAD-NUMBER", "SEATRIAL-WORKLOAD-PHASE"  # placeholders in a manifest
PHASE_LABEL = "seatrial/phase"
_POLL_S = 0.25
PROBES_AT_ONCE = 4  # concurrent requests that measure the server
_GONE_S = 600.0  # time limit for deleting all workloads
AHEAD_S = 0.1  # connections for this many seconds of arrivals are opened in advance


class ClusterWorkloads:
    """Implements `WorkloadTarget`."""

    def __init__(self, driver: Driver, work: records.ScaleWork, plan: SubmissionPlan, mine: OwnedObjects) -> None:
        self._driver, self._work, self._plan = driver, work, plan
        self._client, self._mine, self._home = mine.client, mine, mine.namespaces[0]
        self._resources: dict[str, list[Resource]] = {}  # of the objects of each class
        self._manifests: dict[tuple[str, str], list[bytes]] = {}  # by class and namespace
        self._conditions = watch.ConditionWatch(mine, work.settle_s)
        self._canary = watch.Canary(mine, work.prefix)
        self._following, self._clock, self._health = watch.Following((), ()), ServerClock(), ServerHealth()

    async def check(self) -> None:
        """Raises DriverError if a permission is missing, before any workload is created."""
        await self.prepare()
        planned: dict[str, list[PlannedWorkload]] = {}
        for one in self._plan.all.values():
            planned.setdefault(one.namespace or self._home, []).append(one)
        asked = {namespace: asked_of(some, self._resources) for namespace, some in planned.items()}
        work, churn = self._work, self._work.churn is not None
        limits, missing = await limits_of(self._client, asked, work.arrivals.peak, work.at_once, churn)
        if missing:
            self._driver.note("unusable")
            what = f"missing permissions ({len(missing)}): {'; '.join(map(str, missing))}"
            raise DriverError(f"{what}; docs/scale.md has a Role that grants them")
        self._driver.note("preflight", limits=msgspec.to_builtins(limits))

    async def prepare(self) -> None:
        """Tries each class in each namespace in a dry run, so that bad templates are found before the first send. Also
        opens connections: a TLS handshake takes much longer than a create and would delay it."""
        for of in self._plan.classes:
            self._resources[of.name] = [await self._client.resource_of(one) for one in of.manifests]
        for one in self._plan.samples():
            what = ""
            try:
                with self._mine.errors():
                    self._manifests[one.of.name, one.namespace] = self._own(one)
                    for resource, name, body in self._rendered(one):
                        what = resource.kind
                        await self._create(one, resource, name, body, dry_run=True)
                        await self._try_pods(one, body)
            except TargetError as error:
                if error.outcome is Outcome.REFUSED:
                    self._driver.note("refused")
                raise DriverError(f"the server rejected the {what} ({one.of.name}) in a dry run: {error}") from error
        arrivals = self._work.arrivals
        at_once = min(arrivals.burst or math.ceil((arrivals.peak or 0.0) * AHEAD_S), self._work.at_once)
        opening = (self._client.version() for _ in range(at_once))
        await asyncio.gather(*opening, return_exceptions=True)  # a forbidden request opens a connection, too

    def _own(self, one: PlannedWorkload) -> list[bytes]:
        """The manifests with labels on the objects and their pods that identify the workload."""
        encoded = []
        for manifest, resource in zip(one.of.manifests, self._resources[one.of.name], strict=True):
            metadata = {**(manifest.get("metadata") or {}), "namespace": one.namespace or self._home}
            made = self._mine.own({**manifest, "metadata": metadata}, resource, one.of.built_in)
            if len(one.of.manifests) == 1 or "name" not in made["metadata"]:
                made["metadata"]["name"] = records.NAME
            for metadata in (made["metadata"], *pod_metadata(made.get("spec"))):
                metadata["labels"] |= {records.WORKLOAD_LABEL: NUMBER, PHASE_LABEL: PHASE}
            encoded.append(msgspec.json.encode(made))
        return encoded

    async def _try_pods(self, one: PlannedWorkload, body: bytes) -> None:
        """Dry run of pods that a controller creates later. Raises only the refusal of a policy, such as a pod security
        standard: the controller may change other fields."""
        made = decode(body, dict[str, Any])
        for template in pod_templates({"template": made}) if one.of.pods else ():
            metadata = template["metadata"] | {"name": self._name(one), "namespace": made["metadata"]["namespace"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            try:
                await self._client.create(pod, resource=PODS, dry_run=True)
            except KubernetesError as error:
                if isinstance(error, Forbidden) and error.missing is None and not error.of_quota:
                    raise

    def _rendered(self, one: PlannedWorkload) -> Iterator[tuple[Resource, str, bytes]]:
        """Each object of the workload, with its name."""
        texts = ((NUMBER, str(one.number)), (records.NAME, self._name(one)), (PHASE, one.phase))
        bodies, resources = self._manifests[one.of.name, one.namespace], self._resources[one.of.name]
        for body, resource, manifest in zip(bodies, resources, one.of.manifests, strict=True):
            for place, text in texts:
                body = body.replace(place.encode(), text.encode())
            named = manifest["metadata"].get("name", records.NAME) if len(bodies) > 1 else records.NAME
            yield resource, named.replace(records.NAME, self._name(one)), body

    async def _create(self, one: PlannedWorkload, resource: Resource, name: str, body: bytes, **how: Any) -> None:
        with contextlib.suppress(AlreadyExists):  # from before a restart
            await self._client.create(body, resource=resource, namespace=one.namespace or None, name=name, **how)

    def _name(self, one: PlannedWorkload) -> str:
        return f"{self._work.prefix}-{one.number}"

    async def create(self, one: PlannedWorkload, attempts: list[RequestAttempt]) -> None:
        for resource, name, body in self._rendered(one):
            await self._create(one, resource, name, body, attempts=attempts)
            for wait in one.of.wait:
                if wait.kind == resource.kind:
                    await self._conditions.wait(wait, one.namespace or self._home, name)

    async def delete(self, one: PlannedWorkload) -> None:
        for resource, name, _ in reversed([*self._rendered(one)]):
            await self._client.delete(resource, name, namespace=one.namespace or None, grace_s=0)

    # ---- the watch

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        namespaces, roots = self._mine.namespaces, {*itertools.chain(*self._resources.values())}
        stamps, observe = self._driver.files / records.STAMPS, self._work.observe
        manifests = [one for of in self._plan.classes for one in of.manifests]
        labelled, unused = watch.pods_labelled(manifests), watch.kinds_unused(manifests)
        if observe:
            roots = {await self._client.discovery.of_kind(observe.api_version, observe.kind)}
            labelled, unused = False, frozenset()
            stamps.unlink(missing_ok=True)  # after a restart, start over
        self._following = await watch.followed_on(
            self._client, roots, labelled, self._work.follow, namespaces, unused, observe.selector if observe else ""
        )
        last_s = max((stamp.at_s for stamp in read_stamps(stamps)), default=None)
        kubeconfig = str(self._mine.kubeconfig) if self._mine.kubeconfig else None
        work = watch.WatchWork(
            kubeconfig, self._mine.context, namespaces, self._mine.selector, str(stamps), self._work.prefix,
            self._following.watched, last_s,
        )  # fmt: skip
        of = [(one.wait, resource) for one in self._plan.classes for resource in self._resources[one.name]]
        waited = {(wait, resource) for waits, resource in of for wait in waits if wait.kind == resource.kind}
        async with (
            Kubernetes(self._client.access, at_once=PROBES_AT_ONCE) as probe,
            in_background(measure_clock(probe, self._clock)),
            self._health.measured(probe),
            self._conditions.watching(waited),
            watch.watching(work, self._driver.files / "watch.json"),
            self._canary.changing(),
        ):
            yield

    def lags(self) -> list[tuple[float, float]]:
        return self._canary.lags(self._driver.files / records.STAMPS)

    def measured(
        self, submissions: Mapping[int, records.Submission], stamps: list[records.Stamp], end_s: float
    ) -> records.MeasuredScale:
        lines = read_lines(self._driver.files / records.STAMPS)
        count, blind_s = health.gaps(lines)
        start_s = min((one.intended_s for one in submissions.values()), default=end_s)
        outages = health.outages_of(self._canary.attempts, start_s, end_s)
        idle_s, idle_pods = health.longest_idle(stamps, submissions.keys(), outages, end_s)
        return records.MeasuredScale(
            followed=[one.resource.title for one in self._following.watched],
            left_out=list(self._following.left_out),
            gaps=count,
            blind_s=blind_s,
            clock=self._clock.metrics(agreements(self._clock, stamps, submissions)),
            health=health.health_columns(submissions, self.lags(), lines, self._health.samples, end_s),
            outages=outages,
            idle_s=idle_s,
            idle_pods=idle_pods,
        )

    async def waiting(self) -> dict[int, tuple[str, bool]]:
        try:
            with self._mine.errors():
                if self._work.observe:
                    known = {one.pod: str(one.workload) for one in read_stamps(self._driver.files / records.STAMPS)}
                    found = await self._mine.waiting(lambda pod: known.get(pod.metadata.uid, ""), "")
                else:
                    found = await self._mine.waiting(lambda pod: pod.metadata.labels.get(records.WORKLOAD_LABEL, ""))
        except TargetError:
            return {}
        own = re.compile(rf"{re.escape(self._work.prefix)}-\d+[a-z0-9-]*")  # the same text for all workloads
        return {
            int(number): (own.sub("WORKLOAD", why), lasts)
            for number, (why, lasts) in found.items()
            if number.isdecimal()
        }

    # ---- deletion

    async def clean(self, phase: str = "") -> str:
        """Deletes workloads by label, some at a time, until none is left. Returns why some are; empty if none."""
        chosen = f"{self._mine.selector},{PHASE_LABEL}={phase}" if phase else self._mine.selector
        until_s, problem = time.monotonic() + _GONE_S, "some still exist"
        own = {*itertools.chain(*self._resources.values())}
        waiting = {(one, namespace) for one in own | {PODS} for namespace in self._mine.namespaces}
        while time.monotonic() < until_s:
            for resource, namespace in list(waiting):
                # Other resources are pods, which are deleted with their workloads.
                look = self._client.delete_some if resource in own else self._client.has_any
                try:
                    if not await look(resource, labels=chosen, namespace=namespace):
                        waiting.discard((resource, namespace))
                except KubernetesError as error:
                    problem = str(error)
                    if error.lasting:  # such as a missing permission: retrying does not help
                        return problem
            if not waiting:
                return ""
            await asyncio.sleep(_POLL_S)
        return problem
