"""The input and output of a scale trial's load generator. Data only."""

import math
from collections.abc import Collection
from typing import Any

import msgspec

from seatrial.job.metric import FixedBound, value_text
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.scale.followed import STARTED, Followed, next_stages
from seatrial.kinds.search import Flow

QUERY_PARTS = ("max", "min", "mean")  # of the samples of a query to Prometheus
NOT_A_NUMBER = "NaN"  # Prometheus has no observations for it
NAME = "SEATRIAL-WORKLOAD-NAME"  # placeholder in a manifest for each workload's name
WORKLOAD_LABEL = "seatrial/workload"
CANARY = "canary"
VERBS = ("DELETE", "GET", "LIST", "PATCH", "POST", "PUT")  # of the API server's latencies
_MOST_ERROR = 0.1  # of a window of a search
FILES = SUBMITTED, DELETED_FILE, STAMPS = "submitted.jsonl", "deleted.jsonl", "stamps.jsonl"  # files of the attempt


class ObjectWait(msgspec.Struct, frozen=True):
    """After an object of this kind, the next one is created when it has the condition."""

    kind: str
    condition: str  # a phase, or the type of a condition that is true


class WorkloadClass(msgspec.Struct, frozen=True, omit_defaults=True):
    """One class of workloads in a mix."""

    name: str
    manifests: tuple[dict[str, Any], ...]  # of its objects, in the order of their creation
    pods: int = 1  # per workload; 0: none, its stages come from its own status; or not known
    weight: float = 1.0
    # For a machine without a cluster. Without a command the workload needs a cluster.
    command: tuple[str, ...] = ()
    gpus: float = 0.0
    select: dict[str, str] = {}
    built_in: bool = False  # its pods get the security context of the target
    wait: tuple[ObjectWait, ...] = ()


class ExtraWorkloads(msgspec.Struct, frozen=True, omit_defaults=True):
    """Workloads created before the measured ones and excluded from metrics."""

    count: int
    of: WorkloadClass | None = None  # None: the same mix
    within_s: float = 300.0  # time limit for reaching their stage


class Churn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Deletes workloads and creates new ones for a duration: one after the other at a rate; every `every_s` a share of
    all, or those of some namespaces; or each at an age."""

    seconds: float
    rate: float = 0.0
    every_s: float = 0.0
    share: float = 0.0
    namespaces: int = 0
    age_s: float = 0.0


class Observe(msgspec.Struct, frozen=True):
    """Workloads that others create, for a time."""

    api_version: str
    kind: str
    selector: str
    seconds: float


class Prometheus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Queries that are sampled during the measurement."""

    url: str
    queries: dict[str, str]  # PromQL by name
    every_s: float = 5.0


class Find(msgspec.Struct, frozen=True, omit_defaults=True):
    """A search for the highest rate that keeps the bounds, with `count` workloads at each rate."""

    bounds: tuple[FixedBound, ...]
    most_rate: float = 10_000.0


class ScaleWork(msgspec.Struct, frozen=True, omit_defaults=True):
    run: str  # this and the next three are filled in by the load generator, from its job
    cell: str  # hash
    attempt: int
    prefix: str  # of workload names; the same after a restart of the load generator
    classes: tuple[WorkloadClass, ...]
    count: int
    arrivals: Arrivals
    namespaces: tuple[str, ...] = ()  # used in turn; none: the target's own
    follow: tuple[Followed, ...] = ()  # additional kinds between workloads and pods
    until: str = STARTED  # the stage at which a workload is done
    settle_s: float = 300.0  # time limit for the last workloads
    at_once: int = 256  # concurrent requests
    seed: int = 0
    background: ExtraWorkloads | None = None
    fill: ExtraWorkloads | None = None
    churn: Churn | None = None
    find: Find | None = None
    observe: Observe | None = None
    prometheus: Prometheus | None = None
    places: int = 0  # slots on a machine without a cluster; 0: one per CPU
    audit_log: str = ""  # path of the API server's log on this machine
    version: str = ""  # required Seatrial version of a load generator on the cluster; empty: it runs on this machine


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One workload. Times are from this machine's monotonic clock."""

    number: int
    intended_s: float
    sent_s: float | None = None  # for a server that could not be reached at first, when that was tried
    acknowledged_s: float | None = None
    attempts: int = 0
    refusals: tuple[int, ...] = ()  # HTTP status of each error response
    problem: str = ""  # why it was not created
    of: str = ""  # its class
    namespace: str = ""
    phase: str = "measured"  # background, fill, measured, churn, or round-NUMBER of a search
    waited_s: float = 0.0  # before retries, as the server asked
    late_s: float = 0.0  # delay of the load generator itself, without waiting for the server
    paused_s: float = 0.0  # while it waited for a condition of one of its objects


class Deletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workload deleted by churn."""

    number: int
    intended_s: float
    acknowledged_s: float | None = None
    problem: str = ""


class Stamp(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When an object was first seen at a stage. After a gap in the watch, the stage was reached between two times."""

    workload: int
    pod: str  # uid of the object, which need not be a pod
    stage: str
    at_s: float
    since_s: float | None = None  # start of a gap in the watch: the stage was reached between the two
    failed: bool = False
    server: str = ""  # the server's own time for it, in whole seconds
    by: str = ""  # its cause
    kind: str = "Pod"
    pending: bool = False  # the object exists and has not reached the stage


