"""Requests to a model server, independent of the protocol, and cases: requests with what is expected. Data only.

None means that the case did not set a value; an empty value was set to be empty. `explicit` gives the options that a
client sends, so that no server default applies."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.kinds.serving.generation import Answer, StopReason, ToolCall, generations_of

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
