"""What goes wrong on a cluster, in the words of the target protocol."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seatrial.job import Outcome
from seatrial.target.kubernetes.client import (
    CredentialsError,
    Forbidden,
    Invalid,
    KubeconfigError,
    KubernetesError,
    NotFound,
    Unauthorized,
    UnknownKind,
)
from seatrial.target.protocol import TargetError, TargetLost

# What is wrong with what was asked for, not with the place: asking again cannot help.
_REFUSED = (Invalid, UnknownKind, KubeconfigError)
NO_NAMESPACE = re.compile(r'^namespaces "([^"]*)" not found')
NOBODY = (Unauthorized, CredentialsError)  # the server does not know who asks


def target_error(error: KubernetesError, doing: str = "", lost: bool = False) -> TargetError:
    """`lost`: what was asked for is about a job that is there, and says nothing of it."""
    text = f"{doing}: {error}" if doing else str(error)
    if isinstance(error, Forbidden) and error.missing is not None:
        text += f"\nWhoever administers the cluster can grant that:\n{error.missing.yaml()}"
    if isinstance(error, NotFound) and (namespace := NO_NAMESPACE.search(error.message)):
        text += f"\nmake it (`kubectl create namespace {namespace[1]}`), or name another in the target's `namespace`"
    if isinstance(error, NOBODY):
        text += "\nlog in again; jobs that run go on meanwhile"
    if lost or isinstance(error, NOBODY):
        return TargetLost(text)
    return TargetError(text, Outcome.REFUSED if isinstance(error, _REFUSED) else Outcome.INFRA)


@contextmanager
def told(doing: str = "", lost: bool = False) -> Iterator[None]:
    """Errors of the client inside become the target's own."""
    try:
        yield
    except KubernetesError as error:
        raise target_error(error, doing, lost) from error
