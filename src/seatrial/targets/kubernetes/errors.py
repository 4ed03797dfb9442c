"""Turns errors of the Kubernetes client into TargetErrors, and lists the permissions that the target needs."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import seatrial.kubernetes as k8s
from seatrial.job import Outcome
from seatrial.targets.kubernetes.manifest import root_resource
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.watch.waiting import only_user_can_fix, over_whole_quota
from seatrial.targets.protocol import TargetError, TargetLost

NO_NAMESPACE = re.compile(r'^namespaces "([^"]*)" not found')


def target_error(error: k8s.KubernetesError, doing: str = "", lost: bool = False) -> TargetError:
    """The TargetError for `error`. `lost`: the failed request was about a job whose state is now unknown."""
    text = str(error)
    if isinstance(error, k8s.NotFound) and (namespace := NO_NAMESPACE.search(error.message)):
        create = f"run `kubectl create namespace {namespace[1]}`"
        text = f"namespace {namespace[1]} does not exist\n{create}, or set another `namespace` in the target"
    text = f"{doing}: {text}" if doing else text
    if isinstance(error, k8s.CredentialsError):
        text += "\nlog in again to renew the credentials; running jobs continue meanwhile"
    if lost or isinstance(error, k8s.CredentialsError):
        return TargetLost(text)
    return TargetError(text, Outcome.REFUSED if _refused(error) else Outcome.INFRA)


def _refused(error: k8s.KubernetesError) -> bool:
    """Whether the request itself is wrong, so that a retry cannot help: a policy rejects it, or it exceeds a whole
    quota. A full quota and a missing permission are problems of the cluster."""
    if isinstance(error, k8s.Forbidden) and error.missing is None:
        return over_whole_quota(error.message) if error.of_quota else only_user_can_fix("not_admitted", error.message)
    invalid = isinstance(error, k8s.ApiError) and error.code in (400, 422)
    return invalid or isinstance(error, k8s.UnknownKind | k8s.KubeconfigError)


@contextmanager
def target_errors(doing: str = "", lost: tuple[type[k8s.KubernetesError], ...] = ()) -> Iterator[None]:
    """Turns errors of the client in the block into TargetErrors. `lost`: which ones leave the job's state unknown."""
    try:
        yield
    except k8s.KubernetesError as error:
        raise target_error(error, doing, isinstance(error, lost)) from error


_JOBS = "create delete get list patch"  # to own all objects of a run, and to record which process owns the run


def needed(options: KubernetesOptions, namespace: str) -> list[k8s.Right]:
    """The permissions that the target needs with these options; `rights.toml` says why."""
    table = tomllib.loads((files(__package__) / "rights.toml").read_text(encoding="utf-8"))
    # The watch is for running, releasing and stopping jobs.
    uses = {k8s.JOBS.title: _JOBS} | {root_resource(options).title: f"{_JOBS} watch"}
    uses |= table["always"] | table[options.endpoint]
    named = [(*title.partition(".")[::2], verbs.split()) for title, verbs in uses.items()]
    return [k8s.Right(verb, group, resource, namespace) for resource, group, verbs in named for verb in verbs]
