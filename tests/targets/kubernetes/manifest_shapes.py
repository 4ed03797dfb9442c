"""Jobs and options of every shape that the target can make, and the objects that it makes of them, as YAML."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import yaml

from seatrial.job import Accelerator, Environment, Gpu, Job, Limits, Port, Ready, Resources, Step, Tpu
from seatrial.kubernetes import JOBS, Kubernetes, Object, Resource
from seatrial.targets.kubernetes import manifest
from seatrial.targets.kubernetes.options import KubernetesOptions

NAMESPACE, IMAGE = "trials", "registry.example/pytorch:2.8"
UID = "00000000-0000-0000-0000-000000000001"
OWNER = manifest.owner(JOBS, "seatrial-nightly-1", UID)
AGENT, PLAIN = "seatrial-nightly-1-agent-0123456789abcdef", "# for images without Python\n"

JOB = Job(
    name="nightly-1-69b56f04-1",
    run="nightly-1",
    cell="69b56f04",
    attempt=1,
    title="generic[runtime=pytorch,machine=cpu]",
    steps=(Step("greet", "command", {"command": "echo hello"}, 60.0), Step("numpy", "import", {"module": "numpy"})),
    environment=Environment("pytorch", image=IMAGE),
    resources=Resources(cpu=2.5, memory_bytes=8 << 30),
    limits=Limits(queue_s=600.0, run_s=3600.0, stall_s=300.0),
    env={"EPOCHS": "3"},
)


def changed(**changes: Any) -> Job:
    return msgspec.structs.replace(JOB, **changes)


def gpus(count: int, model: str | None = None, memory: int | None = None, **more: Any) -> Resources:
    return Resources(cpu=16.0, memory_bytes=64 << 30, gpu=Gpu(count, model, memory), **more)


SHAPES: dict[str, tuple[Job, str]] = {
    "cpu": (JOB, "{}"),
    "plain-runtime": (
        changed(environment=Environment("base", python="3.11", packages=("numpy==1.26.*",)), resources=Resources()),
        "{image: registry.example/python:3.11, pull: Always}",
    ),
    "gpus": (
        changed(resources=gpus(2, "NVIDIA A100", select={"pool": "a100"}), avoid=("node-7, node-8", "node-9")),
        """{gpu_label: nvidia.com/gpu.product, select: {zone: a}, shared_memory: 16Gi, priority: system-node-critical,
            tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]}""",
    ),
    "gpu-model": (changed(resources=gpus(1, "A100", memory=80 << 30), avoid=("node-7",)), "{}"),
    "mig": (
        changed(resources=gpus(1, "A100-1g.10gb")),
        "{gpu_models: {A100-1g.10gb: {resource: nvidia.com/mig-1g.10gb, select: {nvidia.com/mig.strategy: mixed}}}}",
    ),
    "secrets": (
        changed(secrets={"HF_TOKEN": "hugging-face", "PASSWORD": "database"}, env={"PASSWORD": "the secret counts"}),
        "{pull_secrets: [registry], service_account: trials, env: {HF_HOME: /data/hf}}",
    ),
    "hosts": (changed(hosts=3, resources=gpus(8)), "{deadline: 2h}"),
    "kueue": (changed(limits=Limits()), "{queue: research}"),
    "jobset": (changed(hosts=2, resources=gpus(8)), "{workload: jobset}"),
    "tpu": (changed(resources=Resources(tpu=Tpu("v5e", "2x2"))), "{}"),
    "tpu-slices": (changed(hosts=4, resources=Resources(tpu=Tpu("v6e", "2x4", 2))), "{workload: jobset}"),
    "accelerator": (changed(resources=Resources(accelerator=Accelerator("example.com/ipu", 16))), "{}"),
    "volumes": (
        JOB,
        """{files_size: 20Gi, volumes: [{claim: datasets, at: /data, path: imagenet/2012},
            {claim: scratch, at: /scratch, read_only: false}, {host: /opt/models, at: /models/},
            {config: settings, at: /etc/settings}, {secret: certificates, at: /etc/certificates}]}""",
    ),
    "template": (
        JOB,
        """
        template:
          metadata: {annotations: {sidecar.istio.io/inject: "false"}}
          spec:
            runtimeClassName: gvisor
            schedulerName: other-scheduler
            terminationGracePeriodSeconds: 90
            containers:
            - {name: trial, env: [{name: EPOCHS, value: "5"}], resources: {limits: {ephemeral-storage: 10Gi}}}
            volumes:
            - {name: seatrial-volume, emptyDir: null, ephemeral: {volumeClaimTemplate: {spec:
                {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Gi}}}}}}
        """,
    ),
    "server": (
        changed(
            ports=(Port("http", 8000), Port("grpc-api", 8033)), ready=Ready("http", "/health", 1800.0), part="server"
        ),
        "{}",
    ),
    "no-security": (JOB, "{security: none}"),
    "root": (JOB, "{security: none, user: 0}"),
    "any-user": (JOB, "{user: null, keep: 90s, keeper: {cpu: 0.1, memory: 128Mi}}"),
}
# Host paths are what `restricted` forbids, whatever the security context.
RESTRICTED = sorted(SHAPES.keys() - {"no-security", "root", "volumes"})
INPUTS = ("seatrial-nightly-1-inputs-00", "seatrial-nightly-1-inputs-01")


def options_of(written: str) -> KubernetesOptions:
    return KubernetesOptions.model_validate(yaml.safe_load(written))


def made(shape: str, namespace: str = NAMESPACE) -> manifest.JobObjects:
    job, written = SHAPES[shape]
    return made_of(job, options_of(written), namespace, INPUTS if shape in ("cpu", "hosts") else ())


def made_of(
    job: Job, options: KubernetesOptions, namespace: str = NAMESPACE, inputs: tuple[str, ...] = ()
) -> manifest.JobObjects:
    found = manifest.make(
        job,
        options,
        namespace=namespace,
        run_owner=OWNER,
        agent=AGENT,
        inputs=inputs,
        secrets={name: f"value of {name}" for name in job.secrets},
    )
    found.config["data"]["plain.sh"] = PLAIN  # it is long, and has tests of its own
    return found


def objects(made: manifest.JobObjects) -> list[dict[str, Any]]:
    """As they are created: the root, then what it owns."""
    owner = {"apiVersion": made.root["apiVersion"], "kind": made.root["kind"], "uid": UID}
    owner["name"] = made.root["metadata"]["name"]
    others = [manifest.owned_by(one, owner) for one in (made.config, made.secret, made.service) if one]
    return [made.root, *others]


def pod_templates(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of any workload."""
    spec = root["spec"]
    if root["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    yield spec["template"]


def container(root: dict[str, Any], name: str = "trial") -> dict[str, Any]:
    template = next(pod_templates(root))
    return next(one for one in template["spec"]["containers"] if one["name"] == name)


async def seen(
    client: Kubernetes,
    resource: Resource,
    fine: Callable[[list[Any]], bool],
    *,
    namespace: str,
    labels: str = "",
    into: type[Any] = Object,
) -> list[Any]:
    """What is there, in the order of names, as soon as it is fine."""
    while True:
        found = [one async for one in client.list(resource, into, namespace=namespace, labels=labels)]
        if fine(found):
            return sorted(found, key=lambda one: str(one.metadata.name))
        await asyncio.sleep(0.1)


def text(documents: list[dict[str, Any]]) -> str:
    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True))
