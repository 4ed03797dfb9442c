"""The objects of a job with the annotation that describes it, and dry runs of them."""

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

import seatrial.kubernetes as k8s
from seatrial.job import Job, Outcome, Unreadable, decode
from seatrial.targets.agent_file import agent_bytes
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.run_object import LEAST_TTL_S, Annotated
from seatrial.targets.kubernetes.watch.feeds import NodeObject
from seatrial.targets.kubernetes.watch.objects import KILLED, PodObject, read_termination_message
from seatrial.targets.kubernetes.watch.waiting import over_whole_quota
from seatrial.targets.protocol import DamagedJob, refused

MOST_NAMES_BYTES = 64 << 10  # limit for step names; all annotations of an object may have 256 KiB together


class JobAnnotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes the job of a root object, so that any process that finds the object can adopt the job."""

    name: str  # of the Seatrial job
    run: str
    labels: dict[str, str] = {}
    hosts: int = 1
    grace_s: float = 10.0
    steps: tuple[str, ...] = ()  # step names; none if they are too long
    runs: int = 0  # number of steps if all are plain commands; then the exit code tells how they ended
    ports: dict[str, int] = {}  # port numbers by name
    limited: bool = False  # it has a queue limit

    @classmethod
    def of(cls, job: Job) -> "JobAnnotation":
        steps = tuple(step.name for step in job.steps)
        if sum(len(name.encode()) for name in steps) > MOST_NAMES_BYTES:
            steps = ()
        plain = all(step.kind == "command" and "hosts" not in step.args for step in job.steps)
        runs = len(job.steps) if plain else 0
        ports = {port.name: port.number for port in job.ports}
        limited = job.limits.queue_s is not None
        return cls(job.name, job.run, job.labels, job.hosts, job.limits.grace_s, steps, runs, ports, limited)

    @classmethod
    def read(cls, found: Annotated) -> "JobAnnotation":
        try:
            return decode(found.metadata.annotations[names.JOB_DATA], cls)
        except (LookupError, Unreadable) as error:
            name = f"{found.metadata.namespace}/{found.metadata.name}"
            raise DamagedJob(f"{name} has Seatrial's labels, but no valid job description: {error}") from None

    def records(self, pod: PodObject) -> list[dict[str, Any]]:
        """The agent's records as far as the container status has them: how each step ended, without output. Empty if it
        has none."""
        ended = pod.trial.terminated
        message = read_termination_message(ended)
        ends: Sequence[tuple[Outcome, int | None]] = message.steps if message is not None else ()
        exit_code = ended.exit_code if ended is not None else KILLED  # from there on, it was killed
        if not ends and 0 <= exit_code < KILLED and (exit_code == 0 or self.runs == 1):
            ends = ((Outcome.EXITED, exit_code),) * self.runs
        lines: list[dict[str, Any]] = []
        for number, (outcome, code) in enumerate(ends):
            note = {"note": "unseen", "text": "the job's files were already deleted; only its exit status is known"}
            lines.append({"event": "step", "step": number, "at_s": 0.0})
            lines.append({"event": "note", "step": number, "at_s": 0.0, "data": note})
            lines.append({"event": "done", "step": number, "at_s": 0.0, "outcome": outcome, "code": code})
        return lines


def annotated(job: Job, made: "manifest.JobObjects") -> "manifest.JobObjects":
    """The objects of a job with the annotation of its root."""
    annotation = msgspec.json.encode(JobAnnotation.of(job)).decode()
    made.root["metadata"]["annotations"][names.JOB_DATA] = annotation
    return made


def shown_objects(job: Job, options: KubernetesOptions) -> list[k8s.Manifest]:
    """All objects that `submit` would create, without values of secrets, uids and contents of files. Reads no
    kubeconfig: if the options have no namespace, neither do the objects."""
    space = options.namespace or "default"
    run = manifest.run_object(job.run, LEAST_TTL_S, options, space, job.environment.image or "")
    owner = manifest.owner(k8s.JOBS, run["metadata"]["name"])
    shared = manifest.agent_configs(job.run, agent_bytes(), owner, space)
    shared += manifest.input_configs(job.run, manifest.inputs_archive(job.inputs), owner, space)
    agent, *inputs = (one["metadata"]["name"] for one in shared)
    secrets = dict.fromkeys(job.secrets, "•••")
    made = manifest.make(job, options, namespace=space, run_owner=owner, agent=agent, inputs=inputs, secrets=secrets)
    annotated(job, made)
    root = manifest.owner(manifest.root_resource(options), made.root["metadata"]["name"])
    others = [manifest.owned_by(one, root) for one in (made.config, made.secret, made.service) if one]
    shown = [run, *shared, made.root, *others]
    for one in shown:
        if options.namespace is None:
            del one["metadata"]["namespace"]
        for name, data in one.get("binaryData", {}).items():
            one["binaryData"][name] = f"({len(data):,} characters of base64)"
    return shown


KEEPER = (
    "the pod is rejected because of its keeper, the small container that Seatrial adds for a job's files; adjust "
    "`keeper` in the target"
)


NO_JOBSET = (
    "JobSet is not installed on this cluster; all trials of a target with `workload: jobset` need it\n"
    "install JobSet 0.11 or later (kubernetes-sigs/jobset), or remove `workload: jobset` if no trial uses TPUs with "
    "several hosts"
)


async def try_run_object(client: k8s.Kubernetes, options: KubernetesOptions, run: str, image: str) -> None:
    made = manifest.run_object(run, 60.0, options, client.access.namespace, image)
    await _try(client, k8s.JOBS, made)


async def try_job(client: k8s.Kubernetes, options: KubernetesOptions, made: "manifest.JobObjects") -> bool:
    """Dry run of a job's root and pod on the server. The cluster creates the pod later: pod security, a LimitRange or
    an image policy that would reject it then is found now. Raises the rejection. False if the pod was not tested,
    because the permission to create pods is missing, which nothing else needs."""
    await _try(client, manifest.root_resource(options), made.root)
    root, job = made.root["metadata"], made.root["spec"]
    if "replicatedJobs" in job:
        job = job["replicatedJobs"][0]["template"]["spec"]
    template = job["template"]
    metadata = {**template["metadata"], "name": root["name"], "namespace": root["namespace"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        await _try(client, k8s.PODS, pod)
    except k8s.Forbidden as error:
        if error.missing is not None:
            return False
        spec = pod["spec"]
        others = [one for one in spec["containers"] if one["name"] != names.KEEPER]
        with contextlib.suppress(k8s.KubernetesError):
            await client.create({**pod, "spec": {**spec, "containers": others}}, resource=k8s.PODS, dry_run=True)
            raise refused(f"the cluster would reject the pod: {error}\n{KEEPER}") from error
        raise
    return True


async def gpu_node_labels(client: k8s.Kubernetes, options: KubernetesOptions) -> list[dict[str, str]]:
    """The labels of each node with GPUs; empty if nodes may not be listed, which nothing else needs."""
    found = []
    with contextlib.suppress(k8s.KubernetesError):
        async for node in client.list(k8s.NODES, NodeObject):
            if node.status.allocatable.get(options.gpu_resource, "0") != "0":
                found.append(node.metadata.labels)
    return found


async def _try(client: k8s.Kubernetes, resource: k8s.Resource, made: k8s.Manifest) -> None:
    try:
        await client.create(made, resource=resource, dry_run=True)
    except k8s.AlreadyExists:
        pass
    except k8s.NotFound as error:
        if resource is k8s.JOBS or error.reason:  # without a reason, the server does not know the path
            raise
        raise refused(NO_JOBSET) from error
    except k8s.Forbidden as error:
        # A quota that is full now may have room when the job is submitted.
        if not error.of_quota or over_whole_quota(error.message):
            raise
