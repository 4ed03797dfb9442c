"""Answers of a model server, independent of the protocol. Data only.

None means that the server did not set a value; an empty value was set to be empty."""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Any

import msgspec


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
    """The response to one request. A stream has messages instead of generations, including those before a failure."""

    generations: tuple[Generation, ...] = ()
    tokenizations: tuple[Tokenization, ...] = ()
    failure: Failure | None = None
    messages: tuple[Generation, ...] = ()
    times: Times = Times()
    problems: tuple[str, ...] = ()  # unmet expectations and broken rules of the protocol, found by the client
    raw: tuple[bytes, ...] = ()  # body, or events of a stream; not recorded


def tokens_of(
    texts: Sequence[str], logprobs: Sequence[float | None], tops: Sequence[dict[str, float | None] | None]
) -> tuple[Token, ...]:
    """The tokens in OpenAI's completions; `tops` has the most likely ones at each position."""
    made = []
    for text, logprob, top in zip_longest(texts, logprobs, tops):
        likeliest_first = sorted((top or {}).items(), key=lambda item: math.inf if item[1] is None else -item[1])
        made.append(Token(text, logprob, top=tuple(TopToken(*item) for item in likeliest_first)))
    return tuple(made)


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
    if len(made) < 2:
        return made
    return tuple(msgspec.structs.replace(one, input_count=None, generated_count=None, index=None) for one in made)


def generations_of(answer: Answer) -> Sequence[Generation]:
    """The generations of an answer; for a stream, its merged messages."""
    return merge_messages(answer.messages) if answer.messages else answer.generations


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