class StageQuantile(msgspec.Struct, frozen=True):
    """In seconds. A value of None is unknown and above `lower`."""

    share: float
    value: float | None
    lower: float  # with `upper`, the 95 % confidence interval
    upper: float | None
    earliest: float | None = None  # the value if stages in a gap were reached at its beginning; None without gaps
    error_s: float | None = None  # by the lag of the watch when these workloads were seen; None: as for the stage

    @property
    def name(self) -> str:
        return f"p{self.share * 100:g}"

    @property
    def text(self) -> str:
        return f"above {value_text(self.lower, 's')}" if self.value is None else value_text(self.value, "s")


class StageMetrics(msgspec.Struct, frozen=True):
    """Durations from the scheduled send to one stage, or from one stage to another (`created..scheduled`)."""

    stage: str
    count: int  # all workloads
    reached: int
    unfinished: int  # neither reached nor failed when the load generator stopped watching
    censored: int  # reached during a gap in the watch, so known only as a range
    quantiles: list[StageQuantile]
    curve: list[tuple[float, float]]  # (seconds, share of all workloads at the stage by then)
    source: str  # acknowledged, watch, audit
    resolution_s: float
    failed: int = 0  # never created, or a pod failed before the stage
    of: str = ""  # the class of workloads; empty: all of them

    @property
    def name(self) -> str:
        return f"{self.of}.{self.stage}" if self.of else self.stage


class ScaleSummary(msgspec.Struct, frozen=True):
    """Totals over all workloads."""

    count: int
    submitted: int  # acknowledged by the server
    failed: int  # never created, or a pod failed
    unfinished: int
    refused: int  # error responses, many of which were retried
    problems: list[str]
    rate: float | None  # sent per second
    offered_rate: float | None
    late_p99_s: float  # delay of the sends
    lag_p50_s: float  # of the watch
    lag_p99_s: float
    lags: int  # number of lag measurements
    again: bool = False  # the load generator was restarted
    stopped: bool = False  # before the end
    deleted: int = 0  # by churn
    not_deleted: int = 0
    waited_s: float = 0.0  # total, before retries that the server asked for
    mix: dict[str, int] = {}  # workloads created, by class
    waiting: dict[str, int] = {}  # unfinished workloads, by the reason why they wait
    fill_ended: int = 0  # fill workloads that ended before the measurement did
    unreachable_s: float = 0.0  # time without any answer from the API server


class TriedRate(msgspec.Struct, frozen=True):
    rate: float
    sent: float | None  # per second
    broken: list[str]
    doubt: str  # why the result is not valid


class FoundLimit(msgspec.Struct, frozen=True):
    """The result of a search: the limit is between `low`, which held, and `high`, which did not; 0 if there is none."""

    tries: list[TriedRate]
    low: float
    high: float
    doubt: str  # why the search stopped before the limit was found


def doubts_of(whole: ScaleSummary) -> list[str]:
    """Reasons why no time can be checked."""
    doubts = (
        (whole.again, "the load generator was killed and restarted, so arrival times differ from the plan"),
        (whole.stopped, "the load generator was stopped before the end"),
        (not whole.count, "no workload was created meanwhile"),
    )
    return [text for is_doubtful, text in doubts if is_doubtful]


def errors_s(whole: ScaleSummary, stage: StageMetrics, found: StageQuantile | None = None) -> tuple[float, float]:
    """How far a time of this stage, or this quantile, may be off: by late sends, if it begins with them, and by the
    error of the stage's source. Infinite if the lag of the watch was not measured."""
    own_s = stage.resolution_s if found is None or found.error_s is None else found.error_s
    if stage.source == "watch" and not whole.lags:
        own_s = math.inf
    return 0.0 if ".." in stage.stage else whole.late_p99_s, own_s


def shown_stages(stages: Collection[StageMetrics], bounds: tuple[FixedBound, ...]) -> list[StageMetrics]:
    """All stages, and of times between two stages those between neighbours and those with bounds."""
    kept = {bound.metric for bound in bounds}
    for of in {one.of for one in stages}:
        between = next_stages({one.stage for one in stages if one.of == of})
        kept |= {f"{of}.{delta}".removeprefix(".") for delta in between}
    return [one for one in stages if ".." not in one.stage or one.name in kept]


def is_undecided(bound: FixedBound, found: StageQuantile, error_s: float) -> bool:
    """Whether the bound may be met or broken, within the error of the measurement and the gaps of the watch."""
    latest_s = found.value or 0.0
    earliest_s = latest_s if found.earliest is None else found.earliest
    return bound.met_by(earliest_s - error_s) != bound.met_by(latest_s + error_s)


