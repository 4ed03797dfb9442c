"""What the driver of a model server is given to do, and the names of what it does. Data only.

Each case is asked in one or more ways: whole or as a stream, alone or in a crowd. Each way of asking a case is a thing
of the driver, with a record before and one after it that has the answer."""

import random
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.job.metric import FixedBound
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.serving.generation import Answer, Mode, Request

# A load for a model server: when requests come, what is measured of them, and what bounds that has. Data only.
#
# Times of a request, by one monotonic clock: `intended`, when it was to begin; `begun`, when the driver took it up;
# `sent`, when its bytes were handed to an open connection; `first_byte` of the answer; `tokens`, when each message with
# text came; `end`. The metrics of them:
#
#     lag         begun - intended: how late the driver itself was. A load in which it was late measures the driver
#     ttft        first message with text - begun: time to first token, a new connection included
#     first_byte  first byte - begun
#     itl         inter-token latency: from some tokens to the next, shared by those that came together
#                 (a message is not a token, and several may come at once); all of all requests together
#     tpot        time per output token: (last token - first token) / (tokens - 1), one of each request
#     e2e         end - begun
#
# `goodput` is the share of requests that had an answer and are themselves within every bound of ttft, tpot and e2e.


LATENCIES = ("lag", "ttft", "first_byte", "itl", "tpot", "e2e")
QUANTILES = (50.0, 90.0, 95.0, 99.0)
COUNTS = {"errors": "<=", "error_share": "<=", "goodput": ">=", "rate": ">=", "tokens_per_s": ">="}
LOAD = "load"  # the note of a load, or of a stage of a search, and the name of the thing


class Lengths(msgspec.Struct, frozen=True):
    """Words of made-up prompts and tokens of their answers, each between two numbers."""

    input: tuple[int, int]
    output: tuple[int, int]


class LoadBound(FixedBound, frozen=True):
    """Of a metric that is one of LATENCIES or COUNTS; `part` is p99, mean or max."""

    def measured(self, summary: "LoadSummary") -> float | None:
        """What it is about; None: there was nothing to measure."""
        if self.metric in COUNTS:
            return float(getattr(summary, self.metric))
        return summary.latencies.get(self.metric, {}).get(self.part)


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

    def broken_bounds(self, summary: "LoadSummary") -> list[str]:
        """Those that do not hold, each with what was measured."""
        found = []
        for bound in self.bounds:
            value = bound.measured(summary)
            if value is None or not bound.met_by(value):
                found.append(f"{bound.name} {'not measured' if value is None else f'{value:.4g}'}, bound {bound.text}")
        return found


class LoadSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a load came to. Latencies in seconds, by metric and then p50, p99, mean, max and count."""

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
    def errors_text(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in self.error_kinds.items())

    @property
    def lag_s(self) -> float:
        return self.latencies.get("lag", {}).get("p99", 0.0)


class LoadStage(msgspec.Struct, frozen=True):
    """One rate of a search."""

    rate: float
    broken: list[str]
    doubt: str
    summary: LoadSummary


class LoadNote(msgspec.Struct, frozen=True):
    """What the driver records of a load. Of a search, `summary` is that of the highest rate that kept the bounds."""

    summary: LoadSummary | None = None
    stages: list[LoadStage] = []
    peak: float = 0.0
    broke_at: float = 0.0
    doubt: str = ""


SERVER_PORT = "serve"  # the name of the port of the part `server`


class Variable(StrEnum):
    """Of the environment of the driver: what it shows the server, certificate and key as PEM."""

    TOKEN = "SEATRIAL_SERVER_TOKEN"
    CLIENT_CERT = "SEATRIAL_CLIENT_CERT"
    CLIENT_KEY = "SEATRIAL_CLIENT_KEY"
    EMBEDDINGS_TOKEN = "SEATRIAL_EMBEDDINGS_TOKEN"  # for what embeds texts


class Note(StrEnum):
    """Of the driver. The first three are those of every driver."""

    BEGUN = "begun"
    FINISHED = "finished"
    ENDPOINT = "endpoint"  # it opened the route to its server
    READY = "ready"  # one real generation was answered: the name of the thing
    UNREADY = "unready"  # none was, in time
    ORDER = "order"  # in which order things are asked, and how many at a time
    PIECE = "piece"  # of an answer that is too long for one note
    GONE = "gone"  # nothing was asked any more from here on, and why


class ReadyNote(msgspec.Struct, frozen=True):
    seconds: float
    tries: int = 1


class UnreadyNote(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    tries: int = 0
    why: str = ""
    lasting: bool = False
    reached: bool = True


class AnswerNote(msgspec.Struct, frozen=True):
    """One of `answer` and `pieces`, the number of notes before it that have the answer."""

    answer: Answer | None = None
    pieces: int | None = None
    similarities: list[float] = []  # to what is expected, where that was asked for


class Tls(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client shows is secret: it comes to the driver as variables, and is in no work."""

    ca: str = ""  # path of a PEM file; empty: what the machine of the driver trusts
    cert: str = ""  # of the client, as PEM
    key: str = ""
    name: str = ""  # that the certificate must be for; empty: that of the address
    verify: bool = True


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case without what is expected of it, which the driver need not know."""

    name: str
    request: Request
    error: bool = False  # an error is expected: whatever comes is the answer
    texts: tuple[str, ...] = ()  # that are expected, where answers are compared by their embeddings
    error_pattern: str = ""  # that the message of the error must match


class Embeddings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of `url` and `local`."""

    url: str = ""  # of an endpoint with `/v1/embeddings`
    model: str = ""
    local: str = ""  # a model of sentence-transformers, by name or folder, that the driver itself runs


class ServingWork(msgspec.Struct, frozen=True, omit_defaults=True):
    version: str = ""  # of Seatrial that the driver must be; empty: it is the one that made this
    questions: tuple[Question, ...] = ()
    protocol: str = "openai"
    url: str = ""  # of a server that is there already; empty: the part `server` of the same attempt
    model: str = ""
    tls: Tls | None = None
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}  # fields of each request; null takes one away
    stream: bool = False
    batching: bool = False
    concurrency: int = 8
    seed: int = 0
    request_s: float = 60.0
    ready_s: float = 600.0
    load: LoadWork | None = None
    embeddings: Embeddings | None = None


class Ask(msgspec.Struct, frozen=True):
    """One way of asking one case."""

    case: int  # its place among the questions
    stream: bool
    crowd: bool

    @property
    def thing(self) -> str:
        return f"{self.case} {self.way}"

    @property
    def way(self) -> str:
        return f"{'stream' if self.stream else 'unary'}{' in a crowd' if self.crowd else ''}"


def asks_of(work: ServingWork) -> list[Ask]:
    """In the order of the cases: what is to be asked of each."""
    made = []
    for index, question in enumerate(work.questions):
        mode = question.request.mode
        ways = [mode is Mode.STREAM]
        single = len(question.request.inputs) == 1 or question.request.messages
        if work.stream and mode is Mode.UNARY and single and not question.error:
            ways.append(True)
        crowds = [False, True] if work.batching else [False]
        made += [Ask(index, stream, crowd) for crowd in crowds for stream in ways]
    return made


def phases_of(work: ServingWork) -> list[tuple[list[Ask], int]]:
    """What is asked after what, and how many at a time: with `batching` first each alone, then all in a crowd. The
    order is the seed's."""
    asks = asks_of(work)
    random.Random(work.seed).shuffle(asks)
    if not work.batching:
        return [(asks, work.concurrency)]
    return [([ask for ask in asks if not ask.crowd], 1), ([ask for ask in asks if ask.crowd], work.concurrency)]
