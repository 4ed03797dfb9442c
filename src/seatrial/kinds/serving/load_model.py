"""What users write of a load: when requests come, of what, and what is asked of their metrics."""

import re
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from seatrial.kinds import bounds
from seatrial.kinds.arrivals import ArrivalsModel
from seatrial.kinds.serving.work import COUNTS, LATENCIES, Lengths, LoadBound, LoadWork
from seatrial.suite import Duration, Model, Text, has_placeholder

_METRICS = bounds.KnownMetrics(
    "a load", LATENCIES, COUNTS, re.compile(r"p\d{1,2}(\.\d+)?|mean|max"), "{0}.p99, {0}.mean or {0}.max"
)


_PORT_PATH = re.compile(r"(?::(\d{1,5}))?(/\S*)")


def port_and_path(text: str) -> tuple[int | None, str]:
    """Of `:3000/health`, or of `/health` on the port where requests go."""
    found = _PORT_PATH.fullmatch(text)
    return (int(found[1]) if found[1] else None, found[2]) if found else (None, text)


def _check_port_path(text: str) -> str:
    if text and not has_placeholder(text) and not _PORT_PATH.fullmatch(text):
        raise ValueError(f"{text!r} is no path; write /health, or :3000/health for another port")
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


class LoadLengths(Model):
    """Made-up prompts in place of the cases."""

    input: Range = Field(description="Words of each prompt, a number or from one to another.")
    output: Range = Field(description="Tokens of each answer.")


def parse_load_bound(name: str, value: Any) -> LoadBound:
    """Of `ttft.p99: 500ms`, `errors: 0`, `goodput: ">=95%"`."""
    return LoadBound(*msgspec.structs.astuple(bounds.parse_bound(name, value, _METRICS)))


class Load(Model):
    """Requests that begin when they are to begin, whatever became of those before them."""

    arrivals: ArrivalsModel = Field(description="When requests begin.")
    requests: _Count | None = Field(None, le=5_000_000, description="How many.")
    seconds: Duration | None = Field(None, alias="for", description="For how long requests begin.")
    lengths: LoadLengths | None = Field(None, description="Made-up prompts; default: the cases, in turn.")
    stream: bool = Field(True, description="Answers come as streams; without, there are no times of tokens.")
    request_s: Duration = Field(60.0, alias="request", description="Limit for each request.")
    lag_s: Duration = Field(
        0.01, alias="lag", description="How late the driver itself may be (p99); a load in which it was is invalid."
    )
    bounds: dict[Text, Any] = Field(
        {"errors": 0}, description="What metrics must be.", examples=[{"ttft.p99": "500ms", "errors": 0}]
    )
    metrics: PortPath = Field(
        "/metrics",
        description="Path of the server's own metrics, sampled each second into a file; on another port: "
        "`:3000/metrics`; empty: not.",
    )
    find: Literal["peak"] | None = Field(
        None, description="peak: search the highest rate that keeps the bounds, from that of `arrivals`."
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
        if self.requests is None and self.seconds is None and arrivals.trace is None:
            raise ValueError("a load ends: say `requests: 200`, or `for: 60s`")
        if self.requests is None and arrivals.burst is not None and arrivals.every_s is None:
            raise ValueError("a burst at one time is so many `requests`")
        if self.find and arrivals.rate is None and arrivals.poisson is None:
            raise ValueError("a search for the peak changes a `rate` or a `poisson` rate")
        streamed = [name for name in self.bounds if name.partition(".")[0] in ("ttft", "itl", "tpot")]
        if streamed and not self.stream:
            raise ValueError(f"{streamed[0]!r} is of tokens, which come one by one only with `stream: true`")
        return self

    def work(self, seed: int, times: tuple[float, ...], metrics: str, metrics_port: str) -> LoadWork:
        return LoadWork(
            arrivals=self.arrivals.work(times),
            requests=self.requests,
            seconds=self.seconds,
            stream=self.stream,
            seed=seed,
            lengths=Lengths(self.lengths.input, self.lengths.output) if self.lengths else None,
            request_s=self.request_s,
            lag_s=self.lag_s,
            bounds=tuple(parse_load_bound(name, value) for name, value in self.bounds.items()),
            metrics=metrics,
            metrics_port=metrics_port,
            peak=self.find == "peak",
        )
