"""What the driver of a scale trial is given, and what it writes. Data only."""

from typing import Any

import msgspec

from seatrial.job.metric import FixedBound, value_text
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.followed import STARTED, Followed

NAME = "SEATRIAL-WORKLOAD-NAME"  # in a manifest, for that of each workload
WORKLOAD_LABEL = "seatrial/workload"
CANARY = "canary"
FILES = SUBMITTED, DELETED_FILE, STAMPS = "submitted.jsonl", "deleted.jsonl", "stamps.jsonl"  # of the attempt


class WorkloadClass(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sort of workload of a mix."""

    name: str
    manifest: dict[str, Any]  # of one of them
    pods: int = 1  # that each has; 0: none, and its stages are those that it shows of itself
    weight: float = 1.0
    # What a machine without a cluster needs of it; empty command: it is an object of a cluster, whatever it runs.
    command: tuple[str, ...] = ()
    gpus: float = 0.0
    select: dict[str, str] = {}


class ExtraWorkloads(msgspec.Struct, frozen=True, omit_defaults=True):
    """Workloads that are made before the measured ones, and are in no metric."""

    count: int
    of: WorkloadClass | None = None  # None: the same mix
    within_s: float = 300.0  # to come as far as they should


class Churn(msgspec.Struct, frozen=True):
    """The oldest is deleted and a new one made, at a rate for a time."""

    rate: float
    seconds: float


class Find(msgspec.Struct, frozen=True, omit_defaults=True):
    """The search for the highest rate that keeps the bounds: `count` workloads at each rate that is tried."""

    bounds: tuple[FixedBound, ...]
    most_rate: float = 10_000.0


class ScaleWork(msgspec.Struct, frozen=True, omit_defaults=True):
    run: str  # this and the next three are the driver's to fill, by its job
    cell: str  # its hash
    attempt: int
    prefix: str  # of the names of its workloads: the same for every life of the driver
    classes: tuple[WorkloadClass, ...]
    count: int
    arrivals: Arrivals
    namespaces: tuple[str, ...] = ()  # in turn; none: the target's own
    follow: tuple[Followed, ...] = ()  # kinds between workloads and pods, beside those that are known
    until: str = STARTED  # the stage at which a workload is done
    settle_s: float = 300.0  # how long the last ones may take
    at_once: int = 256  # requests
    seed: int = 0
    background: ExtraWorkloads | None = None
    fill: ExtraWorkloads | None = None
    churn: Churn | None = None
    find: Find | None = None
    places: int = 0  # on a machine without a cluster; 0: its CPUs
    audit_log: str = ""  # of the API server, on this machine
    version: str = ""  # of Seatrial that a driver on the cluster itself must be; empty: it is here


class Tried(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """One try at a submission."""

    sent_s: float | None
    answered_s: float | None
    status: int = 0  # of HTTP; 0: there was no answer
    wait_s: float = 0.0  # before the next


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One workload, by the monotonic clock of this machine."""

    number: int
    intended_s: float
    sent_s: float | None = None
    acknowledged_s: float | None = None
    attempts: int = 0
    refusals: tuple[int, ...] = ()  # HTTP status of each answer that was no success
    problem: str = ""  # why it does not exist
    of: str = ""  # its class
    namespace: str = ""
    phase: str = "measured"  # what it is made for: background, fill, measured, churn, round-NUMBER of a search
    waited_s: float = 0.0  # before it was tried again, as the server asked
    tries: tuple[Tried, ...] = ()  # each, where there were several


class Deletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """One workload that churn deleted."""

    number: int
    intended_s: float
    acknowledged_s: float | None = None
    problem: str = ""


class Stamp(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An object was first seen to have reached a stage. Where the watch was blind before, it did so between two
    times."""

    workload: int
    pod: str  # its uid, also of one that is no pod
    stage: str
    at_s: float
    since_s: float | None = None  # the watch saw nothing from then on: the stage was reached between the two
    failed: bool = False
    server: str = ""  # when that was by who wrote it, in whole seconds
    by: str = ""  # who caused it
    kind: str = "Pod"


class StageQuantile(msgspec.Struct, frozen=True):
    """In seconds. None: it is more than `lower`, how much is not known."""

    share: float
    value: float | None
    lower: float  # with `upper`, an interval of 95 % confidence
    upper: float | None

    @property
    def name(self) -> str:
        return f"p{self.share * 100:g}"

    @property
    def text(self) -> str:
        return f"above {value_text(self.lower, 's')}" if self.value is None else value_text(self.value, "s")


class StageMetrics(msgspec.Struct, frozen=True):
    """How long workloads took to one stage, from when they were meant to be sent."""

    stage: str
    count: int  # all workloads
    reached: int
    unfinished: int  # not reached when the driver stopped looking, though it had not failed
    censored: int  # reached while the watch was blind: known to be between two times
    quantiles: list[StageQuantile]
    curve: list[tuple[float, float]]  # seconds, and the share of all workloads that had reached it by then
    source: str  # acknowledged, watch, audit
    resolution_s: float
    failed: int = 0  # never made, or a pod failed before
    of: str = ""  # the class of workloads; empty: all of them

    @property
    def name(self) -> str:
        return f"{self.of}.{self.stage}" if self.of else self.stage


class WholeScale(msgspec.Struct, frozen=True):
    """What is known of all workloads together."""

    count: int
    submitted: int  # and acknowledged
    failed: int  # never made, or a pod of theirs failed
    unfinished: int
    refused: int  # answers that were no success, of which many were tried again
    problems: list[str]
    rate: float | None  # sent a second
    offered_rate: float | None
    late_p99_s: float  # how long after its time each was sent
    lag_p50_s: float  # of the watch
    lag_p99_s: float
    lags: int  # how often that was measured
    again: bool  # an earlier life of the driver had begun
    stopped: bool  # before it was done
    deleted: int = 0  # by churn
    not_deleted: int = 0
    waited_s: float = 0.0  # in all, before something was tried again as the server asked
    mix: dict[str, int] = {}  # how many were made of each class


class TriedRate(msgspec.Struct, frozen=True):
    rate: float
    sent: float | None  # a second
    broken: list[str]
    doubt: str  # why it says nothing of the cluster


class FoundLimit(msgspec.Struct, frozen=True):
    """What a search found: the limit is between `low`, which held, and `high`, which did not; 0: there is none."""

    tries: list[TriedRate]
    low: float
    high: float
    doubt: str  # why it ended before it was found


def allowed_late_s(bounds: tuple[FixedBound, ...]) -> float:
    """How late the driver or its watch may be (p99): 50 ms, or a tenth of the tightest bound on a time."""
    return max(0.05, 0.1 * min((bound.value for bound in bounds if bound.part), default=0.0))


def doubts_of(whole: WholeScale, bounds: tuple[FixedBound, ...]) -> list[str]:
    """Why what was measured may be the one who measured, and not the cluster."""
    allowed_s = allowed_late_s(bounds)
    doubts = (
        (whole.again, "the driver was killed and began again, so the arrivals were not those that were asked for"),
        (whole.stopped, "it was stopped before it was done"),
        (whole.late_p99_s > allowed_s, f"the driver itself was late: p99 {value_text(whole.late_p99_s, 's')}"),
        (whole.lag_p99_s > allowed_s, f"its watch was late: p99 {value_text(whole.lag_p99_s, 's')}"),
        (not whole.lags, "how late its watch was could not be measured"),
    )
    return [text for is_doubtful, text in doubts if is_doubtful]


def broken_scale_bounds(bounds: tuple[FixedBound, ...], whole: WholeScale, stages: list[StageMetrics]) -> list[str]:
    """Those that do not hold, each with what was measured."""
    of = {one.name: one for one in stages}
    found = []
    for bound in bounds:
        if not bound.part:
            value = getattr(whole, bound.metric)
        else:
            quantiles = of[bound.metric].quantiles if bound.metric in of else []
            value = next((one.value for one in quantiles if one.name == bound.part), None)
        if value is None or not bound.met_by(float(value)):
            measured = "is not known" if value is None else f"is {value:.4g}"
            found.append(f"{bound.name} {measured}, bound {bound.text}")
    return found


# How a scale trial measured, and what the cluster said of itself meanwhile. Data only.


class StampAgreement(msgspec.Struct, frozen=True):
    """Stamps of one stage that servers wrote, each a whole second, beside when we saw it."""

    stage: str
    stamps: int
    disagree: int  # before the workload was sent, or after the stage was seen
    worst_s: float  # the most; negative: before


class ClockMetrics(msgspec.Struct, frozen=True):
    """The API server's clock minus this machine's, in seconds."""

    offset_s: float
    within_s: float
    samples: int
    jumps: int  # how often it was no longer what it had been
    stamps: list[StampAgreement] = []


class AuditMetrics(msgspec.Struct, frozen=True):
    """What the audit log gave, and how far the watch was from it."""

    requests: int = 0
    within_s: float = 0.0  # its clock is brought to ours to within so much
    workloads: int = 0  # whose scheduling is from it
    watch_p50_s: float | None = None  # the watch's time to `scheduled` minus the log's, of these quantiles
    watch_p99_s: float | None = None
    problem: str = ""  # why it was of no use


class HealthPoint(msgspec.Struct, omit_defaults=True):
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


class MeasuredScale(msgspec.Struct, frozen=True):
    followed: list[str] = []  # kinds
    left_out: list[str] = []  # rights that are missing to follow others
    gaps: int = 0
    blind_s: float = 0.0  # in all
    loop_p99_s: float = 0.0  # of the watching process
    evicted_by: dict[str, int] = {}
    clock: ClockMetrics | None = None
    audit: AuditMetrics | None = None
    metrics: str = ""  # why the server's metrics could not be read
    health: list[HealthPoint] = []
