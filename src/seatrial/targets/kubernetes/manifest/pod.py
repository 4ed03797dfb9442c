"""The pod of a job: the trial, the keeper of its files, their volumes and variables, and the names of a job's hosts.

It never has secret values, only references to them.
"""

import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from shlex import quote

import msgspec

from seatrial.job import Job, Step
from seatrial.kubernetes import Manifest
from seatrial.targets.agent_file import job_variables
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest import placement
from seatrial.targets.kubernetes.manifest.placement import cpu_quantity, seconds, size_quantity
from seatrial.targets.kubernetes.options import SHARED_MEMORY, KubernetesOptions
from seatrial.targets.protocol import refused

# The volumes of a pod.
Volumes = dict[str, tuple[Manifest, Manifest]]  # source and mount by name
AGENT, CONFIG, INPUTS, VOLUME = "seatrial-agent", "seatrial-job", "seatrial-inputs", "seatrial-volume"
PROBE_TIMEOUT_S = 5
PULL_MARGIN_S = 900.0  # for pulling images, and for the agent to stop by itself before the cluster stops it
GRACE_MARGIN_S = 5.0


# ---- variables

# GPU images set this to `all`; with NVIDIA's runtime a container that requested no GPU would then see every GPU.
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
MASTER_PORT = 29500
REPLICATED_JOB = "h"  # short: NAME-h-0-NUMBER-RANDOM must fit into 63 characters


def subdomain(job: Job, options: KubernetesOptions) -> str | None:
    """The subdomain of a job's pods, which gives its hosts DNS names. None for one host, or if a JobSet sets it."""
    return names.object_name(job.name) if job.hosts > 1 and options.workload == "job" else None


