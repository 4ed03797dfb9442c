"""Requests to a model server and its answers, independent of the protocol. Data only.

None means that the case or the server did not set a value; an empty value was set to be empty. `explicit` gives the
options that a client sends, so that no server default applies."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

import msgspec


class Method(StrEnum):
    GREEDY = "greedy"
    SAMPLE = "sample"


class Mode(StrEnum):
    """How a request is made. Several inputs in a unary request are one batch."""

    UNARY = "unary"
    STREAM = "stream"
    TOKENIZE = "tokenize"


class StopReason(StrEnum):
    NOT_FINISHED = "not_finished"
    MAX_TOKENS = "max_tokens"
    EOS_TOKEN = "eos_token"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    STOP_SEQUENCE = "stop_sequence"
    TOKEN_LIMIT = "token_limit"
    ERROR = "error"
    STOP = "stop"  # end token or stop sequence; OpenAI's protocol does not distinguish them


class Guide(StrEnum):
    """Constraint of guided decoding."""

    TEXT = "text"
    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    typical_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None  # None: the server chooses one

    @property
    def explicit(self) -> "Sampling":
        """Unset options get the value that turns them off; the seed is unchanged."""
        stated = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(_SAMPLING_OFF, **stated)


_SAMPLING_OFF = Sampling(1.0, top_k=0, top_p=1.0, typical_p=1.0, min_p=0.0, presence_penalty=0.0, frequency_penalty=0.0)
DEFAULT_MAX_NEW_TOKENS = 20  # TGIS's meaning of 0


class Stopping(msgspec.Struct, frozen=True, omit_defaults=True):
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    time_limit_ms: int | None = None  # enforced by the server, which then returns what it has
    stop_sequences: tuple[str, ...] = ()
    include_stop_sequence: bool | None = None

    @property
    def explicit(self) -> "Stopping":
        most, least = self.max_new_tokens or DEFAULT_MAX_NEW_TOKENS, self.min_new_tokens or 0
        include = True if self.include_stop_sequence is None else self.include_stop_sequence
        return Stopping(most, least, self.time_limit_ms or 0, self.stop_sequences, include)


class LengthPenalty(msgspec.Struct, frozen=True):
    start_index: int = 0
    decay_factor: float = 1.0


class Guided(msgspec.Struct, frozen=True, omit_defaults=True):
    guide: Guide
    value: str = ""  # the schema, expression or grammar
    choices: tuple[str, ...] = ()


class Decoding(msgspec.Struct, frozen=True, omit_defaults=True):
    repetition_penalty: float | None = None
    length_penalty: LengthPenalty | None = None
    guided: Guided | None = None

    @property
    def explicit(self) -> "Decoding":
        penalty = 1.0 if self.repetition_penalty is None else self.repetition_penalty
        return Decoding(penalty, self.length_penalty, self.guided)


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the answer must contain in addition to the text."""

    input_text: bool = False
    generated_tokens: bool = False
    input_tokens: bool = False
    token_logprobs: bool = False
    token_ranks: bool = False
    top_n_tokens: int = 0
    offsets: bool = False  # of tokens in the input, for tokenize requests


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of the server. It has inputs or chat messages, not both."""

    inputs: tuple[str, ...] = ()
    messages: tuple[ChatMessage, ...] = ()
    mode: Mode = Mode.UNARY
    method: Method = Method.GREEDY
    sampling: Sampling = Sampling()
    stopping: Stopping = Stopping()
    decoding: Decoding = Decoding()
    wanted: Wanted = Wanted()
    truncate_input_tokens: int = 0  # 0: not at all
    model: str = ""
    prefix_id: str | None = None
    adapter_id: str | None = None
    limit_s: float | None = None  # enforced by the client


class TopToken(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    logprob: float | None = None


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    logprob: float | None = None
    rank: int | None = None  # 1 is the most likely
    top: tuple[TopToken, ...] = ()


class Generation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to one input, or one message of a stream with only its new content."""

    text: str | None = None
    input_count: int | None = None
    generated_count: int | None = None
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    seed: int | None = None
    tokens: tuple[Token, ...] | None = None
    input_tokens: tuple[Token, ...] | None = None


class Tokenization(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to one input of a tokenize request."""

    count: int | None = None
    tokens: tuple[str, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None


class Trouble(StrEnum):
    """How a request failed."""

    ANSWERED = "answered"  # the server answered with an error
    UNREACHABLE = "unreachable"  # refused, no such host, a certificate that does not match
    BROKEN = "broken"  # the connection ended before the answer did
    LATE = "late"  # timed out
    GARBAGE = "garbage"  # the response violates the protocol
    NOT_ASKED = "not_asked"  # not sent: the protocol cannot express the request


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str  # gRPC (INVALID_ARGUMENT) or HTTP (429) code; "" if there is none
    message: str
    trouble: Trouble = Trouble.ANSWERED
    retry_after_s: float | None = None
    matches: bool | None = None  # whether the message matches the expected pattern; None: no pattern, or timed out

    @property
    def text(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.message


class Times(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times by the client's monotonic clock."""

    sent_s: float | None = None
    first_byte_s: float | None = None
    ended_s: float | None = None
    messages_s: tuple[float, ...] = ()  # when each message of a stream arrived


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to one request. A stream keeps its messages, including those before a failure; `generations` then
    has the merged one."""

    generations: tuple[Generation, ...] = ()
    tokenizations: tuple[Tokenization, ...] = ()
    failure: Failure | None = None
    messages: tuple[Generation, ...] = ()
    times: Times = Times()


class ErrorMatch(StrEnum):
    """How the message of an expected error is compared."""

    EXACT = "exact"
    PREFIX = "prefix"
    PATTERN = "pattern"


class ExpectedError(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str | None = None  # None: any
    message: str | None = None
    match: ErrorMatch = ErrorMatch.EXACT


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and its expected answer or error. A case with neither is still to be recorded."""

    name: str
    request: Request
    answer: Answer | None = None
    error: ExpectedError | None = None
    skip_check: bool = False  # skips only the content: counts, stop reason and stream = unary are still checked
    single_shard_only: bool = False
    tags: tuple[str, ...] = ()
    at: str = ""  # file:line


def stream_answer(messages: Sequence[Generation], failure: Failure | None, times: Times) -> Answer:
    merged = (merge_messages(messages),) if messages and failure is None else ()
    return Answer(merged, failure=failure, messages=tuple(messages), times=times)


def merge_messages(messages: Sequence[Generation]) -> Generation:
    """Merges the messages of a stream: texts and tokens are joined, other fields take their last value."""
    merged: dict[str, Any] = {}
    for name in Generation.__struct_fields__:
        values = [value for message in messages if (value := getattr(message, name)) is not None]
        if values and name == "text":
            merged[name] = "".join(values)
        elif values:
            merged[name] = tuple(chain(*values)) if name in ("tokens", "input_tokens") else values[-1]
    return Generation(**merged)
