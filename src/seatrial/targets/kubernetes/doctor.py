"""Diagnostics of a Kubernetes target for `seatrial doctor`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import seatrial.kubernetes as k8s
from seatrial.job import Environment, Job, Outcome, Step
from seatrial.targets.kubernetes.errors import needed
from seatrial.targets.kubernetes.manifest import make
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.submit import annotated, try_job, try_run_object
from seatrial.targets.kubernetes.watch.feeds import NodeObject
from seatrial.targets.protocol import Diagnostic, DiagnosticLevel, TargetError, ok, problem, warning

_PATIENCE_S = 10.0
ENFORCED = "pod-security.kubernetes.io/enforce"
_SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
LOCAL_QUEUES = k8s.Resource("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues")


def target_access(options: KubernetesOptions) -> k8s.Access:
    access = k8s.load_access(options.kubeconfig, options.context)
    return replace(access, namespace=options.namespace or access.namespace)


async def examine_cluster(options: KubernetesOptions) -> list[Diagnostic]:
    try:
        access = target_access(options)
    except k8s.KubernetesError as error:
        return [problem("kubeconfig", str(error), "set `context` or `kubeconfig` in the target")]
    async with k8s.Kubernetes(access, patience_s=_PATIENCE_S) as client:
        where = f"context {access.context or '(none)'} of {access.source}, {access.server}"
        try:
            version = await client.version()
            user = (await client.create(_SELF_REVIEW, k8s.Tree)).status["userInfo"]["username"]
        except k8s.KubernetesError as error:
            return [problem("API server", f"{where}: {error}", "check that `kubectl version` works")]
        first = ok("API server", f"{version} at {access.server}, as {user}")
        return [first, *[diagnostic async for diagnostic in _Examination(client, options, user).diagnostics()]]


class _Examination:
    def __init__(self, client: k8s.Kubernetes, options: KubernetesOptions, user: str) -> None:
        self._client, self._options, self._user = client, options, user
        self._namespace = client.access.namespace

    async def diagnostics(self) -> AsyncIterator[Diagnostic]:
        there = await self._namespace_there()
        yield there
        if there.level is DiagnosticLevel.PROBLEM:
            return
        allowed = await self._rights("permissions", needed(self._options, self._namespace))
        yield allowed
        options = self._options
        named: list[tuple[k8s.Resource, str, str | None]] = [
            (k8s.SERVICE_ACCOUNTS, "service_account", options.service_account),
            (k8s.PRIORITY_CLASSES, "priority", options.priority),
            (LOCAL_QUEUES, "queue", options.queue),
            *((k8s.SECRETS, "pull_secrets", name) for name in options.pull_secrets),
            *((k8s.VOLUME_CLAIMS, "volumes", volume.claim) for volume in options.volumes),
        ]
        for resource, field, name in named:
            if name:
                yield await self._there(resource, name, field)
        if allowed.level is DiagnosticLevel.OK:
            of_scale = k8s.workload_rights(k8s.JOBS, self._namespace)
            yield await self._rights("permissions for scale trials", of_scale, of_scale=True)
            yield await self._dry_run()
        yield await self._gpus()

    async def _namespace_there(self) -> Diagnostic:
        what = f"namespace {self._namespace}"
        try:
            found = await self._client.get(k8s.NAMESPACES, self._namespace)
        except k8s.NotFound:
            return problem(what, "not found", f"kubectl create namespace {self._namespace}")
        except k8s.Forbidden:
            return ok(what, "not readable (not required)")
        except k8s.KubernetesError as error:
            return problem(what, str(error))
        enforced = found.metadata.labels.get(ENFORCED, "")
        if enforced == "restricted" and self._options.security != "restricted":
            fix = "remove `security` from the target, or use a less restricted namespace"
            return problem(what, f"accepts only restricted pods (target: `security: {self._options.security}`)", fix)
        return ok(what, f"enforces pod security {enforced}" if enforced else "exists")

    async def _rights(self, what: str, wanted: Sequence[k8s.Right], of_scale: bool = False) -> Diagnostic:
        """`of_scale`: only scale trials need these permissions; missing ones are not a problem of the target."""
        try:
            allowed = await asyncio.gather(*(self._client.can(right) for right in wanted))
        except k8s.KubernetesError as error:
            return warning(what, f"cannot check: {error}")
        missing = [right for right, has in zip(wanted, allowed, strict=True) if not has]
        if not missing:
            return ok(what, f"all {len(wanted)} required{' for Jobs' if of_scale else ''}")
        count, listed = f"{len(missing)} of {len(wanted)} missing", "; ".join(map(str, missing))
        if of_scale:
            return ok(what, f"{count} (other trials do not need them): {listed}")
        fix = f"a cluster administrator can grant them: kubectl apply -f -\n{k8s.grant_yaml(missing, self._user)}"
        return problem(what, f"{count}: {listed}", fix)

    async def _there(self, resource: k8s.Resource, name: str, field: str) -> Diagnostic:
        """Whether an existing object that the options name is there."""
        what = f"{field}: {name}"
        try:
            await self._client.get(resource, name)
        except k8s.NotFound as error:
            return problem(what, str(error), f"create it, or correct `{field}` in the target")
        except k8s.KubernetesError as error:
            return warning(what, f"cannot check: {error}")
        return ok(what, "exists")

    async def _dry_run(self) -> Diagnostic:
        """Dry run of a complete manifest, with the user's template, on the server."""
        what, image = "job manifest", self._options.image or "localhost/any"
        job = Job(
            name="doctor", run="doctor", cell="doctor", attempt=1, title="doctor",
            steps=(Step("run true", "command", {"command": "true"}),), environment=Environment(image=image),
        )  # fmt: skip
        try:
            made = annotated(job, make(job, self._options, namespace=self._namespace))
            await try_run_object(self._client, self._options, "doctor", image)
            tried = await try_job(self._client, self._options, made)
        except (k8s.KubernetesError, TargetError) as error:
            refused = isinstance(error, TargetError) and error.outcome is Outcome.REFUSED
            text, _, fix = str(error).partition("\n") if refused else (str(error), "", "")
            return problem(what, text, fix or ("correct the target's options" if refused else ""))
        untried = "; pod not tested: no permission to create pods (not required otherwise)"
        return ok(what, f"accepted by the server (dry run){'' if tried else untried}")

    async def _gpus(self) -> Diagnostic:
        others = (model.resource for model in self._options.gpu_models.values() if model.resource)
        counts = dict.fromkeys(sorted({self._options.gpu_resource, *others}), 0)
        nodes = 0
        try:
            async for node in self._client.list(k8s.NODES, NodeObject):
                nodes += 1
                for resource in counts:
                    amount = node.status.allocatable.get(resource, "0")
                    counts[resource] += int(amount) if amount.isdigit() else 0
        except k8s.KubernetesError as error:
            return ok("nodes", f"cannot list nodes to count GPUs (not required): {error}")
        if not nodes:
            return warning("nodes", "none", "jobs wait until a node joins or an autoscaler adds one")
        return ok("nodes", f"{nodes}, with {', '.join(f'{count} {name}' for name, count in counts.items())}")
