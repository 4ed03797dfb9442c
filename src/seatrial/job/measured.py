"""How a scale trial measured, and what the cluster said of itself meanwhile. Data only."""

import msgspec


class StampAgreement(msgspec.Struct, frozen=True):
    """Stamps of one stage that servers wrote, each a whole second, beside when we saw it."""

    stage: str
    stamps: int
    disagree: int  # before the workload was sent, or after the stage was seen
    worst_s: float  # the most; negative: before


class ClockFigures(msgspec.Struct, frozen=True):
    """The API server's clock minus this machine's, in seconds."""

    offset_s: float
    within_s: float
    samples: int
    jumps: int  # how often it was no longer what it had been
    stamps: list[StampAgreement] = []


class AuditFigures(msgspec.Struct, frozen=True):
    """What the audit log gave, and how far the watch was from it."""

    requests: int = 0
    within_s: float = 0.0  # its clock is brought to ours to within so much
    workloads: int = 0  # whose scheduling is from it
    watch_p50_s: float | None = None  # the watch's time to `scheduled` minus the log's, of these quantiles
    watch_p99_s: float | None = None
    problem: str = ""  # why it was of no use


class HealthPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stretch of time, from `from_s` on, since the first workload was meant to be sent."""

    from_s: float
    offered: int = 0
    acknowledged: int = 0
    refused: int = 0  # answers that were no success
    create_p99_s: float | None = None  # from sent to acknowledged
    lag_s: float | None = None  # of the watch, at most
    loop_s: float | None = None  # of the watching process itself, at most
    blind: bool = False  # the watch had a gap
    # Of the API server's own metrics, where they may be read:
    latency_s: dict[str, float] = {}  # p99 by verb
    rejected: int | None = None  # by priority and fairness, or with 429
    in_flight: int | None = None
    etcd_bytes: int | None = None
    queue: int | None = None  # pods that wait for the scheduler


class Limit(msgspec.Struct, frozen=True):
    """Something that may limit the trial before what it tests does; or of which that is not known."""

    what: str
    text: str
    known: bool = True


class ClusterLimits(msgspec.Struct, frozen=True):
    """What was found before the first workload was made."""

    limits: list[Limit] = []


class MeasuredScale(msgspec.Struct, frozen=True):
    followed: list[str] = []  # kinds
    left_out: list[str] = []  # rights that are missing to follow others
    gaps: int = 0
    blind_s: float = 0.0  # in all
    loop_p99_s: float = 0.0  # of the watching process
    evicted_by: dict[str, int] = {}
    clock: ClockFigures | None = None
    audit: AuditFigures | None = None
    metrics: str = ""  # why the server's metrics could not be read
    health: list[HealthPoint] = []
