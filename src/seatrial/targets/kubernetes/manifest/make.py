"""All objects of a job, from the job and the target's options. Pure: the same job gives the same objects."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.job import Job
from seatrial.kubernetes import CONFIG_MAPS, JOBS, SECRETS, SERVICES, Manifest, Resource
from seatrial.targets.agent_file import agent_job
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.placement import QUEUE, marked, seconds
from seatrial.targets.kubernetes.manifest.pod import (
    REPLICATED_JOB,
    VOLUME,
    check_text,
    plain_script,
    pod_deadline_s,
    pod_template,
    subdomain,
)
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.protocol import TargetError, refused

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


def root_resource(options: KubernetesOptions) -> Resource:
    return JOB_SETS if options.workload == "jobset" else JOBS


def root_deadline_s(job: Job, options: KubernetesOptions) -> float:
    """From its release until the cluster stops the job: queue time plus the pod's deadline."""
    queue_s = options.deadline_s if job.limits.queue_s is None else job.limits.queue_s
    return queue_s + pod_deadline_s(job, options)


# The merge patch that starts a root. With a queue, Kueue does it instead.
RELEASE = {"spec": {"suspend": False}}


def _root_spec(job: Job, options: KubernetesOptions, template: Manifest) -> Manifest:
    """Of a Job or a JobSet around the same pod, created suspended and then released."""
    # Every pod has an index; none is retried, and none is replaced before it has failed.
    slices = job.resources.slices
    indexed = {
        "completionMode": "Indexed",
        "completions": job.hosts // slices,
        "parallelism": job.hosts // slices,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "template": template,
    }
    deadline = {"activeDeadlineSeconds": seconds(root_deadline_s(job, options))}
    kept = {"ttlSecondsAfterFinished": seconds(options.keep_s)}
    if options.workload == "job":
        return {"suspend": True, **deadline, **kept, **indexed}
    subdomain = names.object_name(job.name)
    return {
        "suspend": True,
        **kept,
        "failurePolicy": {"maxRestarts": 0},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": subdomain},
        "replicatedJobs": [{"name": REPLICATED_JOB, "replicas": slices, "template": {"spec": deadline | indexed}}],
    }


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"  # annotation: one topology domain for each Job of a JobSet
TITLE = "seatrial/title"  # annotation with the cell's id
NO_UID = "00000000-0000-0000-0000-000000000000"
LOG_SEGMENTS = 16  # kept at the end of a log, 1 MiB each: more than is written while a reader is disconnected
# Kubernetes limits a ConfigMap to 1 MiB.
MOST_CONFIG_BYTES = 1000 << 10


class JobObjects(msgspec.Struct, frozen=True):
    """The root is created first, suspended; then the others, owned by it (`owned_by`); then it is released."""

    root: Manifest
    config: Manifest
    secret: Manifest | None = None
    service: Manifest | None = None


def make(
    job: Job,
    options: KubernetesOptions,
    *,
    namespace: str,
    run_owner: Mapping[str, Any] | None = None,
    agent: str = "agent",
    inputs: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
) -> JobObjects:
    """Objects of a job; with the defaults, for a dry run. `agent` and `inputs` are names of ConfigMaps.

    Raises TargetError (REFUSED) for a job that no cluster could run."""
    _check_utf8(job)
    if job.ready is not None and job.ready.port not in {port.name for port in job.ports}:
        # The server accepts a probe for an unknown port, and the job would never be ready.
        listed = ", ".join(port.name for port in job.ports) or "none"
        raise refused(f"`ready` of {job.title} names port {job.ready.port!r}, which it lacks; its ports: {listed}")
    template = templated(pod_template(job, options, namespace, agent, inputs), options.template)

    def made(resource: Resource, part: str, content: Manifest, **more: Any) -> Manifest:
        labels = names.job_labels(job.run, job.name, job.cell, job.attempt, part)
        metadata = {"name": names.object_name(job.name), "namespace": namespace, "labels": labels, **more}
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return marked({**head, **content}, options)

    owners = [dict(run_owner or owner(JOBS, names.run_object_name(job.run)))]
    annotations = {TITLE: job.title}
    if job.resources.tpu and options.workload == "jobset":  # each slice is a node pool, which its hosts must share
        annotations[EXCLUSIVE] = "cloud.google.com/gke-nodepool"
    spec = {"spec": _root_spec(job, options, template)}
    root = made(root_resource(options), "job", spec, annotations=annotations, ownerReferences=owners)
    if options.queue is not None:  # from the start: a policy may require it of every Job
        root["metadata"]["labels"][QUEUE] = options.queue
    secret = _secret(job, dict.fromkeys(job.secrets, "secret") if secrets is None else secrets)
    service = _service(job, options)
    return JobObjects(
        root=root,
        config=made(CONFIG_MAPS, "config", _config(job, bool(inputs))),
        secret=made(SECRETS, "secret", secret) if secret else None,
        service=made(SERVICES, "service", service) if service else None,
    )


