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
7. `cancel` is polite, then forceful (`limits.grace_s`); it returns when the exit event is on its way. Cancelling what
   has ended is no error.
8. `remove` leaves nothing of the job: no process, no file, no object. Twice is no error. A job that still runs is ended
   first.
9. `list` finds all of a run (or of all runs) by label alone, from any process or machine that reaches the target.
10. What cannot be done raises TargetError, whose `outcome` says whose fault it is; nothing else is raised on purpose.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from seatrial.job import Environment, Event, Job, Outcome


class TargetError(Exception):
    """A target could not do what was asked. `outcome` is REFUSED when asking again cannot help, else INFRA."""

    def __init__(self, message: str, outcome: Outcome = Outcome.INFRA) -> None:
        super().__init__(message)
        self.outcome = outcome


class Found(msgspec.Struct, frozen=True):
    """A job that the target has, by its labels."""

    handle: str
    name: str
    run: str
    alive: bool
    labels: dict[str, str]
    created_s: float  # wall time


class Target(Protocol):
    name: str

    async def open(self) -> None:
        """Get ready; nothing is created on the target by this."""

    async def close(self) -> None:
        """Let go of what this process holds. Jobs go on."""

    async def prepare(self, environment: Environment) -> None:
        """Begin what takes long before a job can start there (building, pulling). Never raises: `submit` tells."""

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        """Start `job`, or find it; `secrets` are values by variable, kept out of everything that is written down."""

    async def adopt(self, handle: str) -> None:
        """Take up a job that another process submitted: its events come from `watch` from now on."""

    def watch(self) -> AsyncIterator[Event]: ...

    def logs(self, handle: str, follow: bool = False) -> AsyncIterator[bytes]: ...

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        """Put `records.jsonl`, `log.txt` or a file or folder that the job kept (`files/...`) at `into`. False: none."""

    def endpoint(self, handle: str, port: int) -> AbstractAsyncContextManager[str]:
        """An address (`host:port`) under which the job's port can be reached from here."""

    async def cancel(self, handle: str) -> None: ...

    async def remove(self, handle: str) -> None: ...

    async def list(self, run: str | None = None) -> list[Found]: ...


class TargetKind(Protocol):
    """What an entry point of `seatrial.targets` names. `options` is a pydantic model of the target's fields in a suite,
    `extra="forbid"`, with `parallel: int | None`."""

    name: str
    options: type[Any]

    def open(self, name: str, options: Any) -> Target: ...
