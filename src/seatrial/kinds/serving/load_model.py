"""Fields of a load test: arrivals, requests and bounds."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from seatrial.kinds import bounds
from seatrial.kinds.arrivals import Arrivals
from seatrial.kinds.arrivals_model import ArrivalsModel, Rate
from seatrial.kinds.serving.load_work import COUNTS, LATENCIES, AnswerCheck, Lengths, LoadBound, LoadWork
from seatrial.suite import Duration, Model, Text, has_placeholder

_METRICS = bounds.KnownMetrics(
    "a load", LATENCIES, COUNTS, re.compile(r"p\d{1,2}(\.\d+)?|mean|max"), "{0}.p99, {0}.mean or {0}.max"
)


TOKENIZER = "tokenizer.json"  # in the client's work folder
_PORT_PATH = re.compile(r"(?::(\d{1,5}))?(/\S*)")


def port_and_path(text: str) -> tuple[int | None, str]:
    """Splits `:3000/health`; the port is None for `/health`, which is on the port of the requests."""
    found = _PORT_PATH.fullmatch(text)
    return (int(found[1]) if found[1] else None, found[2]) if found else (None, text)


def _check_port_path(text: str) -> str:
    if text and not has_placeholder(text) and not _PORT_PATH.fullmatch(text):
        raise ValueError(f"invalid path {text!r}; use /health, or :3000/health for another port")
    return text


PortPath = Annotated[Text, AfterValidator(_check_port_path)]
_Count = Annotated[int, Field(strict=True, ge=1)]
Range = Annotated[
    tuple[_Count, _Count],
    BeforeValidator(lambda value: (value, value) if isinstance(value, int) else value),
    WithJsonSchema(
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}]}
    ),
]


class Normal(Model):
    """Normally distributed lengths."""

    mean: float = Field(ge=1, description="Mean.")
    sd: float = Field(ge=0, description="Standard deviation.")
    least: _Count = Field(1, alias="min", description="Shorter ones get this length.")
    most: _Count = Field(alias="max", description="Longer ones get this length.")


class LoadLengths(Model):
    """Lengths of made-up prompts, which are sent instead of the cases, and of answers."""

    input: Range | Normal | None = Field(
        None, description="Tokens per prompt: a number, [MIN, MAX], or {mean, sd, min, max}. Without it: `prompts`."
    )
    output: Range | Normal = Field(description="Tokens per answer, in the same way.")
    tokenizer: Text | None = Field(
        None, description="File `tokenizer.json`, relative to the suite, for servers without `/tokenize`."
    )

    def work(self) -> Lengths:
        def spread(one: tuple[int, int] | Normal | None) -> tuple[float, ...]:
            return (one.least, one.most, one.mean, one.sd) if isinstance(one, Normal) else one or ()

        return Lengths(spread(self.input), spread(self.output), TOKENIZER if self.tokenizer else "")


def parse_load_bound(name: str, value: Any) -> LoadBound:
    """Parses `ttft.p99: 500ms`, `errors: 0` or `goodput: ">=95%"`."""
    return LoadBound(*msgspec.structs.astuple(bounds.parse_bound(name, value, _METRICS)))


class Sweep(Model):
    """Several loads, one after the other: a curve of latency against throughput."""

    rates: Annotated[tuple[Rate, ...], Field(min_length=1)] | None = Field(None, description="Constant rates.")
    poisson: Annotated[tuple[Rate, ...], Field(min_length=1)] | None = Field(
        None, description="Mean rates of random (Poisson) arrivals."
    )
    in_flight: Annotated[tuple[_Count, ...], Field(min_length=1)] | None = Field(
        None, description="Closed loops: numbers of unfinished requests; the next is sent when one is answered."
    )

    auto: Annotated[int, Field(strict=True, ge=1, le=100)] | None = Field(
        None, description="Find the peak, and measure about this many constant rates between an idle server and it."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(points is not None for points in (self.rates, self.poisson, self.in_flight, self.auto)) != 1:
            raise ValueError("set exactly one of `rates`, `poisson`, `in_flight` and `auto`")
        return self


class Load(Model):
    """Requests that start on schedule, whether or not earlier ones have finished."""

    arrivals: ArrivalsModel | None = Field(None, description="When requests start. Required without `sweep`.")
    sweep: Sweep | None = Field(None, description="Instead of `arrivals`: several loads, one after the other.")
    requests: _Count | None = Field(None, le=5_000_000, description="Number of requests.")
    seconds: Duration | None = Field(None, alias="for", description="How long to start requests.")
    check: Literal["all", "none"] | Annotated[int, Field(strict=True, ge=1)] = Field(
        100,
        description="Answers to compare with the recorded ones: a number, drawn by the seed and spread over the load; "
        "`all`; or `none`.",
    )
    prompts: Text | None = Field(
        None,
        description="File of prompts, relative to the suite: JSONL, CSV, ShareGPT's JSON or a Mooncake trace; default: "
        "the cases.",
    )
    lengths: LoadLengths | None = Field(None, description="Made-up prompts of these lengths; default: the cases.")
    stream: bool = Field(True, description="Stream the answers; needed for the times of tokens.")
    request_s: Duration = Field(60.0, alias="request", description="Limit for each request.")
    lag_s: Duration = Field(
        0.01, alias="lag", description="How late the client may start requests (p99); a load above this is invalid."
    )
    bounds: dict[Text, Any] = Field(
        {"errors": 0}, description="Bounds of metrics.", examples=[{"ttft.p99": "500ms", "errors": 0}]
    )
    metrics: PortPath = Field(
        "/metrics",
        description="Path of the server's own metrics, sampled every second into a file; on another port: "
        "`:3000/metrics`; empty: off.",
    )
    find: Literal["peak"] | None = Field(
        None, description="peak: search for the highest rate that keeps the bounds, starting at that of `arrivals`."
    )

    @field_validator("bounds")
    @classmethod
    def _bounds(cls, bounds: dict[str, Any]) -> dict[str, Any]:
        for name, value in bounds.items():
            parse_load_bound(name, value)
        return {"errors": 0, **bounds} if "error_share" not in bounds else bounds

    @model_validator(mode="after")
    def _together(self) -> Self:
        arrivals = self.arrivals
        if (arrivals is None) == (self.sweep is None):
            raise ValueError("`load` needs exactly one of `arrivals` and `sweep`")
        if self.requests is None and self.seconds is None and (arrivals is None or arrivals.trace is None):
            raise ValueError("`load` has no end; set `requests: 200` or `for: 60s`")
        if self.requests is None and arrivals and arrivals.burst is not None and arrivals.every_s is None:
            raise ValueError("a single `burst` needs `requests`")
        if self.requests is None and ((self.sweep and self.sweep.in_flight) or (arrivals and arrivals.in_flight)):
            raise ValueError("`in_flight` needs `requests`, the number for each point")
        if self.find and (arrivals is None or (arrivals.rate is None and arrivals.poisson is None)):
            raise ValueError("`find: peak` needs `rate` or `poisson` arrivals")
        if self.lengths and (self.lengths.input is None) == (self.prompts is None):
            raise ValueError("set exactly one of `prompts` and `lengths.input`")
        streamed = [name for name in self.bounds if name.partition(".")[0] in ("ttft", "ttfo", "itl", "tpot")]
        if streamed and not self.stream:
            raise ValueError(f"bound {streamed[0]!r} needs `stream: true`")
        return self

    @property
    def prompts_file(self) -> str:
        """In the client's work folder; empty for a load without a file of prompts."""
        return f"prompts{PurePosixPath(self.prompts).suffix}" if self.prompts else ""

    def work(
        self, seed: int, times: tuple[float, ...], metrics: str, metrics_port: str, check: AnswerCheck
    ) -> LoadWork:
        swept = self.sweep.model_dump(exclude_none=True) if self.sweep else {}
        auto = swept.pop("auto", 0)
        shape, points = next(iter(swept.items()), ("rate", ()))
        arrivals = self.arrivals.work(times) if self.arrivals else Arrivals(shape.removesuffix("s"))
        sample = self.check if isinstance(self.check, int) else None
        return LoadWork(
            arrivals=arrivals,
            points=tuple(sorted(points)),
            requests=self.requests,
            seconds=self.seconds,
            stream=self.stream,
            seed=seed,
            lengths=self.lengths.work() if self.lengths else None,
            prompts=self.prompts_file,
            request_s=self.request_s,
            lag_s=self.lag_s,
            bounds=tuple(parse_load_bound(name, value) for name, value in self.bounds.items()),
            metrics=metrics,
            metrics_port=metrics_port,
            check=None if self.check == "none" else msgspec.structs.replace(check, sample=sample),
            peak=self.find == "peak" or bool(auto),
            auto=auto,
        )
