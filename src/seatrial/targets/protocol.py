"""The one protocol behind which every target stands. The contract tests follow the numbers below.

1. A handle is a URL (`local://HOST/RUN/NAME`) that any later process can take up; it says nothing of who submitted.
2. `submit` is keyed by `job.name`. The same name again gives the same handle and starts nothing: whoever crashed
   between asking and hearing simply asks again. When it returns, the job is known to the target even if this process
   dies at once. Cancelled before it returned, it leaves nothing that runs.
3. A job that was submitted goes on when its submitter is gone, and ends by its own limits.
4. `watch` gives events for every handle that this process submitted or took up, in the order in which they happened.
   Exactly one event of a handle has an `exit`, and it is its last. A job that ended before anybody watched still gives
   its events.
5. After the exit event nothing of the job runs any more, and `logs` and `fetch` give all that there will ever be.
6. What a job wrote before it was killed is there. Logs are bounded: the first and the last part, the middle counted.
   `logs` gives them to any process that reaches the target, while somebody else works on the run, too; nothing is taken
   over by that.
7. `cancel` is polite, then forceful (`limits.grace_s`); it returns when the exit event is on its way. Cancelling what
   has ended is no error.
8. `remove` leaves nothing of the job: no process, no file, no object. Twice is no error. A job that still runs is ended
   first.
9. `list` finds all of a run (or of all runs) by label alone, from any process or machine that reaches the target.
10. What cannot be done raises TargetError, whose `outcome` says whose fault it is; nothing else is raised on purpose.
    TargetLost when it is this process that cannot do it any more: nothing is known of the job by that.
11. `verify` says before anything runs whether the target would ever take such a job, and creates nothing: REFUSED when
    it never would, whatever is tried again; INFRA when that could not be found out. That it raises nothing is no
    promise: a place may still be refused when the job comes.
12. What several machines may work on has a heartbeat of its own: `list` says of each job whether somebody works on its
    run (`in_use`), or that the target cannot tell. `submit`, `adopt` and `cancel` of a run that somebody else works on
    raise RunInUse.
13. `examine` says of everything that the target needs whether it is there, and what to do where it is not. It raises
    nothing: that a target cannot be reached is a diagnostic. It needs no `open`, and leaves nothing.
14. Of a job with several `hosts` that each have a place of their own, `fetch` of `records.jsonl` and `files` gives host
    0's, and of `hosts/N/records.jsonl` and `hosts/N/files` those of host N. `log.txt` is of all hosts, each line with
    its host before it: `[N] text`. Where the hosts are processes of one place there is no `hosts/N`.
15. A job with `ready` gives one READY event, once its port accepts a connection or its path answers; never before.
    One that ends before that gives none. The number of each of its ports is in the variable `SEATRIAL_PORT_<NAME>`
    (dashes as underscores), that of the first also in `SEATRIAL_PORT`; no two running jobs of one machine that share
    its network have the same.
16. `endpoint` gives the address of a port by its name, of any job of any process, as long as the job runs; several may
    be open at once, and each works as long as its block. A job without such a port is refused. It waits until the port
    answers, and says what the route adds. Drivers open it, in processes of their own; the engine never does.
17. `addresses` gives the addresses of a job's ports for other jobs of the same place; they go with the job.

What only some targets can do is a capability, which a driver asks for with `isinstance`:
18. `HasApi`: `api` gives access to a Kubernetes API and to objects that belong to an attempt. It needs no `open`.
19. `HasProcesses`: processes that a driver starts run on the target itself.
"""

import builtins
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from seatrial.job import Environment, Event, Job, Outcome

if TYPE_CHECKING:
    from seatrial.kubernetes import Kubernetes, Manifest, Resource


class TargetError(Exception):
    """A target could not do what was asked. `outcome` is REFUSED when asking again cannot help, else INFRA."""

    def __init__(self, message: str, outcome: Outcome = Outcome.INFRA) -> None:
        super().__init__(message)
        self.outcome = outcome


def refused(message: str) -> TargetError:
    """The error of something that is not done, however often it is asked for."""
    return TargetError(message, Outcome.REFUSED)


class RunInUse(TargetError):
    """Somebody else works on the run, as the target's own heartbeat says: the run stops, and nothing was changed."""


class DamagedJob(TargetError):
    """The target has the job and cannot tell any more what it is: it can only be removed."""


class TargetLost(TargetError):
    """This process can do no more on the target: who it is does not count there any more, or nobody answers. The jobs
    there go on, and nothing is known of them by this: the run stops, and is taken up when that is mended."""


class Endpoint(str):
    """An address (`host:port`), and what lies on the way there: a metric that was measured over it says so."""

    route: str
    overhead_s: float  # the least that the route adds to every answer: the median of some round trips
    overhead_p99_s: float
    tls: bool  # the way speaks TLS, whatever the job itself does

    def __new__(
        cls,
        address: str,
        route: str = "direct",
        overhead_s: float = 0.0,
        overhead_p99_s: float = 0.0,
        tls: bool = False,
    ) -> "Endpoint":
        made = super().__new__(cls, address)
        made.route, made.overhead_s, made.overhead_p99_s, made.tls = route, overhead_s, overhead_p99_s, tls
        return made


