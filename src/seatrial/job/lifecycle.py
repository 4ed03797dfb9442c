"""The states of a job's life, each with its time, where that time comes from and how far off it may be."""

from enum import StrEnum

import msgspec


class Stage(StrEnum):
    CREATED = "created"  # the target knows of the job
    QUEUED = "queued"
    SCHEDULED = "scheduled"  # a place was found
    STARTED = "started"
    READY = "ready"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a job, or a step of one, ended."""

    EXITED = "exited"  # by itself, with a code
    SIGNAL = "signal"  # killed by a signal that we did not send
    MEMORY = "memory"  # out of memory
    TIMEOUT = "timeout"  # over its run limit
    STALL = "stall"  # said nothing, or made no step, for too long
    STOPPED = "stopped"  # ended early by us: it said what it never should
    EVICTED = "evicted"  # its place was taken away from it
    QUEUE = "queue"  # never got a place within its queue limit
    UNREADY = "unready"  # started, but could not be asked within its limit
    RELEASED = "released"  # ended by us, because the rest of its attempt was over
    CANCELLED = "cancelled"
    LOST = "lost"  # what watched over it is gone, and how it ended is not known
    REFUSED = "refused"  # never started: what it asked for cannot be had
    INFRA = "infra"  # never started, or cut off, through no fault of its own


class Exit(msgspec.Struct, frozen=True):
    outcome: Outcome
    code: int | None = None
    signal: int | None = None
    message: str = ""  # for a person: what happened, in one or a few lines


class StageTime(msgspec.Struct, frozen=True):
    stage: Stage
    wall_s: float
    source: str  # whose clock: "agent", "supervisor", "engine", "api-server", ...
    uncertainty_s: float = 0.0


class Place(msgspec.Struct, frozen=True):
    """Where an attempt ran."""

    target: str
    machine: str  # empty: of a trial that needs none
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
    """Something that a target saw of a job. Each handle gets exactly one event with an `exit`, and it is the last."""

    handle: str
    time: StageTime | None = None
    exit: Exit | None = None
    hosts: tuple[str, ...] = ()
    progress: str = ""  # the step that it is at, for a person who watches
