"""What of a cluster is in order for the target, and what to do about the rest."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from seatrial.job import Environment, Job, Outcome, Step
from seatrial.kubernetes import (
    JOBS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUME_CLAIMS,
    Forbidden,
    Kubernetes,
    KubernetesError,
    NotFound,
    Resource,
    Right,
    Tree,
    grant_yaml,
    load_access,
    workload_rights,
)
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.errors import needed
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.submit import try_job, try_run_object
from seatrial.targets.kubernetes.watch.feeds import NodeObject
from seatrial.targets.protocol import Diagnostic, DiagnosticLevel, TargetError, ok, problem, warning

_PATIENCE_S = 10.0
ENFORCED = "pod-security.kubernetes.io/enforce"
_SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues")


async def examine_cluster(options: KubernetesOptions) -> list[Diagnostic]:
    try:
        access = load_access(options.kubeconfig, options.context)
        access = replace(access, namespace=options.namespace or access.namespace)
    except KubernetesError as error:
        return [problem("kubeconfig", str(error), "set `context` or `kubeconfig` of the target")]
    async with Kubernetes(access, patience_s=_PATIENCE_S) as client:
        where = f"context {access.context or '(none)'} of {access.source}, {access.server}"
        try:
            version = await client.version()
            user = (await client.create(_SELF_REVIEW, Tree)).status["userInfo"]["username"]
        except KubernetesError as error:
            return [problem("API server", f"{where}: {error}", "kubectl version should work first")]
        first = ok("API server", f"{version} at {access.server}, as {user}")
        return [first, *[diagnostic async for diagnostic in _Examination(client, options, user).diagnostics()]]


class _Examination:
    def __init__(self, client: Kubernetes, options: KubernetesOptions, user: str) -> None:
        self._client, self._options, self._user = client, options, user
        self._namespace = client.access.namespace

    async def diagnostics(self) -> AsyncIterator[Diagnostic]:
        there = await self._namespace_there()
        yield there
        if there.level is DiagnosticLevel.PROBLEM:
            return
        allowed = await self._rights()
        yield allowed
        for resource, name, field in self._named():
            yield await self._there(resource, name, field)
        if allowed.level is DiagnosticLevel.OK:
            yield await self._rights_for_scale()
            yield await self._dry_run()
        yield await self._gpus()

    async def _namespace_there(self) -> Diagnostic:
        what = f"namespace {self._namespace}"
        try:
            found = await self._client.get(NAMESPACES, self._namespace)
        except NotFound:
            return problem(what, "is not there", f"kubectl create namespace {self._namespace}")
        except Forbidden:
            return ok(what, "may not be read, which is no harm")
        except KubernetesError as error:
            return problem(what, str(error))
        enforced = found.metadata.labels.get(ENFORCED, "")
        if enforced == "restricted" and self._options.security != "restricted":
            fix = "leave `security` of the target out, or use a namespace that allows more"
            return problem(what, f"takes only restricted pods; security: {self._options.security}", fix)
        return ok(what, f"enforces pod security {enforced}" if enforced else "is there")

    async def _missing(self, wanted: Sequence[Right]) -> list[Right]:
        answers = await asyncio.gather(*(self._client.can(right) for right in wanted))
        return [right for right, allowed in zip(wanted, answers, strict=True) if not allowed]

    async def _rights_for_scale(self) -> Diagnostic:
        """Only trials of kind scale need these: that they are missing is no problem of the target."""
        what, wanted = "rights for scale trials", workload_rights(JOBS, self._namespace)
        try:
            missing = await self._missing(wanted)
        except KubernetesError as error:
            return warning(what, f"cannot be asked for: {error}")
        listed = "; ".join(map(str, missing))
        why = f"{len(missing)} of {len(wanted)} are missing, which other trials do not need: {listed}"
        return ok(what, why if missing else f"all {len(wanted)} that are needed for Jobs")

    async def _rights(self) -> Diagnostic:
        wanted = needed(self._options, self._namespace)
        try:
            missing = await self._missing(wanted)
        except KubernetesError as error:
            return warning("rights", f"cannot be asked for: {error}")
        if not missing:
            return ok("rights", f"all {len(wanted)} that are needed")
        listed = "; ".join(map(str, missing))
        fix = f"an administrator applies this:\n{grant_yaml(missing, self._user)}"
        return problem("rights", f"{len(missing)} of {len(wanted)} are missing: {listed}", fix)

    def _named(self) -> Iterable[tuple[Resource, str, str]]:
        """What the options name and others have to have made."""
        options = self._options
        if options.service_account:
            yield SERVICE_ACCOUNTS, options.service_account, "service_account"
        if options.priority:
            yield PRIORITY_CLASSES, options.priority, "priority"
        if options.queue:
            yield LOCAL_QUEUES, options.queue, "queue"
        for name in options.pull_secrets:
            yield SECRETS, name, "pull_secrets"
        for volume in options.volumes:
            if volume.claim:
                yield VOLUME_CLAIMS, volume.claim, "volumes"

    async def _there(self, resource: Resource, name: str, field: str) -> Diagnostic:
        what = f"{field}: {name}"
        try:
            await self._client.get(resource, name)
        except NotFound as error:
            return problem(what, str(error), f"make it, or correct `{field}` of the target")
        except KubernetesError as error:
            return warning(what, f"cannot be read: {error}")
        return ok(what, "is there")

    async def _dry_run(self) -> Diagnostic:
        """The whole of our manifest with the user's template, tried on the server."""
        what = "a job's manifest"
        image = self._options.image or "localhost/any"
        job = Job(
            name="doctor", run="doctor", cell="doctor", attempt=1, title="doctor",
            steps=(Step("run true", "command", {"command": "true"}),), environment=Environment(image=image),
        )  # fmt: skip
        try:
            owner = manifest.owner(JOBS, names.run_object_name("doctor"), manifest.NO_UID)
            fixed: dict[str, Any] = {"agent": "agent", "inputs": [], "secrets": {}}
            made = manifest.make(job, self._options, namespace=self._namespace, run_owner=owner, **fixed)
            await try_run_object(self._client, self._options, "doctor", image)
            tried = await try_job(self._client, self._options, made)
        except (KubernetesError, TargetError) as error:
            refused = isinstance(error, TargetError) and error.outcome is Outcome.REFUSED
            return problem(what, str(error), "correct the target's options" if refused else "")
        pods = (
            "" if tried else "; its pod was not tried, for want of the right to create pods, which nothing else needs"
        )
        return ok(what, f"is accepted by the server (dry run){pods}")

    async def _gpus(self) -> Diagnostic:
        counts: Counter[str] = Counter()
        options = self._options
        others = (model.resource for model in options.gpu_models.values() if model.resource)
        wanted = sorted({options.gpu_resource, *others})
        nodes = 0
        try:
            async for node in self._client.list(NODES, NodeObject):
                nodes += 1
                for resource in wanted:
                    amount = node.status.allocatable.get(resource, "0")
                    counts[resource] += int(amount) if amount.isdigit() else 0
        except KubernetesError:
            return ok("nodes", "may not be listed: how many GPUs there are is not known")
        if not nodes:
            fix = "jobs wait until one joins, or an autoscaler adds one"
            return warning("nodes", "there are none", fix)
        listed = ", ".join(f"{counts[resource]} {resource}" for resource in wanted)
        return ok("nodes", f"{nodes}, with {listed}")
