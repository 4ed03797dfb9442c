"""The environment of a pod's containers, and the names by which hosts of a job find each other. No value of a secret is
ever in it: only where to find it."""

import msgspec

from seatrial.job import Job
from seatrial.kubernetes import Manifest
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.placement import seconds
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.protocol import refused

# Images made for GPUs say `all`; with NVIDIA's runtime a container that asked for none would then see every GPU.
_GPUS = "NVIDIA_VISIBLE_DEVICES"
_NO_GPU = {_GPUS: "void"}
MASTER_PORT = 29500
REPLICATED_JOB = "h"  # short: NAME-h-0-NUMBER-RANDOM must fit into 63 characters


class Hosts(msgspec.Struct, frozen=True):
    """`names` are complete enough for every pod of the namespace; of one host alone there are none."""

    count: int = 1
    names: tuple[str, ...] = ()
    subdomain: str | None = None  # of the pods, where no controller sets it


def hosts_of(job: Job, options: KubernetesOptions, namespace: str) -> Hosts:
    if job.hosts <= 1:
        return Hosts()
    name = names.object_name(job.name)
    numbers = range(job.hosts)
    if options.workload == "jobset":
        own = (f"{name}-{REPLICATED_JOB}-0-{number}" for number in numbers)
        return Hosts(job.hosts, tuple(f"{pod}.{name}.{namespace}.svc" for pod in own))
    return Hosts(job.hosts, tuple(f"{name}-{number}.{name}.{namespace}.svc" for number in numbers), subdomain=name)


def trial_variables(job: Job, options: KubernetesOptions, hosts: Hosts) -> list[Manifest]:
    """What comes later stands over what came before; what Seatrial itself needs stands over all."""
    unseen = {} if job.resources.gpu.count else _NO_GPU
    plain = {**unseen, **options.env, **job.env}
    own = own_variables(job, hosts)
    made = {name: _literal(name, value) for name, value in plain.items()}
    secret = names.object_name(job.name)
    made |= {name: {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in job.secrets}
    made |= {name: _literal(name, value) for name, value in own.items()}
    return [made[name] for name in sorted(made)]


def own_variables(job: Job, hosts: Hosts) -> dict[str, str]:
    made = {
        "HOME": f"{names.VOLUME}/home",
        "TMPDIR": f"{names.VOLUME}/tmp",
        "SEATRIAL_FILES": f"{names.OUT}/files",
        "SEATRIAL_RUN": job.run,
        "SEATRIAL_CELL": job.cell,
        "SEATRIAL_ATTEMPT": str(job.attempt),
        "SEATRIAL_JOB": job.name,
        **{f"SEATRIAL_PORT_{port.name.upper().replace('-', '_')}": str(port.number) for port in job.ports},
    }
    if job.ports:  # each pod has a network of its own: every port has the number that the job asked for
        made["SEATRIAL_PORT"] = str(job.ports[0].number)
    if hosts.count > 1:
        made |= {"SEATRIAL_HOSTS": str(hosts.count), "SEATRIAL_HOSTNAMES": ",".join(hosts.names)}
        made |= {"MASTER_ADDR": hosts.names[0], "MASTER_PORT": str(MASTER_PORT)}
    return made


def keeper_variables(keep_s: float) -> list[Manifest]:
    own = {**_NO_GPU, "SEATRIAL_KEEP_S": str(seconds(keep_s))}
    return [_literal(name, value) for name, value in sorted(own.items())]


def _literal(name: str, value: str) -> Manifest:
    """Kubernetes replaces `$(NAME)` in values; a doubled `$` is one of the value's own."""
    check_text(name, value)
    return {"name": name, "value": value.replace("$", "$$")}


def check_text(name: str, value: str) -> None:
    """What a variable of a pod can hold: the message never has the value, which may be a secret."""
    problem = "has a NUL in it" if "\0" in value else ""
    try:
        value.encode()
    except UnicodeEncodeError:
        problem = "is not UTF-8"
    if problem:
        raise refused(
            f"the value of {name} {problem}, which no variable of a pod can hold; encode it (base64), or put it into a "
            "file"
        )
