"""A load for a model server: when requests come, what is measured of them, and what bounds that has. Data only.

Times of a request, by one monotonic clock: `intended`, when it was to begin; `begun`, when the driver took it up;
`sent`, when its bytes were handed to an open connection; `first_byte` of the answer; `tokens`, when each message with
text came; `end`. The figures of them:

    lag         begun - intended: how late the driver itself was. A load in which it was late measures the driver
    ttft        first message with text - begun: time to first token, a new connection included
    first_byte  first byte - begun
    itl         inter-token latency: from when tokens came to when the next ones did, shared by those that came together
                (a message is not a token, and several may come at once); all of all requests together
    tpot        time per output token: (last token - first token) / (tokens - 1), one of each request
    e2e         end - begun

`goodput` is the share of requests that had an answer and are themselves within every bound of ttft, tpot and e2e."""

import msgspec

from seatrial.job.bound import FixedBound

LATENCIES = ("lag", "ttft", "first_byte", "itl", "tpot", "e2e")
QUANTILES = (50.0, 90.0, 95.0, 99.0)
COUNTS = {"errors": "<=", "error_share": "<=", "goodput": ">=", "rate": ">=", "tokens_per_s": ">="}
LOAD = "load"  # the note of a load, or of a stage of a search, and the name of the thing


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the things of a load begin, whatever became of those before them: an open loop, or a closed one of
    workloads (in_flight, waves). Rates are per second."""

    shape: str  # rate, poisson, burst, ramp, steps, trace, in_flight, waves
    rate: float = 0.0  # of a ramp the first one
    to_rate: float = 0.0  # of a ramp the last one
    burst: int = 0  # so many at once, or in flight
    every_s: float = 0.0  # between bursts, or waves; of a ramp, how long it takes; of steps, how long each takes
    rates: tuple[float, ...] = ()  # of steps
    times: tuple[float, ...] = ()  # of a trace

    @property
    def peak(self) -> float | None:
        """The highest rate that is offered; None where that is no rate: all at once, or as fast as it goes."""
        return max((self.rate, self.to_rate, *self.rates)) or None


class Lengths(msgspec.Struct, frozen=True):
    """Words of made-up prompts and tokens of their answers, each between two numbers."""

    input: tuple[int, int]
    output: tuple[int, int]


class LoadBound(FixedBound, frozen=True):
    """Of a figure that is one of LATENCIES or COUNTS; `part` is p99, mean or max."""

    def measured(self, summary: "LoadSummary") -> float | None:
        """What it is about; None: there was nothing to measure."""
        if self.figure in COUNTS:
            return float(getattr(summary, self.figure))
        return summary.latencies.get(self.figure, {}).get(self.part)


class LoadWork(msgspec.Struct, frozen=True, omit_defaults=True):
    arrivals: Arrivals
    requests: int | None = None
    seconds: float | None = None
    stream: bool = True
    seed: int = 0
    lengths: Lengths | None = None  # None: the cases
    request_s: float = 60.0
    lag_s: float = 0.01  # p99 of the driver's own
    bounds: tuple[LoadBound, ...] = ()
    metrics: str = "/metrics"  # of the server, sampled each second; empty: not
    metrics_port: str = ""  # name of a port of the part `server`, number of one of a server that is there; empty: same
    peak: bool = False  # search the highest rate that keeps the bounds
    most_rate: float = 100_000.0


class LoadSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a load came to. Latencies in seconds, by figure and then p50, p99, mean, max and count."""

    requests: int
    warmup: int = 0  # first requests that are in no latency
    errors: int = 0
    error_kinds: dict[str, int] = {}
    seconds: float = 0.0  # from the first intended to the last end
    offered_rate: float = 0.0
    rate: float = 0.0  # of good answers a second
    tokens: int = 0
    tokens_per_s: float = 0.0
    goodput: float = 0.0
    latencies: dict[str, dict[str, float]] = {}
    series: list[dict[str, float]] = []  # by second
    cpu_s: float = 0.0  # of the driver
    most_in_flight: int = 0
    cut: bool = False  # the driver was told to end before it was over
    again: bool = False  # an earlier life of the driver had begun it: it was measured anew

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 1.0

    @property
    def lag_s(self) -> float:
        return self.latencies.get("lag", {}).get("p99", 0.0)


def quantile_name(percent: float) -> str:
    return f"p{percent:g}"


def broken_load_bounds(bounds: tuple[LoadBound, ...], summary: LoadSummary) -> list[str]:
    """Those that do not hold, each with what was measured."""
    found = []
    for bound in bounds:
        value = bound.measured(summary)
        if value is None or not bound.met_by(value):
            found.append(f"{bound.name} {'not measured' if value is None else f'{value:.4g}'}, bound {bound.text}")
    return found
