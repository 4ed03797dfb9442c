"""Fields of a serving trial: the server, its cases, and how answers are compared."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import AliasChoices, Field, field_validator, model_validator

from seatrial.kinds.job import DriverPlace
from seatrial.kinds.serving.answers import LEAST_SIMILARITY, TOLERANCES, AnswerRule, Tolerance, tolerance_for
from seatrial.kinds.serving.load_model import Load, PortPath
from seatrial.kinds.serving.load_work import LOAD
from seatrial.kinds.serving.request import Case
from seatrial.suite import (
    Duration,
    Fill,
    Gathered,
    Model,
    Runtime,
    SecretRef,
    Text,
    TrialModel,
    Workspace,
    glob_matches,
    has_placeholder,
)
from seatrial.suite.values import Reason

_FORMER_CLIENT = "driver"  # field `client` in suites of earlier versions
CaseFiles = Annotated[tuple[Text, ...], Field(min_length=1)]


class ServerReady(Model):
    """When the server counts as ready. Before any case is sent, it must also answer one real generation."""

    http: PortPath | None = Field(
        None, description="Health path, polled with GET; on another port: `:3000/health`.", examples=["/health"]
    )
    within_s: Duration = Field(
        600.0, alias="within", description="Limit until the port answers, and again until the first generation."
    )


class ServerTls(Model):
    """TLS settings. Files are in PEM format, relative to the suite."""

    ca: Text | None = Field(None, description="CA certificates to trust; default: those of the client's system.")
    cert: Text | None = Field(None, description="Client certificate, for mutual TLS.")
    key: Text | None = Field(None, description="Private key of `cert`, if it is in another file.")
    name: Text | None = Field(None, description="Host name in the server's certificate; default: that of its address.")
    verify: bool = Field(True, description="false: accept any certificate.")

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("`key` needs `cert`")
        return self


class Server(Model):
    """A server to start (`command`), or a running one (`url`)."""

    command: Text | None = Field(
        None, min_length=1, description="Command for /bin/sh that starts the server; it must listen on $SEATRIAL_PORT."
    )
    url: Text | None = Field(None, min_length=1, description="Address of a running server.")
    protocol: Literal["openai", "tgis"] = Field("openai", description="Protocol of the server.")
    port: int = Field(8000, strict=True, ge=1, le=65535, description="Port if each job has its own network.")
    ready: ServerReady = Field(ServerReady.model_construct(), description="When the server counts as ready.")
    token: SecretRef | None = Field(None, description="Secret to send as the bearer token.")
    tls: ServerTls | None = Field(None, description="TLS settings; {} for the defaults.")
    headers: dict[Text, Text] = Field({}, description="Extra headers (HTTP) or metadata (gRPC) for each request.")
    extra: Annotated[dict[Text, Any], Fill.TYPED] = Field(
        {}, description="Extra fields for each OpenAI request; null removes a field.", examples=[{"top_k": None}]
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("`server` needs exactly one of `command` (start it) and `url` (use a running one)")
        if self.url is not None and not has_placeholder(self.url):
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
                raise ValueError(f"invalid server address {self.url!r}; use for example https://llm.example:8000")
            if parts.username or parts.password:
                raise ValueError("`url` must not contain a user or password; use `token: {secret: NAME}`")
        secure_health = self.tls is not None and self.ready.http is not None and self.ready.http.startswith("/")
        if secure_health and self.url is None:
            raise ValueError(
                "`ready.http` uses plain HTTP, but this server uses TLS; remove it, or use the port of a plain HTTP "
                "health endpoint: `:3000/health`"
            )
        return self


class EmbeddingsModel(Model):
    """Source of text embeddings: an endpoint that answers `/v1/embeddings` as OpenAI does, or a model that the client
    runs itself."""

    url: Text | None = Field(
        None, min_length=1, description="Address of the endpoint, without `/v1`.", examples=["http://127.0.0.1:8090"]
    )
    model: Text = Field("", description="Model name at the endpoint.")
    token: SecretRef | None = Field(None, description="Secret to send as the bearer token.")
    local: Text | None = Field(
        None,
        min_length=1,
        description="Instead of `url`: a sentence-transformers model, by name or by folder relative to the suite.",
        examples=["sentence-transformers/all-MiniLM-L6-v2"],
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.url is None) == (self.local is None):
            raise ValueError("`embeddings` needs exactly one of `url` (an endpoint) and `local` (a model to run)")
        if self.local is not None and (self.model or self.token):
            raise ValueError("`model` and `token` apply only to `url`; remove them")
        return self


class Compare(Model):
    """How answers are compared with the expected ones."""

    rule: AnswerRule = Field(AnswerRule.NEAR_TIE, description="Rule by which two answers match.")
    precision: Text = Field(
        "f32",
        description="Precision of the server's computations; sets the tolerance for log-probabilities.",
        examples=["bf16"],
    )
    tolerances: Text | None = Field(
        None, description="File of tolerances written by `seatrial calibrate`, relative to the suite."
    )

    similarity: float = Field(
        LEAST_SIMILARITY, ge=-1, le=1, description="Minimum cosine of two embeddings (rule `embedding`)."
    )
    embeddings: EmbeddingsModel | None = Field(None, description="Source of embeddings (rule `embedding`).")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.rule.similarity and self.embeddings is None:
            raise ValueError(
                f"rule {self.rule.value} needs `embeddings`: {{url: URL, model: NAME}} (an endpoint that answers "
                "`/v1/embeddings` as OpenAI does) or {local: NAME} (a sentence-transformers model)"
            )
        if self.embeddings is not None and not self.rule.similarity:
            raise ValueError(f"`embeddings` applies only to the rule `embedding`; the rule is {self.rule.value}")
        if self.tolerances is None and not has_placeholder(self.precision):
            try:
                tolerance_for(self.precision)
            except KeyError:
                raise ValueError(
                    f"no known tolerance for precision {self.precision!r}; use {', '.join(TOLERANCES)}, or set "
                    "`tolerances` to a file written by `seatrial calibrate`"
                ) from None
        return self


class SkippedCase(Model):
    """Cases to skip: those that match every given field."""

    case: Text | None = Field(None, description="Name or glob.")
    tag: Text | None = Field(None, description="One of the case's tags.")
    has: Literal["prefix", "adapter"] | None = Field(None, description="Field set by the request.")
    why: Reason = Field(description="Reason, shown in the plan and report.")

    def fits(self, case: Case) -> bool:
        if self.case is not None and not glob_matches(self.case, case.name):
            return False
        named = {"prefix": case.request.prefix_id, "adapter": case.request.adapter_id, None: ""}
        return named[self.has] is not None and (self.tag is None or self.tag in case.tags)


class PlannedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    case: Case
    skipped: str = ""  # reason to skip it in this cell; empty: it is asked


class ServingGathered(Gathered, frozen=True, omit_defaults=True):
    cases: tuple[PlannedCase, ...] = ()
    embedding_model: str = ""
    tolerance: Tolerance | None = None
    trace: tuple[float, ...] = ()  # start times of the load's requests

    @property
    def asked(self) -> list[Case]:
        """Cases that the client asks, in the order of its questions."""
        return [planned.case for planned in self.cases if not planned.skipped]


class ServingTrial(TrialModel):
    GATHERED = ServingGathered
    kind: Literal["serving"] = "serving"
    model: Text = Field("", description="Name of the model at the server.")
    server: Server = Field(description="The model server.")
    cases: CaseFiles = Field(
        (), description="Case files, relative to the suite. Optional for a load with `lengths` or `prompts`."
    )
    answers: Text | None = Field(
        None,
        description="File of expected answers by case name, so that several models can share case files.",
        examples=["answers/${model}.yaml"],
    )
    skip: tuple[SkippedCase, ...] = Field((), description="Cases to skip, each with `why`.")
    shards: Annotated[int | Text, Fill.TYPED] = Field(
        1, description="Shards of the model; cases with `single_shard_only` are skipped if there are several."
    )
    compare: Compare = Field(Compare.model_construct(), description="How answers are compared.")
    purpose: Literal["compare", "record", "calibrate"] = Field(
        "compare", description="How the answers are used; set by `seatrial record` and `seatrial calibrate`."
    )
    stream: bool = Field(True, description="Also ask every case with one input as a stream.")
    batching: bool = Field(
        True, description="Ask every case alone, and again concurrently with others; off if `concurrency` is 1."
    )
    concurrency: int = Field(8, strict=True, ge=1, le=10_000, description="Cases asked at a time.")
    seed: int = Field(0, strict=True, ge=0, description="Seed for the order of the cases.")
    request_s: Duration = Field(60.0, alias="request", description="Limit for each request.")
    client: DriverPlace | None = Field(
        None,
        validation_alias=AliasChoices("client", _FORMER_CLIENT),
        serialization_alias=_FORMER_CLIENT,  # hashes of cells and conditions of metrics keep the former name
        description="Run the client as a job on the server's target, close to it; default: on this machine.",
    )
    load: Load | None = Field(None, description="Load test after the cases, with bounds for its metrics.")
    workspace: Workspace | None = Field(
        None, description="Files for the server's work folder; default: those of the runtime."
    )

    JUDGING: ClassVar[frozenset[str]] = frozenset({"compare"})
    UNDER_TEST: ClassVar[frozenset[str]] = TrialModel.UNDER_TEST | {"stream", "batching"}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.batching and self.concurrency < 2 and "batching" in self.model_fields_set:
            raise ValueError("`batching` needs `concurrency` of at least 2")
        load = self.load
        if not self.cases and (self.purpose != "compare" or load is None or not (load.lengths or load.prompts)):
            raise ValueError("`cases` is missing; only a `load` with `lengths` or `prompts` needs none")
        if self.client is None:
            return self
        if self.server.url is not None:
            raise ValueError("`client` needs a server started by the trial; it cannot be combined with `server.url`")
        if self.compare.embeddings is not None and self.compare.embeddings.local is not None:
            raise ValueError("`client` cannot be combined with `embeddings.local`; use `embeddings.url`")
        return self

    @field_validator("conditions", "under_test")
    @classmethod
    def _with_former_name(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(re.sub(r"^client(?=\.|$)", _FORMER_CLIENT, name) for name in names)

    @field_validator("shards")
    @classmethod
    def _counted(cls, value: int | str) -> int | str:
        value = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(value, bool) or (isinstance(value, int) and value < 1):
            raise ValueError(f"invalid number of shards {value!r}; use 1 or more")
        if isinstance(value, str) and not has_placeholder(value):
            raise ValueError(f"invalid number of shards {value!r}; use a number or ${{axis}}")
        return value

    def workspace_of(self, runtime: Runtime | None) -> Workspace | None:
        return self.workspace or (runtime.workspace if runtime else None)

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        named: dict[tuple[str | int, ...], str | None] = {("cases", at): path for at, path in enumerate(self.cases)}
        if self.load is not None and self.load.arrivals is not None:
            named["load", "arrivals", "trace"] = self.load.arrivals.trace
        if self.load is not None:
            named["load", "prompts"] = self.load.prompts
            named["load", "lengths", "tokenizer"] = self.load.lengths.tokenizer if self.load.lengths else None
        if self.server.tls is not None:
            named |= {("server", "tls", name): getattr(self.server.tls, name) for name in ("ca", "cert", "key")}
        return tuple((place, path) for place, path in named.items() if path is not None)

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        workspace = self.workspace_of(runtime)
        cloned = ["workspace"] if workspace and workspace.git else []
        # Case names are unknown here: case files are read when the run starts.
        names = ("server", "ready", "driver", "case ${case}", "answers")
        return (*cloned, *names, *([LOAD, "figures"] if self.load else []))
