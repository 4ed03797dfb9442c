"""The stages of a job, each with its time, the clock of that time and its uncertainty; and how a job ended."""

from enum import StrEnum

import msgspec


class Stage(StrEnum):
    CREATED = "created"  # the target has the job
    QUEUED = "queued"
    SCHEDULED = "scheduled"  # it has a host
    STARTED = "started"
    READY = "ready"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a job or step ended."""

    EXITED = "exited"  # by itself, with a code
    SIGNAL = "signal"  # killed by a signal that Seatrial did not send
    MEMORY = "memory"  # out of memory
    TIMEOUT = "timeout"  # over its run limit
    STALL = "stall"  # no output, or no step, for too long
    STOPPED = "stopped"  # stopped early by Seatrial, for example because of a forbidden log line
    EVICTED = "evicted"  # removed from its host by something else
    QUEUE = "queue"  # not scheduled within its queue limit
    UNREADY = "unready"  # started, but not ready within its limit
    RELEASED = "released"  # stopped by Seatrial, because the rest of its attempt was over
    CANCELLED = "cancelled"
    LOST = "lost"  # its supervisor is gone; how it ended is unknown
    REFUSED = "refused"  # never started: its request can never be met
    INFRA = "infra"  # infrastructure failure before or while it ran


class Exit(msgspec.Struct, frozen=True):
    outcome: Outcome
    code: int | None = None
    signal: int | None = None
    message: str = ""  # what happened, in one or a few lines


class StageTime(msgspec.Struct, frozen=True):
    stage: Stage
    wall_s: float
    source: str  # the clock: "agent", "supervisor", "engine", "api-server", ...
    uncertainty_s: float = 0.0


class Place(msgspec.Struct, frozen=True):
    """Where an attempt ran."""

    target: str
    machine: str  # empty if the trial has no machines
    host: str = ""  # `hosts` as one text
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Results of earlier versions have only the text.
        hosts = self.hosts or tuple(self.host.split(", ") if self.host else ())
        msgspec.structs.force_setattr(self, "hosts", hosts)
        msgspec.structs.force_setattr(self, "host", ", ".join(hosts))

    def __str__(self) -> str:
        where = f"{self.target}/{self.machine}" if self.machine else self.target
        return f"{where} on {self.host}" if self.host else where


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a job, reported by its target. Each handle gets exactly one event with an `exit`, as its last."""

    handle: str
    time: StageTime | None = None
    exit: Exit | None = None
    hosts: tuple[str, ...] = ()
    progress: str = ""  # the current step, for display
