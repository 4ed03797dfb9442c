"""The protocol that every target implements. The contract tests follow the numbers below.

1. A handle is a URL (`local://HOST/RUN/NAME`). Any later process can adopt it; it does not name the submitter.
2. `submit` is keyed by `job.name`. The same name again returns the same handle and starts nothing, so a process that
   crashed during `submit` can repeat it. After `submit` returns, the target knows the job even if this process dies at
   once. Cancelled before it returns, it leaves nothing running.
3. A submitted job continues without its submitter and stops at its own limits.
4. `watch` yields events for every handle that this process submitted or adopted, in the order in which they happened.
   Exactly one event of a handle has an `exit`, and it is the last. A job that ended before the watch began still
   yields its events.
5. After the exit event no process of the job is running, and the results of `logs` and `fetch` are final.
6. Output written before a job was killed is kept. Logs are bounded: head and tail are kept, the omitted bytes are
   counted. `logs` works in any process that reaches the target, even while another process owns the run, and takes
   nothing over.
7. `cancel` asks the job to stop and kills it after `limits.grace_s`. It returns once the exit event is certain to
   follow. Cancelling a job that has ended is not an error.
8. `remove` stops the job if it runs and deletes all of it: processes, files, objects. A second call is not an error.
9. `list` finds all jobs of a run (or of all runs) by label alone, from any process or machine that reaches the target.
10. Failures raise TargetError; its `outcome` tells a bad request (REFUSED) from a temporary failure (INFRA). No other
    exception is raised on purpose. TargetLost means that this process lost access; the state of the job is unknown.
11. `verify` tells before the run whether the target could ever accept such a job, and creates nothing. It raises
    REFUSED if it never could, INFRA if that is unknown. Success is no guarantee: `submit` may still fail.
12. A target that several machines share keeps a heartbeat per run: `list` reports for each job whether a process owns
    its run (`in_use`), or None if the target cannot tell. `submit`, `adopt` and `cancel` raise RunInUse if another
    machine owns the run.
13. `examine` reports for everything that the target needs whether it is available, and how to fix it. It never raises:
    an unreachable target is a diagnostic. It needs no `open` and leaves nothing behind.
14. For a job with several `hosts` on machines or pods of their own, `fetch` of `records.jsonl` and `files` returns
    host 0's, and `hosts/N/records.jsonl` and `hosts/N/files` those of host N. `log.txt` covers all hosts, each line
    prefixed with its host: `[N] text`. If the hosts are processes of one machine there is no `hosts/N`.
15. A job with `ready` yields one READY event once its port accepts a connection or its path answers, and none if it
    ends before. The variable `SEATRIAL_PORT_<NAME>` (dashes as underscores) has the number of each port,
    `SEATRIAL_PORT` that of the first. No two running jobs that share a machine's network have the same number.
16. `endpoint` opens a port by name, of any job of any process, while the job runs. Several may be open at once; each
    works until its block ends. It waits until the port answers and measures the latency of the route. A job without
    such a port is REFUSED. Drivers call it in their own processes; the engine never does.
17. `addresses` returns the addresses of a job's ports for other jobs on the same target; they vanish with the job.

Optional capabilities, which a driver checks with `isinstance`:
18. `HasApi`: `api` gives access to a Kubernetes API and to objects owned by an attempt. It needs no `open`.
19. `HasProcesses`: processes that a driver starts run on the target itself.
"""

import builtins
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

import msgspec

from seatrial.job import Environment, Event, Job, Outcome

if TYPE_CHECKING:
    from seatrial.kubernetes import Kubernetes, Manifest, Object, Resource


class TargetError(Exception):
    """A request to a target failed. `outcome` is REFUSED if a retry cannot help, else INFRA."""

    def __init__(self, message: str, outcome: Outcome = Outcome.INFRA) -> None:
        super().__init__(message)
        self.outcome = outcome


def refused(message: str) -> TargetError:
    """A TargetError that no retry can fix."""
    return TargetError(message, Outcome.REFUSED)


def handle_parts(text: str, form: str) -> list[str]:
    """Host and path of a handle (1), such as `local://HOST/RUN/NAME`. Raises TargetError (REFUSED) if it has not that
    form."""
    url = urlsplit(text)
    parts = [unquote(part) for part in (url.netloc, *url.path.split("/")[1:])]
    if url.scheme != urlsplit(form).scheme or len(parts) != form.count("/") - 1 or not all(parts[1:]):
        raise refused(f"invalid handle {text!r}; expected {form}")
    return parts


class RunInUse(TargetError):
    """A process on another machine owns the run, by its heartbeat. Nothing was changed; this process stops the run."""


class DamagedJob(TargetError):
    """The target has the job but lost its description: the job can only be removed."""


class TargetLost(TargetError):
    """This process lost access to the target: its credentials are no longer valid, or the target does not answer. Its
    jobs continue in an unknown state; the run stops, and `seatrial attach` resumes it once the problem is fixed."""


class Endpoint(str):
    """An address (`host:port`) with the route to it, which is reported with metrics measured over it."""

    route = "direct"
    overhead_s = 0.0  # least latency that the route adds to each answer: median round trip
    overhead_p99_s = 0.0
    tls = False  # the route uses TLS, even if the job does not


class Found(msgspec.Struct, frozen=True):
    """A job on the target, found by its labels."""

    handle: str
    name: str
    run: str
    alive: bool
    labels: dict[str, str]
    created_s: float  # wall time
    in_use: bool | None = None  # whether a process owns its run; None if the target cannot tell
    user: str = ""  # the user whom it belongs to, if only that user can read and delete it


class DiagnosticLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"  # some jobs cannot run, or only with restrictions
    PROBLEM = "problem"  # no job can run


class Diagnostic(msgspec.Struct, frozen=True):
    """One line of `seatrial doctor`: something that a target needs."""

    level: DiagnosticLevel
    what: str  # a few words: "job folder", "permissions"
    why: str = ""  # what was found
    fix: str = ""  # what to do; may be several lines, such as YAML to apply


ok = partial(Diagnostic, DiagnosticLevel.OK)
warning = partial(Diagnostic, DiagnosticLevel.WARNING)
problem = partial(Diagnostic, DiagnosticLevel.PROBLEM)


class Target(Protocol):
    name: str

    def address(self) -> dict[str, Any]:
        """Options that open the same target in another process on this machine, whatever its environment variables.
        Needs an open target."""

    async def open(self) -> None:
        """Connect. Creates nothing on the target."""

    async def close(self) -> None:
        """Release the resources held by this process. Jobs continue."""

    async def prepare(self, environment: Environment) -> None:
        """Start slow work that a job needs first (building, pulling). Never raises: `submit` reports failures."""

    def preparing(self, environment: Environment) -> str:
        """Current preparation of this environment in a few words, for progress output; empty if there is none."""

    async def verify(self, job: Job) -> None:
        """Raises TargetError if the target would never accept such a job. `job` stands for all of the same shape."""

    async def examine(self) -> "builtins.list[Diagnostic]":
        """Diagnostics for `seatrial doctor`."""

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        """Start `job`, or find it. `secrets` are values by variable; they are never written to records or logs."""

    async def adopt(self, handle: str) -> None:
        """Adopt a job that another process submitted. From then on `watch` yields its events."""

    def watch(self) -> AsyncIterator[Event]: ...

    def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]: ...

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        """Write `records.jsonl`, `log.txt` or a file or folder that the job kept (`files/...`) to `into`; `hosts/N/...`
        selects another host than the first. False if there is none. Incomplete data are kept next to `into` under a
        hidden name; a killed process leaves them there."""

    def endpoint(self, handle: str, port: str) -> AbstractAsyncContextManager[Endpoint]:
        """Address of the job's port of that name, reachable from this process."""

    async def addresses(self, handle: str, asker: Mapping[str, Any]) -> dict[str, str]:
        """Address of each port by name, for a job on the target with the address `asker`. Empty if that job cannot
        connect directly and needs an `endpoint`."""

    async def cancel(self, handle: str) -> None: ...

    async def remove(self, handle: str) -> None: ...

    async def list(self, run: str | None = None) -> list[Found]: ...


class OwnedObjects(Protocol):
    """Objects on a cluster owned by one attempt: found by label, deleted with their owner."""

    client: "Kubernetes"
    namespaces: tuple[str, ...]  # the target's own first
    labels: Mapping[str, str]  # of all objects of the attempt
    selector: str  # for these labels
    kubeconfig: Path | None  # with `context`: gives another process the same access
    context: str | None

    def own(self, manifest: Mapping[str, Any], resource: "Resource", secured: bool = False) -> "Manifest":
        """A copy of the manifest with an owner reference and the attempt's labels, also on its pod templates, which get
        the target's security context if `secured`. Raises TargetError for an object that cannot be owned:
        cluster-scoped, or in another namespace."""

    async def waiting(
        self, name_of: "Callable[[Object], str]", selector: str | None = None
    ) -> Mapping[str, tuple[str, bool]]:
        """Why pods of the attempt, or those with other labels, do not start, by the names that `name_of` gives them,
        and whether that remains so whatever else ends on the cluster."""

    def errors(self) -> AbstractContextManager[None]:
        """Turns errors of the client inside the block into TargetErrors."""


@runtime_checkable
class HasApi(Protocol):
    def api(
        self, run: str, cell: str, attempt: int, namespaces: tuple[str, ...], at_once: int, inside: bool
    ) -> AbstractAsyncContextManager[OwnedObjects]:
        """Objects of an attempt in the target's own namespace and in `namespaces`, deleted when the block ends. At most
        `at_once` requests run at a time. `inside`: this process runs in the cluster with a service account."""


@runtime_checkable
class HasTombstones(Protocol):
    """A target that several machines use: it remembers for some days which jobs were deleted by a machine without
    their run folder."""

    async def bury(self, found: Found) -> None: ...

    async def is_buried(self, run: str, job: str) -> bool: ...


@runtime_checkable
class HasProcesses(Protocol):
    def cpus(self) -> int:
        """How many CPUs the processes of a job may use."""


@runtime_checkable
class HasObjects(Protocol):
    """A target kind with jobs that are objects of an API."""

    def objects(self, options: Any, job: Job) -> list[dict[str, Any]]:
        """The objects that `submit` would create, for users to read: without values of secrets. Contacts nothing.
        Raises TargetError for a job that the target could never accept."""


class TargetKind(Protocol):
    """The object that an entry point of `seatrial.targets` names. `options` is a pydantic model of the target's fields
    in a suite, `extra="forbid"`, with `parallel: int | None`."""

    name: str
    options: type[Any]
    one_machine: bool  # whether jobs are visible only on the machine that submitted them

    def is_available(self) -> bool:
        """Whether the target works without options, so that `seatrial doctor` can check it by default."""

    def open(self, name: str, options: Any) -> Target: ...
