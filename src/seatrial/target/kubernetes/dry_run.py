"""Tries on the server what a job needs, without making anything: the object of its run, its root, and its pod.

The cluster makes the pod itself, later: what refuses it then (pod security, a LimitRange, a policy for images) is found
now. Who may not create pods, which nothing else here needs, cannot try that one.
"""

from typing import Any

from seatrial.job import Outcome
from seatrial.kubernetes import JOBS, PODS, AlreadyExists, Forbidden, Kubernetes, KubernetesError, Resource
from seatrial.target.kubernetes import manifest, names
from seatrial.target.kubernetes.options import KubernetesOptions
from seatrial.target.kubernetes.watch.waiting import over_whole_quota
from seatrial.target.protocol import TargetError

KEEPER = (
    "it is the keeper, the small container that Seatrial adds for a job's files, that is refused: without it the pod "
    "would be taken; see the target's `keeper`"
)


async def try_run_object(client: Kubernetes, options: KubernetesOptions, run: str, image: str) -> None:
    made = manifest.run_object(run, 60.0, options, client.access.namespace, image)
    await _try(client, JOBS, made)


async def try_job(client: Kubernetes, options: KubernetesOptions, made: "manifest.JobObjects") -> bool:
    """Whether its pod was tried, too. Raises what refused it."""
    await _try(client, manifest.root_resource(options), made.root)
    pod = _pod(made.root)
    try:
        await _try(client, PODS, pod)
    except Forbidden as error:
        if error.missing is not None:
            return False
        if await _without_keeper(client, pod):
            raise TargetError(f"the cluster would not take its pod: {error}\n{KEEPER}", Outcome.REFUSED) from error
        raise
    return True


async def _try(client: Kubernetes, resource: Resource, made: dict[str, Any]) -> None:
    try:
        await client.create(made, resource=resource, dry_run=True)
    except AlreadyExists:
        pass
    except Forbidden as error:
        # A quota that is full now may have room when the job's turn comes.
        if not error.of_quota or over_whole_quota(error.message):
            raise


async def _without_keeper(client: Kubernetes, pod: dict[str, Any]) -> bool:
    containers = [one for one in pod["spec"]["containers"] if one["name"] != names.KEEPER]
    try:
        await client.create({**pod, "spec": {**pod["spec"], "containers": containers}}, resource=PODS, dry_run=True)
    except KubernetesError:
        return False
    return True


def _pod(root: dict[str, Any]) -> dict[str, Any]:
    spec = root["spec"]
    if "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    template = spec["template"]
    metadata = {**template["metadata"], "name": root["metadata"]["name"], "namespace": root["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
