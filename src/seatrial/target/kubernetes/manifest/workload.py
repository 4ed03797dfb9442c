"""What a job is on the cluster: a Job or a JobSet around the same pod, made suspended, then released."""

from typing import Any

from seatrial.job import Job
from seatrial.kubernetes import JOBS, Resource
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.manifest.marks import QUEUE
from seatrial.target.kubernetes.manifest.pod import pod_deadline_s
from seatrial.target.kubernetes.manifest.quantity import seconds
from seatrial.target.kubernetes.manifest.variables import REPLICATED_JOB
from seatrial.target.kubernetes.options import KubernetesOptions

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


def root_resource(options: KubernetesOptions) -> Resource:
    return JOB_SETS if options.workload == "jobset" else JOBS


def root_deadline_s(job: Job, options: KubernetesOptions) -> float:
    """From its release until the cluster ends the job: waiting for a place, and all of the pod's life."""
    queue_s = options.deadline_s if job.limits.queue_s is None else job.limits.queue_s
    return queue_s + pod_deadline_s(job, options)


# The merge patch that lets a root start. With a queue, Kueue does it when there is room.
RELEASE = {"spec": {"suspend": False}}


def root_object(
    job: Job, options: KubernetesOptions, metadata: dict[str, Any], template: dict[str, Any]
) -> dict[str, Any]:
    resource = root_resource(options)
    make = _job_set if options.workload == "jobset" else _job
    if options.queue is not None:  # from the start: a policy may demand it of every Job
        metadata["labels"] = {**metadata["labels"], QUEUE: options.queue}
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return {**head, "spec": make(job, options, template)}


def _job(job: Job, options: KubernetesOptions, template: dict[str, Any]) -> dict[str, Any]:
    limits = {
        "activeDeadlineSeconds": seconds(root_deadline_s(job, options)),
        "ttlSecondsAfterFinished": seconds(options.keep_s),
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
    inner = {"activeDeadlineSeconds": seconds(root_deadline_s(job, options)), **_indexed(job)}
    name = names.object_name(job.name)
    return {
        "suspend": True,
        "ttlSecondsAfterFinished": seconds(options.keep_s),
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "replicatedJobs": [
            {"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": {**inner, "template": template}}}
        ],
    }
