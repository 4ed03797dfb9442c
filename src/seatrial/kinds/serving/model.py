"""What users write of a serving trial: a server, the cases that it is asked, and how its answers are compared."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import AliasChoices, Field, field_validator, model_validator

from seatrial.kinds.job import DriverPlace
from seatrial.kinds.serving.answers import LEAST_SIMILARITY, TOLERANCES, AnswerRule, Tolerance, tolerance_for
from seatrial.kinds.serving.generation import Case
from seatrial.kinds.serving.load_model import Load, PortPath
from seatrial.kinds.serving.work import LOAD
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
    """When the server can be asked. Beyond this it must answer one real generation before any case is asked."""

    http: PortPath | None = Field(
        None, description="Path that answers a GET; on another port: `:3000/health`.", examples=["/health"]
    )
    within_s: Duration = Field(
        600.0, alias="within", description="From its start until the port answers, and again until a first generation."
    )


class ServerTls(Model):
    """The server speaks TLS. Files are PEM, relative to the suite."""

    ca: Text | None = Field(None, description="Whom to trust; default: whom this machine trusts.")
    cert: Text | None = Field(None, description="Certificate of the client, for mutual TLS.")
    key: Text | None = Field(None, description="Its private key, where that is not in `cert`.")
    name: Text | None = Field(None, description="Name that the server's certificate is for; default: its address.")
    verify: bool = Field(True, description="false: any certificate will do.")

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if self.key is not None and self.cert is None:
            raise ValueError("a `key` is that of a certificate: give its `cert`, too")
        return self


class Server(Model):
    """A server to start (`command`), or one that is there already (`url`)."""

    command: Text | None = Field(
        None, min_length=1, description="Command line, for /bin/sh; it listens on $SEATRIAL_PORT."
    )
    url: Text | None = Field(None, min_length=1, description="Address of a server that is there already.")
    protocol: Literal["openai", "tgis"] = Field("openai", description="What it speaks.")
    port: int = Field(8000, strict=True, ge=1, le=65535, description="Port where jobs have a network of their own.")
    ready: ServerReady = Field(ServerReady.model_construct(), description="When it can be asked, and how soon.")
    token: SecretRef | None = Field(None, description="Secret that is sent as the bearer token.")
    tls: ServerTls | None = Field(None, description="How TLS is spoken with it; {} for the defaults.")
    headers: dict[Text, Text] = Field({}, description="Further headers (HTTP) or metadata (gRPC) of each request.")
    extra: Annotated[dict[Text, Any], Fill.TYPED] = Field(
        {}, description="Further fields of each OpenAI request; null takes one away.", examples=[{"top_k": None}]
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server is exactly one of `command`, to start it, and `url`, of one that is there")
        if self.url is not None and not has_placeholder(self.url):
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
                raise ValueError(f"{self.url!r} is no address of a server; write for example https://llm.example:8000")
            if parts.username or parts.password:
                raise ValueError("a password in an address would be shown; give a `token` from a secret")
        secure_health = self.tls is not None and self.ready.http is not None and self.ready.http.startswith("/")
        if secure_health and self.url is None:
            raise ValueError(
                "readiness is asked over plain HTTP, and this server speaks TLS; leave `ready.http` out, or give the "
                "port of its health: `:3000/health`"
            )
        return self


class EmbeddingsModel(Model):
    """Where embeddings of texts are had: anything that answers `/v1/embeddings` as OpenAI does, or a model that the
    driver runs itself."""

    url: Text | None = Field(
        None, min_length=1, description="Address of an endpoint, without `/v1`.", examples=["http://127.0.0.1:8090"]
    )
    model: Text = Field("", description="Name of the model there.")
    token: SecretRef | None = Field(None, description="Secret that is sent as the bearer token.")
    local: Text | None = Field(
        None,
        min_length=1,
        description="Instead of `url`: a model of sentence-transformers, by name or by folder relative to the suite.",
        examples=["sentence-transformers/all-MiniLM-L6-v2"],
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.url is None) == (self.local is None):
            raise ValueError("`embeddings` are exactly one of `url`, of an endpoint, and `local`, a model to run here")
        if self.local is not None and (self.model or self.token):
            raise ValueError("`model` and `token` are of an endpoint; `local` names its model itself")
        return self


class Compare(Model):
    """How answers are compared with what is expected."""

    rule: AnswerRule = Field(AnswerRule.NEAR_TIE, description="When two answers are the same.")
    precision: Text = Field(
        "f32",
        description="Precision of the server's computations; sets the tolerance for log-probabilities.",
        examples=["bf16"],
    )
    tolerances: Text | None = Field(
        None, description="File of tolerances that `seatrial calibrate` wrote, relative to the suite."
    )

    similarity: float = Field(
        LEAST_SIMILARITY, ge=-1, le=1, description="Least cosine of two embeddings, for the rule `embedding`."
    )
    embeddings: EmbeddingsModel | None = Field(None, description="What embeds texts, for the rule `embedding`.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.rule.similarity and self.embeddings is None:
            raise ValueError(
                f"the rule {self.rule.value} needs `embeddings`: {{url: …, model: …}}, an endpoint that answers "
                "`/v1/embeddings` as OpenAI does, or {{local: NAME}}, a model of sentence-transformers"
            )
        if self.embeddings is not None and not self.rule.similarity:
            raise ValueError(f"`embeddings` is for the rule `embedding`; the rule is {self.rule.value}")
        if self.tolerances is None and not has_placeholder(self.precision):
            try:
                tolerance_for(self.precision)
            except KeyError:
                raise ValueError(
                    f"{self.precision!r} is no precision with known tolerances; use {', '.join(TOLERANCES)}, or name "
                    "the file of `tolerances` that `seatrial calibrate` writes"
                ) from None
        return self


class SkippedCase(Model):
    """Cases that are not asked, and why: those that fit all that is said of them."""

    case: Text | None = Field(None, description="Name or glob.")
    tag: Text | None = Field(None, description="One of its tags.")
    has: Literal["prefix", "adapter"] | None = Field(None, description="What its request names.")
    why: Reason = Field(description="The reason, for everybody who reads the plan or the report.")

    def fits(self, case: Case) -> bool:
        named = {"prefix": case.request.prefix_id, "adapter": case.request.adapter_id}
        return (
            (self.case is None or glob_matches(self.case, case.name))
            and (self.tag is None or self.tag in case.tags)
            and (self.has is None or named[self.has] is not None)
        )


class PlannedCase(msgspec.Struct, frozen=True, omit_defaults=True):
    case: Case
    skipped: str = ""  # why it is not asked in this cell


class ServingGathered(Gathered, frozen=True, omit_defaults=True):
    cases: tuple[PlannedCase, ...] = ()
    embedding_model: str = ""
    tolerance: Tolerance | None = None
    trace: tuple[float, ...] = ()  # when requests of the load begin

    @property
    def asked(self) -> list[Case]:
        """Those that the driver asks, in order: their numbers are those of its questions."""
        return [planned.case for planned in self.cases if not planned.skipped]


class ServingTrial(TrialModel):
    GATHERED = ServingGathered
    kind: Literal["serving"] = "serving"
    model: Text = Field("", description="Name of the model, as the server knows it.")
    server: Server = Field(description="What answers.")
    cases: CaseFiles = Field(description="Files of cases, relative to the suite.")
    answers: Text | None = Field(
        None,
        description="File of what is expected, by the names of the cases: so models share files of cases.",
        examples=["answers/${model}.yaml"],
    )
    skip: tuple[SkippedCase, ...] = Field((), description="Cases that are not asked, each with `why`.")
    shards: Annotated[int | Text, Fill.TYPED] = Field(
        1, description="Parts that the server splits the model into; cases for one shard are not asked of more."
    )
    compare: Compare = Field(Compare.model_construct(), description="How answers are compared.")
    purpose: Literal["compare", "record", "calibrate"] = Field(
        "compare", description="What answers are for; `seatrial record` and `seatrial calibrate` set it."
    )
    stream: bool = Field(False, description="Every single case is also asked as a stream.")
    batching: bool = Field(False, description="Every case is asked alone, and again in a crowd.")
    concurrency: int = Field(8, strict=True, ge=1, le=10_000, description="Cases that are asked at a time.")
    seed: int = Field(0, strict=True, ge=0, description="Of the order in which cases are asked.")
    request_s: Duration = Field(60.0, alias="request", description="Limit for each request.")
    client: DriverPlace | None = Field(
        None,
        validation_alias=AliasChoices("client", _FORMER_CLIENT),
        serialization_alias=_FORMER_CLIENT,  # hashes of cells and conditions of metrics keep the former name
        description="Run the client as a job next to the server, for a load without detours; default: on this machine.",
    )
    load: Load | None = Field(None, description="A load after the cases, and what is asked of its metrics.")
    workspace: Workspace | None = Field(
        None, description="Files that the server finds in its work folder; default: those of the runtime."
    )

    JUDGING: ClassVar[frozenset[str]] = frozenset({"compare"})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.batching and self.concurrency < 2:
            raise ValueError("`batching` compares cases alone and in a crowd: `concurrency` must be 2 or more")
        if self.client is None:
            return self
        if self.server.url is not None:
            raise ValueError("`client` needs a server that the trial starts; it cannot be combined with `server.url`")
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
            raise ValueError(f"{value!r} is no number of shards")
        if isinstance(value, str) and not has_placeholder(value):
            raise ValueError(f"{value!r} is no number of shards; write a number, or ${{axis}}")
        return value

    def workspace_of(self, runtime: Runtime | None) -> Workspace | None:
        return self.workspace or (runtime.workspace if runtime else None)

    def needed_files(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        named: dict[tuple[str | int, ...], str | None] = {
            ("cases", index): path for index, path in enumerate(self.cases)
        }
        if self.load is not None:
            named["load", "arrivals", "trace"] = self.load.arrivals.trace
        if self.server.tls is not None:
            named |= {("server", "tls", name): getattr(self.server.tls, name) for name in ("ca", "cert", "key")}
        return tuple((place, path) for place, path in named.items() if path is not None)

    def step_names(self, runtime: Runtime | None) -> tuple[str, ...]:
        workspace = self.workspace_of(runtime)
        cloned = ["workspace"] if workspace and workspace.git else []
        # Cases are named by their files, which are read when the run begins.
        names = ("server", "ready", "driver", "case ${case}", "answers")
        return (*cloned, *names, *([LOAD, "figures"] if self.load else []))