def host_names(job: Job, options: KubernetesOptions, namespace: str) -> list[str]:
    """DNS names of several hosts, valid in all pods of the namespace."""
    name, slices, jobset = names.object_name(job.name), job.resources.slices, options.workload == "jobset"
    pods = [f"{name}-{REPLICATED_JOB}-{number}" for number in range(slices)] if jobset else [name]
    return [f"{pod}-{number}.{name}.{namespace}.svc" for pod in pods for number in range(job.hosts // slices)]


def trial_variables(job: Job, options: KubernetesOptions, namespace: str) -> list[Manifest]:
    """Variables of the trial. Later sources override earlier ones; Seatrial's own override all."""
    own = {
        "HOME": f"{names.VOLUME}/home",
        "TMPDIR": f"{names.VOLUME}/tmp",
        "SEATRIAL_FILES": f"{names.OUT}/files",
        # Each pod has its own network, so every port keeps the requested number.
        **job_variables(job, {port.name: port.number for port in job.ports}),
    }
    hosts = host_names(job, options, namespace)
    if job.hosts > 1:
        own |= {"SEATRIAL_HOSTS": str(job.hosts), "SEATRIAL_HOSTNAMES": ",".join(hosts)}
        own |= {"MASTER_ADDR": hosts[0], "MASTER_PORT": str(MASTER_PORT)}
    slices, devices = job.resources.slices, job.resources.gpu.count or job.resources.accelerator
    plain = {**({} if devices else _NO_GPU), **options.env, **job.env}
    made = {name: _literal(name, value) for name, value in plain.items()}
    secret = names.object_name(job.name)
    made |= {name: {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in job.secrets}
    if slices > 1:
        own |= {"MEGASCALE_NUM_SLICES": str(slices), "SEATRIAL_SLICES": str(slices)}
        own["MEGASCALE_COORDINATOR_ADDRESS"] = hosts[0]
        number = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{names.JOB_INDEX}']"}}}
        made |= {name: {"name": name, **number} for name in ("MEGASCALE_SLICE_ID", "SEATRIAL_SLICE")}
    made |= {name: _literal(name, value) for name, value in own.items()}
    return [made[name] for name in sorted(made)]


def _literal(name: str, value: str) -> Manifest:
    """Doubles each `$`, because Kubernetes expands `$(NAME)` in values."""
    return {"name": name, "value": check_text(name, value).replace("$", "$$")}


def check_text(name: str, value: str) -> str:
    """Returns `value` if a pod variable can hold it. The error never shows it: it may be a secret."""
    problem = "contains a NUL" if "\0" in value else ""
    try:
        value.encode()
    except UnicodeEncodeError:
        problem = "is not UTF-8"
    if problem:
        raise refused(f"the value of {name} {problem}, which a pod cannot hold; encode it (base64) or use a file")
    return value


# ---- the pod


def keep_s(job: Job, options: KubernetesOptions) -> float:
    """How long the keeper waits for the files to be collected."""
    return min(options.keep_s, options.keep_gpu_s) if job.resources.scarce else options.keep_s


def pod_deadline_s(job: Job, options: KubernetesOptions) -> float:
    """From the pod's start until the cluster stops it, whatever the agent does."""
    limits = job.limits
    run_s = options.deadline_s if limits.run_s is None else limits.run_s
    return run_s + limits.grace_s + keep_s(job, options) + PULL_MARGIN_S


def pod_template(job: Job, options: KubernetesOptions, namespace: str, agent: str, inputs: Sequence[str]) -> Manifest:
    image = _image(job, options)
    selector, volumes = placement.node_selector(job, options), _volumes(job, options, agent, inputs)
    mounts = [{"name": name, **mount} for name, (_, mount) in volumes.items()]
    spec: Manifest = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": seconds(job.limits.grace_s + GRACE_MARGIN_S),
        "activeDeadlineSeconds": seconds(pod_deadline_s(job, options)),
        "containers": [_trial(job, options, namespace, image, mounts), _keeper(job, options, image, mounts)],
        "volumes": [{"name": name, **source} for name, (source, _) in volumes.items()],
    }
    if options.service_account is None:
        spec["automountServiceAccountToken"] = False
    chosen: Manifest = {
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority,
        "imagePullSecrets": [{"name": secret} for secret in options.pull_secrets],
        "nodeSelector": selector,
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in options.tolerations],
        "affinity": placement.affinity(job, options),
        "subdomain": subdomain(job, options),
    }
    spec |= {key: value for key, value in chosen.items() if value}
    secure(spec, options)
    labels = names.job_labels(job.run, job.name, job.cell, job.attempt, "pod")
    if job.resources.slices > 1:
        labels[names.SLICE_HOSTS] = str(job.hosts // job.resources.slices)
    return {"metadata": {"labels": labels}, "spec": spec}


def _image(job: Job, options: KubernetesOptions) -> str:
    if job.environment.seatrial and job.environment.image is None:
        text = f"`{job.part}` needs an image with Seatrial installed to run in a pod"
        raise refused(f"{text}; without one, run it on this machine")
    image = job.environment.image or options.image
    if image is None:
        raise refused(f"runtime {job.environment.name!r} has no `image`; set it in the runtime or in the target")
    return image


def _trial(job: Job, options: KubernetesOptions, namespace: str, image: str, mounts: list[Manifest]) -> Manifest:
    made = _container(names.TRIAL, "start.sh", options, image)
    made |= {"env": trial_variables(job, options, namespace), "volumeMounts": mounts}
    made |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    if wanted := placement.resources(job, options):
        made["resources"] = wanted
    if job.ports:
        made["ports"] = [{"name": port.name, "containerPort": port.number} for port in job.ports]
    if job.ready is not None:
        # Probed every second by the node at the pod's address. As in Kubernetes, a status below 400 counts as ready.
        port, path = {"port": job.ready.port}, job.ready.path
        how = {"httpGet": {"path": path, **port}} if path else {"tcpSocket": port}
        made["readinessProbe"] = {**how, "periodSeconds": 1, "timeoutSeconds": PROBE_TIMEOUT_S}
    return made


def _keeper(job: Job, options: KubernetesOptions, image: str, mounts: list[Manifest]) -> Manifest:
    made = _container(names.KEEPER, "keep.sh", options, image)
    own = {**_NO_GPU, "SEATRIAL_KEEP_S": str(seconds(keep_s(job, options)))}
    made["env"] = [_literal(name, value) for name, value in sorted(own.items())]
    # Low requests; the CPU limit is higher for fetching files.
    keeper, memory = options.keeper, size_quantity(options.keeper.memory_bytes)
    made["resources"] = {
        "requests": {"cpu": cpu_quantity(keeper.cpu), "memory": memory},
        "limits": {"cpu": cpu_quantity(keeper.cpu_limit), "memory": memory},
    }
    made["volumeMounts"] = [mount for mount in mounts if mount["name"] in (AGENT, VOLUME)]
    return made


def _container(name: str, script: str, options: KubernetesOptions, image: str) -> Manifest:
    made: Manifest = {"name": name, "image": image, "command": ["/bin/sh", f"{names.AGENT}/{script}"]}
    if options.pull is not None:
        made["imagePullPolicy"] = options.pull
    return made


def secure(spec: Manifest, options: KubernetesOptions) -> None:
    """Sets the security context of a pod and its containers, as the target's `security` and `user` say."""
    user, made = options.run_as, Manifest()
    if user is not None:
        # Without the policy, each start changes the owner of every file of a claim.
        made = {"runAsUser": user, "runAsGroup": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    if options.security == "restricted":
        made |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if made:
        spec["securityContext"] = made


def _volumes(job: Job, options: KubernetesOptions, agent: str, inputs: Sequence[str]) -> Volumes:
    made: Volumes = {
        AGENT: ({"configMap": {"name": agent}}, {"mountPath": names.AGENT, "readOnly": True}),
        CONFIG: ({"configMap": {"name": names.object_name(job.name)}}, {"mountPath": names.CONFIG, "readOnly": True}),
    }
    if inputs:
        parts = [
            {"configMap": {"name": name, "items": [{"key": "part", "path": f"part-{number:04d}"}]}}
            for number, name in enumerate(inputs)
        ]
        made[INPUTS] = {"projected": {"sources": parts}}, {"mountPath": names.INPUTS, "readOnly": True}
    limit = {"sizeLimit": size_quantity(options.files_size_bytes)} if options.files_size_bytes else {}
    made[VOLUME] = {"emptyDir": limit}, {"mountPath": names.VOLUME}
    if options.shared_memory_bytes:
        memory = {"medium": "Memory", "sizeLimit": size_quantity(options.shared_memory_bytes)}
        made["shared-memory"] = {"emptyDir": memory}, {"mountPath": SHARED_MEMORY}
    for number, volume in enumerate(options.volumes):
        read_only = {"readOnly": True} if volume.read_only else {}
        sources: Manifest = {
            "persistentVolumeClaim": volume.claim and {"claimName": volume.claim, **read_only},
            "hostPath": volume.host and {"path": volume.host},
            "configMap": volume.config and {"name": volume.config},
            "secret": volume.secret and {"secretName": volume.secret},
        }
        part = {} if volume.path is None else {"subPath": volume.path}
        source = {key: value for key, value in sources.items() if value}
        made[f"volume-{number}"] = source, {"mountPath": volume.at, **read_only, **part}
    return made


NEEDS = "Python 3.8 or later in the image (none found)"


def plain_script(job: Job) -> str:
    """`plain.sh` of a job, for an image without Python: a fixed part, then the job's steps as a plain shell can run
    them.

    Only commands and names of the job reach the shell, single-quoted."""
    return "\n".join([script("plain"), *_calls(job), "finish", ""]).encode("utf-8", "replace").decode()


def script(name: str) -> str:
    """Text of a script for pods."""
    return (files(__package__) / "scripts" / f"{name}.sh").read_text(encoding="utf-8")


def _calls(job: Job) -> Iterator[str]:
    environment = job.environment
    needs_more = {
        "masking secrets in log and files": job.secrets,
        "a runtime with an interpreter": environment.interpreter,
        "a runtime with packages": environment.python or environment.packages,
        "a job on several hosts": job.hosts > 1,
        "a job with input files": job.inputs,
    }
    yield from (f"finish refused {quote(f'{what} needs {NEEDS}')}" for what, wanted in needs_more.items() if wanted)
    yield f"grace_s={math.ceil(job.limits.grace_s)}"
    for index, step in enumerate(job.steps):
        heading = " ".join(f"[{index + 1}/{len(job.steps)}] {step.name}".split()).replace("\0", "?")
        yield f"step {index} {quote(heading)} {_kind_and_text(step)}"


def _kind_and_text(step: Step) -> str:
    command = step.args.get("command")
    follow = step.args.get("follow") or {}
    if step.kind not in ("command", "which") or "hosts" in step.args or follow.get("values"):
        problem = f"a step of kind {step.kind[:100]!a} needs {NEEDS}"
    elif not isinstance(command, str) or "\0" in command:
        problem = "the step has no valid shell command"
    else:
        limit = "" if step.timeout_s is None else math.ceil(step.timeout_s)
        return f"{step.kind} '{limit}' {quote(command)}"
    return f"refused '' {quote(msgspec.json.encode({'error': problem}).decode())}"