def broken_scale_bounds(
    bounds: tuple[FixedBound, ...], whole: ScaleSummary, stages: list[StageMetrics], exact: bool = True
) -> tuple[list[str], list[str]]:
    """Bounds that do not hold, and those that cannot be decided, each with the measured value. `exact` ignores
    errors of the measurement."""
    of = {one.name: one for one in stages}
    broken, undecided = [], []
    for bound in bounds:
        stage = of.get(bound.metric) if bound.part else None
        found = next((one for one in stage.quantiles if one.name == bound.part), None) if stage else None
        value = (found.value if found else None) if bound.part else getattr(whole, bound.metric)
        if value is None:
            broken.append(f"{bound.name} is not known, bound {bound.text}")
        elif stage and found and not exact and is_undecided(bound, found, error := sum(errors_s(whole, stage, found))):
            known = f"{bound.name} is {value_text(value, 's')} ± {value_text(error, 's')}, too close to {bound.text}"
            undecided.append(f"{known}: {limited_by(whole, stage, found)}")
        elif not bound.met_by(float(value)):
            broken.append(f"{bound.name} is {value_text(value, 's' if bound.part else '')}, bound {bound.text}")
    return broken, undecided


def limited_by(whole: ScaleSummary, stage: StageMetrics, found: StageQuantile | None = None) -> str:
    """The larger part of the error of this stage's times."""
    late_s, own_s = errors_s(whole, stage, found)
    if own_s == math.inf:
        return "no watch lag was measured"
    if late_s > own_s:
        return f"limited by the load generator (send delay p99 {value_text(late_s, 's')})"
    return f"limited by the watch (lag {value_text(own_s, 's')})"


def falls_behind(
    flow: Flow | None, whole: ScaleSummary, done: StageMetrics, rate: float, longer: bool
) -> tuple[str, str]:
    """Why a rate of a search does not hold although its bounds do, or why that cannot be decided. Both are empty if
    the cluster keeps up. `done` is the stage at which a workload is done."""
    if flow is None:
        return "", "too short to see whether the cluster keeps up; raise `count`"
    error = sum(errors_s(whole, done)) * rate  # workloads that seem to be under way because they were sent or seen late
    if not flow.falls_behind:
        undecided = "" if longer or flow.keeps_up else "it is not clear whether the cluster keeps up"
        return "", limited_by(whole, done) if error > _MOST_ERROR * flow.arrived else undecided
    if flow.growth - error > flow.noise and (longer or flow.keeps_up is False):
        return f"the cluster {flow.falls_behind}", ""
    return "", f"the cluster seems to fall behind ({limited_by(whole, done)})"


# How a scale trial measured, and the control plane's own metrics meanwhile.


class StampAgreement(msgspec.Struct, frozen=True):
    """Server timestamps of one stage (whole seconds) compared with the observed times."""

    stage: str
    stamps: int
    disagree: int  # earlier than the send, or later than the observation
    worst_s: float  # largest error; negative: too early


class ClockMetrics(msgspec.Struct, frozen=True):
    """The API server's clock minus this machine's, in seconds."""

    offset_s: float
    within_s: float
    jumps: int  # changes of the offset
    stamps: list[StampAgreement] = []


class AuditMetrics(msgspec.Struct, frozen=True):
    """What the audit log provided, and how far the watch differs from it."""

    requests: int = 0
    within_s: float = 0.0  # accuracy of the clock alignment
    workloads: int = 0  # whose scheduling time comes from the log
    watch_p50_s: float | None = None  # the watch's time to `scheduled` minus the log's
    watch_p99_s: float | None = None
    problem: str = ""  # why the log could not be used


class QueryResult(msgspec.Struct, frozen=True):
    """The samples of one query to Prometheus: (seconds since the start, value), and how often there was no number."""

    name: str
    samples: list[tuple[float, float]] = []
    problems: dict[str, int] = {}

    @property
    def totals(self) -> dict[str, float]:
        """By part of the metric; empty without samples."""
        values = [value for _, value in self.samples]
        return {"max": max(values), "min": min(values), "mean": sum(values) / len(values)} if values else {}

    @property
    def unusable(self) -> str:
        """Why samples are missing; empty if none is."""
        asked = len(self.samples) + sum(self.problems.values())
        whys = [f"{count} of {asked} samples: {why}" for why, count in self.problems.items()]
        return "; ".join(whys)


class Limit(msgspec.Struct, frozen=True):
    """Something other than the cluster's capacity that may limit the trial; not `known` if it could not be checked."""

    what: str
    text: str
    known: bool = True


class MeasuredScale(msgspec.Struct, frozen=True):
    followed: list[str] = []  # kinds
    left_out: list[str] = []  # missing permissions to follow other kinds
    gaps: int = 0
    blind_s: float = 0.0  # total duration of gaps
    evicted_by: dict[str, int] = {}
    clock: ClockMetrics | None = None
    audit: AuditMetrics | None = None
    health: dict[str, list[float | None]] = {}  # by name, a value for each interval; `seconds`: when it starts
    outages: list[tuple[float, float]] = []  # times without any answer from the API server, by the monotonic clock
    idle_s: float = 0.0  # the longest time without a scheduling decision while pods waited for one
    idle_pods: int = 0  # how many pods waited then
