"""What a job is on the cluster: a Job, a JobSet or a PyTorchJob around the same pod, made suspended, then released."""

import copy
from typing import Any

from seatrial.job import Job, Outcome
from seatrial.kubernetes import JOBS, Resource
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.manifest import quantity
from seatrial.target.kubernetes.manifest.hosts import MASTER_PORT, REPLICATED_JOB
from seatrial.target.kubernetes.manifest.pod import pod_deadline_s
from seatrial.target.kubernetes.options import KubernetesOptions
from seatrial.target.protocol import TargetError

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
ROOTS = {"job": JOBS, "jobset": JOB_SETS, "pytorchjob": PYTORCH_JOBS}
QUEUE = "kueue.x-k8s.io/queue-name"
PYTORCH = "pytorch"  # what the training operator wants the container to be called


def root_resource(options: KubernetesOptions) -> Resource:
    return ROOTS[options.workload]


def trial_name(options: KubernetesOptions) -> str:
    """Of the container that runs the trial."""
    return PYTORCH if options.workload == "pytorchjob" else names.TRIAL


def root_deadline_s(job: Job, options: KubernetesOptions) -> float:
    """From its release until the cluster ends the job: waiting for a place, and all of the pod's life."""
    queue_s = options.deadline_s if job.limits.queue_s is None else job.limits.queue_s
    return queue_s + pod_deadline_s(job, options)


def release(options: KubernetesOptions) -> dict[str, Any]:
    """The merge patch that lets a root start. With a queue, Kueue does it when there is room."""
    if options.queue is not None:
        return {"metadata": {"labels": {QUEUE: options.queue}}}
    return {"spec": {"runPolicy": {"suspend": False}} if options.workload == "pytorchjob" else {"suspend": False}}


def root(job: Job, options: KubernetesOptions, metadata: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    resource = root_resource(options)
    make = {"job": _job, "jobset": _job_set, "pytorchjob": _pytorch_job}[options.workload]
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return {**head, "spec": make(job, options, template)}


def _job(job: Job, options: KubernetesOptions, template: dict[str, Any]) -> dict[str, Any]:
    limits = {
        "activeDeadlineSeconds": quantity.seconds(root_deadline_s(job, options)),
        "ttlSecondsAfterFinished": quantity.seconds(options.keep_s),
    }
    return {"suspend": True, **limits, **_indexed(job), "template": template}


def _indexed(job: Job) -> dict[str, Any]:
    """Every pod has a number; none is made twice, and none while another of its number still ends."""
    return {
        "completionMode": "Indexed",
        "completions": job.hosts,
        "parallelism": job.hosts,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
    }


def _job_set(job: Job, options: KubernetesOptions, template: dict[str, Any]) -> dict[str, Any]:
    inner = {"activeDeadlineSeconds": quantity.seconds(root_deadline_s(job, options)), **_indexed(job)}
    name = names.object_name(job.name)
    return {
        "suspend": True,
        "ttlSecondsAfterFinished": quantity.seconds(options.keep_s),
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "replicatedJobs": [
            {"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": {**inner, "template": template}}}
        ],
    }


def _pytorch_job(job: Job, options: KubernetesOptions, template: dict[str, Any]) -> dict[str, Any]:
    policy = {
        "suspend": True,
        "activeDeadlineSeconds": quantity.seconds(root_deadline_s(job, options)),
        "ttlSecondsAfterFinished": quantity.seconds(options.keep_s),
        "backoffLimit": 0,
        "cleanPodPolicy": "None",  # the keepers decide how long pods stay
    }
    template = _for_pytorch(template)
    replicas: dict[str, Any] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
    if job.hosts > 1:
        replicas["Worker"] = {"replicas": job.hosts - 1, "restartPolicy": "Never", "template": copy.deepcopy(template)}
    return {"runPolicy": policy, "pytorchReplicaSpecs": replicas}


def _for_pytorch(template: dict[str, Any]) -> dict[str, Any]:
    """The container has the operator's name and the port that it tells all hosts; restarts are the replica's to say."""
    made = copy.deepcopy(template)
    del made["spec"]["restartPolicy"]
    containers = {container["name"]: container for container in made["spec"]["containers"]}
    if PYTORCH in containers:
        raise TargetError(
            f"the target's `template` has a container {PYTORCH!r}, the name that the trial's own gets in a PyTorchJob: "
            f"write {names.TRIAL!r} for that one, and give another one another name",
            Outcome.REFUSED,
        )
    trial = containers[names.TRIAL]
    trial["name"] = PYTORCH
    trial["ports"] = [*trial.get("ports", []), {"name": "pytorchjob-port", "containerPort": MASTER_PORT}]
    return made