class Found(msgspec.Struct, frozen=True):
    """A job that the target has, by its labels."""

    handle: str
    name: str
    run: str
    alive: bool
    labels: dict[str, str]
    created_s: float  # wall time
    in_use: bool | None = None  # whether a process works on its run, by the target's own word; None: it cannot tell


class DiagnosticLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"  # some jobs will not run there, or not as they should
    PROBLEM = "problem"  # none will


class Diagnostic(msgspec.Struct, frozen=True):
    """Something that a target needs, for a person who sets it up."""

    level: DiagnosticLevel
    what: str  # a few words: "room for jobs", "right to create jobs"
    why: str = ""  # what was seen
    fix: str = ""  # what to do; may be several lines, such as YAML to apply


ok = partial(Diagnostic, DiagnosticLevel.OK)
warning = partial(Diagnostic, DiagnosticLevel.WARNING)
problem = partial(Diagnostic, DiagnosticLevel.PROBLEM)


class Target(Protocol):
    name: str

    def address(self) -> dict[str, Any]:
        """Options by which another process on this machine opens the same target, whatever its environment says. Known
        once the target is open."""

    async def open(self) -> None:
        """Get ready; nothing is created on the target by this."""

    async def close(self) -> None:
        """Let go of what this process holds. Jobs go on."""

    async def prepare(self, environment: Environment) -> None:
        """Begin what takes long before a job can start there (building, pulling). Never raises: `submit` tells."""

    def preparing(self, environment: Environment) -> str:
        """What this process is doing at the moment so that a job can start there, in a few words; empty: nothing."""

    async def verify(self, job: Job) -> None:
        """Raises TargetError when such a job would never be taken. `job` is one of many of its shape."""

    async def examine(self) -> "builtins.list[Diagnostic]":
        """What is in order and what is not, for `seatrial doctor`."""

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        """Start `job`, or find it; `secrets` are values by variable, kept out of everything that is written down."""

    async def adopt(self, handle: str) -> None:
        """Take up a job that another process submitted: its events come from `watch` from now on."""

    def watch(self) -> AsyncIterator[Event]: ...

    def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]: ...

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        """Put `records.jsonl`, `log.txt` or a file or folder that the job kept (`files/...`) at `into`; what is of
        another host than the first is below `hosts/N/`. False: none. What is not whole yet lies beside `into`, under
        a hidden name; a process that is killed leaves it there."""

    def endpoint(self, handle: str, port: str) -> AbstractAsyncContextManager[Endpoint]:
        """The address under which the job's port of that name can be reached from here."""

    async def addresses(self, handle: str, asker: Mapping[str, Any]) -> dict[str, str]:
        """By the name of each port: where a job of another target, whose `address` is `asker`, reaches it without this
        one's help. Empty when it cannot; then it needs an `endpoint`."""

    async def cancel(self, handle: str) -> None: ...

    async def remove(self, handle: str) -> None: ...

    async def list(self, run: str | None = None) -> list[Found]: ...


class OwnedObjects(Protocol):
    """Objects on a cluster that belong to one attempt: found by their labels, removed with their owner."""

    client: "Kubernetes"
    namespaces: tuple[str, ...]  # the target's own first
    labels: Mapping[str, str]  # of all objects of the attempt
    selector: str  # for these labels
    kubeconfig: Path | None  # with `context`, by which another process gets the same access
    context: str | None

    def own(self, manifest: Mapping[str, Any], resource: "Resource") -> "Manifest":
        """A copy of the manifest with its owner and the attempt's labels, also on the pods that it describes. Raises
        TargetError for an object that cannot be owned: of the whole cluster, or of another namespace."""

    def errors(self) -> AbstractContextManager[None]:
        """Errors of the client inside become TargetErrors."""


@runtime_checkable
class HasApi(Protocol):
    def api(
        self, run: str, cell: str, attempt: int, namespaces: tuple[str, ...], at_once: int, inside: bool
    ) -> AbstractAsyncContextManager[OwnedObjects]:
        """Objects of an attempt in the target's own namespace and in `namespaces`, removed when the block ends. At most
        `at_once` requests are sent at a time. `inside`: this process runs on the target, with an account there."""


@runtime_checkable
class HasProcesses(Protocol):
    def cpus(self) -> int:
        """How many CPUs the processes of a job may use."""


class TargetKind(Protocol):
    """What an entry point of `seatrial.targets` names. `options` is a pydantic model of the target's fields in a suite,
    `extra="forbid"`, with `parallel: int | None`."""

    name: str
    options: type[Any]
    one_machine: bool  # whether only the machine of a job's submitter knows of it

    def is_available(self) -> bool:
        """Whether there is one to look at without any options, for a doctor who was told of none."""

    def open(self, name: str, options: Any) -> Target: ...
