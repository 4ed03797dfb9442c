"""A port of a job, reachable from here: forwarded, or by a Service, Ingress or Route where the target says so."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from seatrial.job import Outcome
from seatrial.kubernetes import PODS, AlreadyExists, Attempt, Kubernetes
from seatrial.target.kubernetes import manifest, names
from seatrial.target.kubernetes.annotation import JobAnnotation
from seatrial.target.kubernetes.errors import target_errors
from seatrial.target.kubernetes.options import KubernetesOptions
from seatrial.target.kubernetes.watch.objects import INDEX_LABEL, PodObject
from seatrial.target.protocol import Endpoint, TargetError

ROUND_TRIPS = 5  # of which the middle one counts


@asynccontextmanager
async def opened_port(
    client: Kubernetes, options: KubernetesOptions, job: JobAnnotation, root: dict[str, Any], port: str
) -> AsyncIterator[Endpoint]:
    """`root` is the reference to the owner of what has to be made; it goes with the job."""
    if port not in job.ports:
        listed = ", ".join(job.ports) or "none"
        raise TargetError(f"{job.name} has no port {port!r}; it has: {listed}", Outcome.REFUSED)
    number, namespace = job.ports[port], client.access.namespace
    if options.endpoint == "port-forward":
        with target_errors(f"cannot reach port {port} of {job.name}"):
            pod = await _running_pod(client, job)
            adds_s = await _round_trip_s(client)
        if pod is None:
            raise TargetError(f"{job.name} does not run: its port {port} cannot be reached")
        async with client.pod(pod).forward(number) as forward:
            yield Endpoint(forward.address, "port-forward through the API server", adds_s)
        return
    with target_errors(f"cannot open port {port} of {job.name}"):
        for one in _objects(job, options, namespace, root, number):
            with contextlib.suppress(AlreadyExists):
                await client.create(manifest.marked(one, options))
    yield Endpoint(_address(job, options, namespace, number), options.endpoint)


async def _round_trip_s(client: Kubernetes) -> float:
    """To the API server and back: what is forwarded goes there first, and from there to the node."""
    times = []
    for _ in range(ROUND_TRIPS):
        attempts: list[Attempt] = []
        await client.version(attempts=attempts)
        last = attempts[-1]
        times.append((last.answered_s or 0.0) - (last.sent_s or 0.0))
    return sorted(times)[ROUND_TRIPS // 2]


async def _running_pod(client: Kubernetes, job: JobAnnotation) -> str | None:
    """The name of the first host's, while its trial runs."""
    labels = names.selector(job=names.object_name(job.name))
    async for pod in client.list(PODS, PodObject, labels=labels):
        if pod.number == 0 and not pod.phase_ended and pod.trial.running is not None:
            return pod.metadata.name
    return None


def _service_name(job: JobAnnotation, number: int) -> str:
    return f"{names.object_name(job.name)}-{number}"


def _address(job: JobAnnotation, options: KubernetesOptions, namespace: str, number: int) -> str:
    if options.endpoint == "service":
        return f"{_service_name(job, number)}.{namespace}.svc:{number}"
    return f"{_host(job, options, number)}:80"


def _host(job: JobAnnotation, options: KubernetesOptions, number: int) -> str:
    """The first port has the job's own name; each of the others needs another."""
    first = number == next(iter(job.ports.values()))
    name = names.object_name(job.name) if first else _service_name(job, number)
    return (options.endpoint_host or "").replace("{job}", name)


def _objects(
    job: JobAnnotation, options: KubernetesOptions, namespace: str, root: dict[str, Any], number: int
) -> Iterator[dict[str, Any]]:
    name = _service_name(job, number)
    labels = {**names.run_labels(job.run, "endpoint"), names.JOB: names.object_name(job.name)}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [root]}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _service(job, number)}
    if options.endpoint == "ingress":
        backend = {"service": {"name": name, "port": {"number": number}}}
        rule = {
            "host": _host(job, options, number),
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
        }
        spec: dict[str, Any] = {"rules": [rule]}
        if options.endpoint_class is not None:
            spec["ingressClassName"] = options.endpoint_class
        yield {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}
    elif options.endpoint == "route":
        to = {"kind": "Service", "name": name}
        spec = {"host": _host(job, options, number), "to": to, "port": {"targetPort": number}}
        yield {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": metadata, "spec": spec}


def _service(job: JobAnnotation, number: int) -> dict[str, Any]:
    """To the first host, as a forwarded port is. Also while its probe fails: a server under load may miss one, and
    its load would then measure the Service."""
    chosen = {names.RUN: names.label_value(job.run), names.JOB: names.object_name(job.name)}
    if job.hosts > 1:
        chosen[INDEX_LABEL] = "0"
    ports = [{"port": number, "targetPort": number}]
    return {"selector": chosen, "ports": ports, "publishNotReadyAddresses": True}
