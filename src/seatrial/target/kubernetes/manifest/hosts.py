"""How the hosts of a job find each other: the names that each sort of workload gives to its pods."""

import msgspec

from seatrial.job import Job
from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.options import KubernetesOptions

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
