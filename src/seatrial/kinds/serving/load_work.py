"""A load that the client offers, and its result. Data only."""

import random

import msgspec

from seatrial.job.metric import FixedBound, value_text
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.serving.answers.compare import TOLERANCES, Tolerance
from seatrial.kinds.serving.answers.judge import AnswerRule

# Times of a load's request, by one monotonic clock: `intended`, its scheduled start; `begun`, its actual start; `sent`,
# when its bytes were written to an open connection; `first_byte` of the answer; `tokens`, when each message with text
# arrived; `end`. Metrics:
#
#     lag         begun - intended: how late the client was; a late client measures itself
#     ttft        first message with a token of any kind - begun: time to first token, including a new connection
#     ttfo        first message after the reasoning - begun: time to first output token
#     first_byte  first byte - begun
#     itl         inter-token latency; tokens that arrive together share the time since the previous ones
#                 (one message may have several tokens); over all tokens of all requests
#     tpot        time per output token: (last token - first token) / (tokens - 1), one value per request
#     e2e         end - begun
#
# `goodput` is the share of requests that were answered correctly and meet every bound of ttft, tpot and e2e.


LATENCIES = ("lag", "ttft", "ttfo", "first_byte", "itl", "tpot", "e2e")
QUANTILES = (50.0, 90.0, 95.0, 99.0)
COUNTS = {"errors": "<=", "error_share": "<=", "goodput": ">=", "rate": ">=", "tokens_per_s": ">="}
LOAD = "load"  # name of the load among the client's things


class Lengths(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of made-up prompts and of answers: least and most, and mean and standard deviation if they are normally
    distributed."""

    input: tuple[float, ...]  # empty: prompts of a file
    output: tuple[float, ...]
    tokenizer: str = ""  # file in the client's work folder, for servers that cannot count tokens


WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "the", "and")


class WordList(msgspec.Struct, frozen=True):
    """Words with their numbers of tokens, for texts of a given length."""

    words: tuple[tuple[str, int], ...] = tuple((word, 1) for word in WORDS)
    added: int = 0  # tokens that the tokenizer adds to each text, such as BOS
    unit: str = ""  # of lengths; empty if no text is made up

    def text(self, tokens: int, chance: random.Random) -> str:
        found: list[str] = []
        while (many := tokens // max(size for _, size in self.words)) > 0:
            chosen = chance.choices(self.words, k=many)
            found += [word for word, _ in chosen]
            tokens -= sum(size for _, size in chosen)
        while fitting := [one for one in self.words if one[1] <= tokens]:
            word, size = chance.choice(fitting)
            found.append(word)
            tokens -= size
        return " ".join(found) or self.words[0][0]


class LoadBound(FixedBound, frozen=True):
    """A bound of one of LATENCIES or COUNTS; `part` is p99, mean or max."""

    def measured(self, summary: "LoadSummary") -> float | None:
        """The bounded value; None if it was not measured."""
        if self.metric in COUNTS:
            value = getattr(summary, self.metric)
            return None if value is None else float(value)
        return summary.latencies.get(self.metric, {}).get(self.part)


class AnswerCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """How answers of a load are compared with the recorded ones."""

    sample: int | None = None  # number of answers; None: all
    rule: AnswerRule = AnswerRule.NEAR_TIE
    tolerance: Tolerance = TOLERANCES["f32"]


class LoadWork(msgspec.Struct, frozen=True, omit_defaults=True):
    arrivals: Arrivals
    requests: int | None = None
    seconds: float | None = None
    stream: bool = True
    seed: int = 0
    lengths: Lengths | None = None  # None: those of the prompts or cases
    prompts: str = ""  # file in the client's work folder; empty: the cases, or made-up ones
    words: WordList = WordList()  # for made-up prompts; the client measures their lengths
    request_s: float = 60.0
    lag_s: float = 0.01  # limit of the client's lag, p99
    bounds: tuple[LoadBound, ...] = ()
    metrics: str = "/metrics"  # path of the server's metrics, sampled every second; empty: off
    metrics_port: str = ""  # port name of the part `server`, or number for `url`; empty: same port
    check: AnswerCheck | None = None  # None: only empty answers are errors
    peak: bool = False  # search for the highest rate that keeps the bounds

    auto: int = 0  # rates to measure between an idle server and the peak
    points: tuple[float, ...] = ()  # of a sweep: rates, or numbers in flight, by the shape of `arrivals`

    @property
    def unit(self) -> str:
        """Of the points."""
        return " in flight" if self.arrivals.shape == "in_flight" else "/s"

    def broken_bounds(self, summary: "LoadSummary") -> list[str]:
        """The broken bounds, each with the measured value."""
        found = []
        for bound in self.bounds:
            value = bound.measured(summary)
            if value is None or not bound.met_by(value):
                shown = "not measured" if value is None else value_text(value, "" if bound.metric in COUNTS else "s")
                found.append(f"{bound.name} {shown}, bound {bound.text}")
        return found


class CheckedAnswers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sample of a load's answers."""

    checked: int
    compared: int = 0  # of them with a recorded answer
    wrong: int = 0
    shown: dict[str, tuple[int, str]] = {}  # by case: number of wrong answers, and what is wrong with the first


class LoadSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a load. Latencies are in seconds, by metric and then p50, p99, mean, max and count."""

    requests: int
    warmup: int = 0  # first requests, excluded from latencies
    errors: int = 0  # including wrong answers; an estimate if only a sample was checked
    error_kinds: dict[str, int] = {}
    seconds: float = 0.0  # from the first scheduled start to the last end
    offered_rate: float = 0.0
    rate: float = 0.0  # good answers per second
    tokens: int = 0
    tokens_per_s: float = 0.0
    goodput: float | None = 0.0  # None: not measured
    latencies: dict[str, dict[str, float]] = {}
    series: list[dict[str, float]] = []  # one row per second
    turns: list[dict[str, float]] = []  # one row per turn of conversations
    lengths: str = ""  # how the lengths of made-up prompts were counted
    answers: CheckedAnswers | None = None
    cpu_s: float = 0.0  # CPU time of the client
    most_in_flight: int = 0
    falls_behind: str = ""  # why the rate is not sustainable, in a search
    cut: bool = False  # the client was stopped before the load ended
    again: bool = False  # measured again after the client was killed and restarted

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 1.0

    @property
    def errors_text(self) -> str:
        found = ", ".join(f"{count} {kind}" for kind, count in self.error_kinds.items())
        return f"{found} of {self.answers.checked} checked" if self.answers and self.answers.wrong else found

    @property
    def lag_s(self) -> float:
        return self.latencies.get("lag", {}).get("p99", 0.0)


class LoadStage(msgspec.Struct, frozen=True):
    """One rate, or number in flight, that was tried."""

    rate: float
    broken: list[str]
    doubt: str
    summary: LoadSummary


class LoadNote(msgspec.Struct, frozen=True):
    """The client's note of a load. For a search, `summary` is that of the highest rate that kept the bounds."""

    summary: LoadSummary | None = None
    stages: list[LoadStage] = []
    peak: float = 0.0
    broke_at: float = 0.0
    doubt: str = ""
