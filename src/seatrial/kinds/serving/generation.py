"""Requests to a model server and its answers, independent of the protocol. Data only.

None means that the case or the server did not set a value; an empty value was set to be empty. `explicit` gives the
options that a client sends, so that no server default applies."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

import msgspec

# Paths of OpenAI's API.
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
EMBEDDINGS, RESPONSES = "/v1/embeddings", "/v1/responses"


class Method(StrEnum):
    GREEDY = "greedy"
    SAMPLE = "sample"


class Mode(StrEnum):
    """How a request is made. Several inputs in a unary request are one batch."""

    UNARY = "unary"
    STREAM = "stream"
    TOKENIZE = "tokenize"
    EMBED = "embed"


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
    TOOL_CALLS = "tool_calls"


FINISH_REASONS = {"length": StopReason.MAX_TOKENS, "stop": StopReason.STOP, "tool_calls": StopReason.TOOL_CALLS}


class Guide(StrEnum):
    """Constraint of guided decoding."""

    TEXT = "text"
    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"


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
    """One call of the server. It has inputs or chat messages, not both.

    A request in OpenAI's own words has a `path`. Its `body` is sent as written; the other fields only describe it."""

    inputs: tuple[str, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
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
    path: str = ""
    body: dict[str, Any] = {}
    text: str | None = None  # sent instead of `body`; it need not be JSON
    choices: int = 1  # answers to each input
    repeated: int = 1  # how often its prompt is repeated
    cancelled: int = 0  # how often it is sent before, and its connection closed at the first byte of the answer
    turn: int = 0  # of a conversation; needs the answers to the cases just before it
    tools: tuple[str, ...] = ()
    tool_choice: str = ""  # auto, none, required, or the name of a tool

    @property
    def single(self) -> bool:
        """True if it has one input, so that it can be a stream."""
        return self.mode is not Mode.EMBED and (len(self.inputs) == 1 or bool(self.messages))


class TopToken(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    logprob: float | None = None


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    logprob: float | None = None
    rank: int | None = None  # 1 is the most likely
    top: tuple[TopToken, ...] = ()


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    arguments: str = ""  # JSON as the model wrote it
    index: int = 0  # which of several calls


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
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    model: str | None = None  # name in the answer
    index: int | None = None  # of its choice in a stream, if it is not the first
    vector: tuple[float, ...] | None = None  # embedding of the input
    hidden_count: int | None = None  # generated tokens of reasoning that is not in the answer


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
    problems: tuple[str, ...] = ()  # unmet expectations and broken rules of the protocol, found by the client
    raw: tuple[bytes, ...] = ()  # body, or events of a stream; not recorded


class ErrorMatch(StrEnum):
    """How the message of an expected error is compared."""

    EXACT = "exact"
    PREFIX = "prefix"
    PATTERN = "pattern"


class ExpectedError(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str | None = None  # a pattern in which x is any digit: 4xx, 400|422; None: any
    message: str | None = None
    match: ErrorMatch = ErrorMatch.EXACT


class Expect(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a case in OpenAI's own words expects of the answer. None: not checked."""

    text: str | None = None
    contains: tuple[str, ...] = ()
    matches: str | None = None
    json: str | None = None  # the text must be equal to this JSON
    tool_calls: tuple[ToolCall, ...] | None = None  # without `arguments`: any
    finish_reason: StopReason | None = None
    response: Any = None  # JSON Schema of the body
    events: dict[str, Any] = {}  # JSON Schemas of the first, each, any, and the last event of a stream


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and its expected answer or error. A case with neither is still to be recorded."""

    name: str
    request: Request
    answer: Answer | None = None
    error: ExpectedError | None = None
    expect: Expect | None = None
    why: str = ""  # reason of the expectation, shown in its findings
    skip_check: bool = False  # skips only the content: counts, stop reason and stream = unary are still checked
    single_shard_only: bool = False
    tags: tuple[str, ...] = ()
    at: str = ""  # file:line


def stream_answer(messages: Sequence[Generation], failure: Failure | None, times: Times) -> Answer:
    merged = merge_messages(messages) if failure is None else ()
    return Answer(merged, failure=failure, messages=tuple(messages), times=times)


def by_choice(messages: Sequence[Generation]) -> list[list[Generation]]:
    """The messages of each choice of a stream."""
    found: dict[int, list[Generation]] = {}
    for message in messages:
        found.setdefault(message.index or 0, []).append(message)
    return [ones for _, ones in sorted(found.items())]


def merge_messages(messages: Sequence[Generation]) -> tuple[Generation, ...]:
    """Merges the messages of each choice of a stream: texts and tokens are joined, other fields take their last value.
    Usage is left out if there are several choices, because it is their sum."""
    made = tuple(map(_merged, by_choice(messages)))
    return (
        made
        if len(made) < 2
        else tuple(msgspec.structs.replace(one, input_count=None, generated_count=None, index=None) for one in made)
    )


def generations_of(answer: Answer) -> Sequence[Generation]:
    """The generations of an answer; for a stream, its merged messages."""
    return merge_messages(answer.messages) if answer.messages else answer.generations


ANSWER = {"role": "assistant"}  # stands for the answer to an earlier turn


def continued(request: Request, earlier: Sequence[Answer]) -> Request:
    """The request of a turn with the answers to the earlier ones. Their tool calls are `call_0`, `call_1` and so on."""
    said = [generations_of(one)[0] for one in earlier]
    messages: list[dict[str, Any]] = []
    for message in request.body["messages"]:
        if message == ANSWER:
            got = said.pop(0)
            message = {**ANSWER, "content": got.text or ""}
            if got.tool_calls:
                message["tool_calls"] = [
                    {"id": f"call_{at}", "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                    for at, one in enumerate(got.tool_calls)
                ]
        messages.append(message)
    return msgspec.structs.replace(request, messages=tuple(messages), body=request.body | {"messages": messages})


def _merged(messages: Sequence[Generation]) -> Generation:
    merged: dict[str, Any] = {}
    for name in Generation.__struct_fields__:
        values = [value for message in messages if (value := getattr(message, name)) is not None]
        if values and name in ("text", "reasoning"):
            merged[name] = "".join(values)
        elif values:
            merged[name] = tuple(chain(*values)) if name in ("tokens", "input_tokens", "tool_calls") else values[-1]
    if calls := merged.get("tool_calls"):
        parts: dict[int, list[ToolCall]] = {}
        for call in calls:
            parts.setdefault(call.index, []).append(call)
        merged["tool_calls"] = tuple(
            ToolCall("".join(one.name for one in ones), "".join(one.arguments for one in ones), index)
            for index, ones in sorted(parts.items())
        )
    return Generation(**merged)
