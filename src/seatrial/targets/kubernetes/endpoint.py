"""Makes a job's port reachable from here: forwarded, or through a Service, Ingress or Route if the target says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from seatrial.kubernetes import PODS, Kubernetes, Manifest, RequestAttempt
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.errors import target_errors
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.objects import INDEX_LABEL, PodObject
from seatrial.targets.protocol import Endpoint, TargetError
from seatrial.targets.route import (
    AGAIN_S,
    ANSWER_S,
    connection,
    gateway_leads_on,
    measured,
    opened_inside,
    stays_open,
    until_answered,
)


@dataclass(frozen=True)
class JobPort:
    """A port of a job. Objects made for the port are deleted with the job's root, to which `owner` refers."""

    client: Kubernetes
    options: KubernetesOptions
    job: JobAnnotation
    owner: Manifest
    port: str

    def __str__(self) -> str:
        return f"port {self.port} of {self.job.name}"

    @property
    def number(self) -> int:
        return self.job.ports[self.port]

    @property
    def service(self) -> str:
        """The name of its Service."""
        return f"{names.object_name(self.job.name)}-{self.number}"

    @property
    def host(self) -> str:
        """Host name of an ingress or route. The first port has the job's own name; the others need their own."""
        first = self.port == next(iter(self.job.ports))
        name = names.object_name(self.job.name) if first else self.service
        return (self.options.endpoint_host or "").replace("{job}", name)


@asynccontextmanager
async def opened_port(wanted: JobPort, how: str) -> AsyncIterator[Endpoint]:
    pod = await _running_pod(wanted)
    if how == "port-forward":
        async with wanted.client.pod(pod).forward(wanted.number) as forward:

            async def attempt() -> str:
                closed = await stays_open(forward.address, forward.through)
                return f"{closed}: {forward.problem}" if closed and forward.problem else closed

            await until_answered(attempt, str(wanted))

            async def round_trip_s() -> float:
                attempts: list[RequestAttempt] = []
                await wanted.client.version(attempts=attempts)
                return (attempts[-1].answered_s or 0.0) - (attempts[-1].sent_s or 0.0)

            # Forwarded traffic goes to the API server first, and from there to the node.
            with target_errors(f"cannot reach {wanted}"):
                found = await measured(forward.address, "port-forward through the API server", round_trip_s)
            yield found
        return
    service = await make_service(wanted)
    if how == "service":
        yield await opened_inside(service, how)
        return
    await _make(wanted, ingress(wanted) if how == "ingress" else route(wanted))
    tls = wanted.options.endpoint_tls is not False
    address = f"{wanted.host}:{443 if tls else 80}"
    url = f"{'https' if tls else 'http'}://{wanted.host}/"
    await until_answered(lambda: gateway_leads_on(url), str(wanted))
    yield await measured(address, how, lambda: connection(address), tls=tls)


async def make_service(wanted: JobPort) -> str:
    """Creates a Service for the first host and returns its address, which all pods of the cluster can use. It also
    routes to a pod that is not ready: a loaded server may fail a probe, and the test would then measure the Service."""
    job = wanted.job
    chosen = {names.RUN: names.label_value(job.run), names.JOB: names.object_name(job.name)}
    if job.hosts > 1:
        chosen[INDEX_LABEL] = "0"
        if wanted.options.workload == "jobset":
            chosen[names.JOB_INDEX] = "0"
    ports = [{"port": wanted.number, "targetPort": wanted.number}]
    spec = {"selector": chosen, "ports": ports, "publishNotReadyAddresses": True}
    await _make(wanted, {"apiVersion": "v1", "kind": "Service", "spec": spec})
    return f"{wanted.service}.{wanted.client.access.namespace}.svc:{wanted.number}"


async def _make(wanted: JobPort, one: Manifest) -> None:
    labels = {**names.run_labels(wanted.job.run, "endpoint"), names.JOB: names.object_name(wanted.job.name)}
    metadata = {"name": wanted.service, "namespace": wanted.client.access.namespace, "labels": labels}
    made = {**one, "metadata": {**metadata, "ownerReferences": [wanted.owner]}}
    with target_errors(f"cannot open {wanted}"):
        await wanted.client.create_missing(manifest.marked(made, wanted.options))


async def _running_pod(wanted: JobPort) -> str:
    """Name of the first host's pod, once its trial runs."""
    labels = names.selector(job=names.object_name(wanted.job.name))
    with target_errors(f"cannot reach {wanted}"), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while True:
                async for pod in wanted.client.list(PODS, PodObject, labels=labels):
                    if pod.number != 0:
                        continue
                    if pod.phase_ended or pod.trial.terminated is not None:
                        raise TargetError(f"cannot reach {wanted}: the job has ended")
                    if pod.trial.running is not None:
                        return pod.metadata.name
                await asyncio.sleep(AGAIN_S)
    raise TargetError(f"cannot reach {wanted}: the job did not run within {ANSWER_S:g} s")


def ingress(wanted: JobPort) -> Manifest:
    options = wanted.options
    backend = {"service": {"name": wanted.service, "port": {"number": wanted.number}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    spec: Manifest = {"rules": [{"host": wanted.host, "http": {"paths": paths}}]}
    if options.endpoint_class is not None:
        spec["ingressClassName"] = options.endpoint_class
    if options.endpoint_tls is not False:
        secret = {"secretName": options.endpoint_tls} if isinstance(options.endpoint_tls, str) else {}
        spec["tls"] = [{"hosts": [wanted.host], **secret}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec}


def route(wanted: JobPort) -> Manifest:
    tls = wanted.options.endpoint_tls
    to = {"kind": "Service", "name": wanted.service}
    spec: Manifest = {"host": wanted.host, "to": to, "port": {"targetPort": wanted.number}}
    if tls is not False:
        secret = {"externalCertificate": {"name": tls}} if isinstance(tls, str) else {}
        spec["tls"] = {"termination": "edge", **secret}
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "spec": spec}