def owner(resource: Resource, name: str, uid: str = NO_UID) -> Manifest:
    """An owner reference that does not block the owner's deletion. Without `uid`, for a dry run."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}


def owned_by(manifest: Mapping[str, Any], owner: Mapping[str, Any]) -> Manifest:
    """The same object with an owner, so that it is deleted with it."""
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [dict(owner)]}}


def _check_utf8(job: Job) -> None:
    """File names need not be UTF-8, but objects on a cluster must be. `check_text` checks the variables."""
    for field in job.__struct_fields__:
        if field != "env":
            try:
                msgspec.json.encode(getattr(job, field))
            except UnicodeEncodeError:
                raise refused(f"`{field}` of the job is not UTF-8, which Kubernetes requires") from None


def _config(job: Job, inputs: bool) -> Manifest:
    """Files for the agent in the pod. They have the names of secret variables, never their values."""
    environment = job.environment
    content = {
        **agent_job(job),
        "secret_variables": sorted(job.secrets),
        "hosts": job.hosts,
        "inputs": inputs,
        "environment": {
            "name": environment.name,
            "python": environment.python,
            "packages": environment.packages,
            "interpreter": environment.interpreter,
        },
        "memory_bytes": job.resources.memory_bytes,
        "log": {"segments": LOG_SEGMENTS},
    }
    data = {"job.json": msgspec.json.encode(content).decode(), "plain.sh": plain_script(job)}
    if environment.interpreter is not None:
        data["python"] = environment.interpreter
    size = sum(len(text.encode()) for text in data.values())
    if size > MOST_CONFIG_BYTES:
        raise refused(
            f"the job spec of {job.title} is {size >> 10} KiB (limit {MOST_CONFIG_BYTES >> 10} KiB); move long "
            "commands and parameters to files in the workspace"
        )
    return {"immutable": True, "data": data}


def _secret(job: Job, secrets: Mapping[str, str]) -> Manifest | None:
    if not job.secrets:
        return None
    missing = sorted(set(job.secrets) - set(secrets))
    if missing:
        raise refused(f"{job.title} has no value for the secrets {', '.join(missing)}")
    values = {name: check_text(name, secrets[name]) for name in sorted(job.secrets)}
    return {"immutable": True, "type": "Opaque", "stringData": values}


def _service(job: Job, options: KubernetesOptions) -> Manifest | None:
    """DNS names for several hosts, also before they are ready; a JobSet has its own service."""
    if subdomain(job, options) is None:
        return None
    chosen = {names.RUN: names.label_value(job.run), names.JOB: names.object_name(job.name)}
    return {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": chosen}}


# Merges the user's `template:` into our pod template and checks that everything that Seatrial needs is still there.


# Lists that are merged by that field of their elements; all others are replaced, as on the API server.
MERGED = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name",
    "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "volumes": "name",
    "imagePullSecrets": "name", "hostAliases": "ip", "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name", "resourceClaims": "name",
}  # fmt: skip
DELETE = {"$patch": "delete"}
_OWN_VARIABLES = ("HOME", "TMPDIR", "MASTER_ADDR", "MASTER_PORT")
_OWN_FIELDS = ("command", "args", "terminationMessagePath", "terminationMessagePolicy")


def templated(ours: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """`ours` with the patch applied. Raises TargetError (REFUSED) if the patch is invalid or removes what is needed."""
    made = _merged(ours, patch, ())
    lost = _changed(_pod_parts(ours), _pod_parts(made))
    containers = _by(_map(made.get("spec")).get("containers"), "name")
    for container in ours["spec"]["containers"]:
        name = container["name"]
        if name in containers:
            changed = _changed(_container_parts(container), _container_parts(containers[name]))
            lost += [f"{what} of container {name}" for what in changed]
        else:
            lost.append(f"container {name}")
    if lost:
        raise refused("the target's `template` removes or changes parts that Seatrial needs: " + "; ".join(lost))
    return made


def _merged(ours: Mapping[str, Any], patch: Mapping[str, Any], path: tuple[str, ...]) -> Manifest:
    """Merges maps; null removes a field; lists in MERGED are merged, others replaced."""
    made = dict(ours)
    for field, value in patch.items():
        place = (*path, str(field))
        if place[-1].startswith("$"):
            raise _invalid(place, "unknown directive; only `$patch: delete` in a list element is supported")
        before = made.get(field)
        if value is None:
            made.pop(field, None)
        elif isinstance(value, dict):
            made[field] = _merged(before if isinstance(before, dict) else {}, value, place)
        elif isinstance(value, list) and field in MERGED:
            made[field] = _merged_list(before if isinstance(before, list) else [], value, MERGED[field], place)
        else:
            made[field] = copy.deepcopy(value)
    return made


def _merged_list(ours: list[Any], patch: list[Any], key: str, path: tuple[str, ...]) -> list[Any]:
    """Our elements in their order, then new ones."""
    made = {one[key]: one for one in ours}
    for element in patch:
        if not isinstance(element, dict) or not isinstance(element.get(key), str | int):
            raise _invalid(path, f"a list element has no `{key}`, which identifies it: {str(element)[:80]}")
        if DELETE.items() <= element.items():
            made.pop(element[key], None)
        else:
            made[element[key]] = _merged(made.get(element[key], {}), element, path)
    return list(made.values())


def _invalid(path: tuple[str, ...], problem: str) -> TargetError:
    return refused(f"the target's `template`: {'.'.join(path)}: {problem}")


def _pod_parts(template: Mapping[str, Any]) -> Manifest:
    """The parts of a pod template that Seatrial needs, besides the containers, by what they are called in errors."""
    labels, spec = _map(_map(template.get("metadata")).get("labels")), _map(template.get("spec"))
    parts = {f"label {key}": value for key, value in labels.items()}
    parts |= {f"spec.{field}": spec.get(field) for field in ("restartPolicy", "subdomain")}
    for name, volume in _by(spec.get("volumes"), "name").items():
        if str(name).startswith("seatrial-"):
            parts[f"volume {name}"] = volume if name != VOLUME else name  # its kind may be another one
    return parts


def _container_parts(container: Mapping[str, Any]) -> Manifest:
    parts = {field: container.get(field) for field in _OWN_FIELDS}
    if "readinessProbe" in container:
        parts["readinessProbe"] = container["readinessProbe"]
    parts |= {f"port {name}": port for name, port in _by(container.get("ports"), "name").items()}
    for name, variable in _by(container.get("env"), "name").items():
        if str(name).startswith("SEATRIAL_") or name in _OWN_VARIABLES or "valueFrom" in variable:
            parts[f"variable {name}"] = variable
    for path, mount in _by(container.get("volumeMounts"), "mountPath").items():
        if str(path).startswith(f"{names.PLACE}/"):
            parts[f"the mount at {path}"] = mount
    return parts


def _changed(ours: Manifest, made: Manifest) -> list[str]:
    return [what for what, value in ours.items() if made.get(what) != value]


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _by(elements: Any, key: str) -> dict[Any, Mapping[str, Any]]:
    found = elements if isinstance(elements, list) else []
    return {element.get(key): element for element in found if isinstance(element, dict)}
