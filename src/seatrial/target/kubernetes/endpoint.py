"""A port of a job, reachable from here: forwarded, or by a Service, Ingress or Route where the target says so."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from seatrial.kubernetes import AlreadyExists, Kubernetes
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.card import Card
from seatrial.target.kubernetes.options import KubernetesOptions
from seatrial.target.kubernetes.problems import told
from seatrial.target.kubernetes.seen import FIRST_REPLICA, INDEX_LABEL, REPLICA_TYPE
from seatrial.target.kubernetes.watcher import PodNow
from seatrial.target.protocol import TargetError


@asynccontextmanager
async def endpoint(
    client: Kubernetes,
    options: KubernetesOptions,
    namespace: str,
    card: Card,
    root: dict[str, Any],
    pod: PodNow | None,
    port: int,
) -> AsyncIterator[str]:
    """`root` is the reference to the owner of what has to be made; it goes with the job."""
    if options.endpoint == "port-forward":
        if pod is None or not pod.running:
            raise TargetError(f"{card.name} does not run: its port {port} cannot be reached")
        with told(f"cannot reach port {port} of {card.name}"):
            async with client.pod(pod.name, namespace=namespace).forward(port) as forward:
                yield forward.address
        return
    name = f"{names.object_name(card.name)}-{port}"
    with told(f"cannot open port {port} of {card.name}"):
        for one in _objects(name, card, options, namespace, root, port):
            with contextlib.suppress(AlreadyExists):
                await client.create(one)
    yield _address(name, card, options, namespace, port)


def _address(name: str, card: Card, options: KubernetesOptions, namespace: str, port: int) -> str:
    if options.endpoint == "service":
        return f"{name}.{namespace}.svc:{port}"
    return f"{_host(card, options)}:80"


def _host(card: Card, options: KubernetesOptions) -> str:
    return (options.endpoint_host or "").replace("{job}", names.object_name(card.name))


def _objects(
    name: str, card: Card, options: KubernetesOptions, namespace: str, root: dict[str, Any], port: int
) -> Iterator[dict[str, Any]]:
    labels = {**names.run_labels(card.run, "endpoint"), names.JOB: names.object_name(card.name)}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [root]}
    chosen = {names.RUN: names.label_value(card.run), names.JOB: names.object_name(card.name)}
    if card.hosts > 1:  # as a forwarded port is: the first host's
        chosen |= {REPLICA_TYPE: FIRST_REPLICA} if options.workload == "pytorchjob" else {INDEX_LABEL: "0"}
    ports = [{"port": port, "targetPort": port}]
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": chosen, "ports": ports}}
    if options.endpoint == "ingress":
        backend = {"service": {"name": name, "port": {"number": port}}}
        rule = {
            "host": _host(card, options),
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
        }
        spec: dict[str, Any] = {"rules": [rule]}
        if options.endpoint_class is not None:
            spec["ingressClassName"] = options.endpoint_class
        yield {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}
    elif options.endpoint == "route":
        spec = {"host": _host(card, options), "to": {"kind": "Service", "name": name}, "port": {"targetPort": port}}
        yield {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": metadata, "spec": spec}
