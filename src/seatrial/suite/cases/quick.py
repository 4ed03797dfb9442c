"""Reads large case files quickly: what is expected, nearly all of such a file, without the place of every value.

It reads what it knows to be right, and gives up at the first thing that it does not: the file is then read again by
`yaml/source.py`, which says where everything is that is wrong with it. So both read the same from the same file."""

import math
import re
from collections.abc import Iterator
from json import JSONDecoder
from typing import Annotated, Any

import msgspec
import yaml

from seatrial.job import Unreadable, convert
from seatrial.job.generation import Answer, Generation, StopReason, Token, TopToken
from seatrial.suite.yaml.source import MAX_DEPTH, Node, Source, StoppedReading, YamlReader, plain_value

_RESPONSE = "response"
_ODD_LINE_END = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # which YAML counts as lines, and JSON does not
_BLANK = re.compile(r"[ \t\r\n]*")
U32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
U64 = Annotated[int, msgspec.Meta(ge=0)]
_NAN = frozenset(("NaN", "nan", ".nan", ".NaN", ".NAN"))


class NotQuick(Exception):
    """There is something here that must be read with its place."""


class _TopToken(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    logprob: float | str | None = None


class _Token(_TopToken, forbid_unknown_fields=True, rename="camel"):
    rank: U32 | None = None
    top_tokens: list[_TopToken] | None = None


class _Generation(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    text: str = ""
    input_token_count: U32 = 0
    generated_token_count: U32 = 0
    stop_reason: str | None = None
    stop_sequence: str | None = None
    seed: U64 | None = None
    tokens: list[_Token] | msgspec.UnsetType = msgspec.UNSET
    input_tokens: list[_Token] | msgspec.UnsetType = msgspec.UNSET


class _Response(msgspec.Struct, forbid_unknown_fields=True):
    responses: list[_Generation] = []


_STOPS = {reason.value.upper(): reason for reason in StopReason}


def quick_cases(source: Source, text: str) -> Iterator[tuple[Node, Answer | None]]:
    """Each case without its response, and what that says; to `source` is reported what is wrong. Raises NotQuick."""
    if _ODD_LINE_END.search(text):
        raise NotQuick
    found = _json_cases(text) if text.lstrip(" \t\r\n")[:1] == "[" else _YamlCases(source, text).cases()
    try:
        yield from found
    except (ValueError, yaml.YAMLError, RecursionError, StoppedReading) as error:
        raise NotQuick from error


def _answer(data: Any) -> Answer:
    try:
        made = convert(data, _Response)
    except Unreadable:
        raise NotQuick from None
    return Answer(tuple(map(_generation, made.responses)))


def _generation(one: _Generation) -> Generation:
    if one.stop_reason is not None and one.stop_reason not in _STOPS:
        raise NotQuick
    return Generation(
        one.text,
        one.input_token_count,
        one.generated_token_count,
        _STOPS[one.stop_reason] if one.stop_reason else None,
        one.stop_sequence,
        one.seed,
        _tokens(one.tokens),
        _tokens(one.input_tokens),
    )


def _tokens(found: list[_Token] | msgspec.UnsetType) -> tuple[Token, ...] | None:
    return None if isinstance(found, msgspec.UnsetType) else tuple(map(_token, found))


def _token(one: _Token) -> Token:
    top = one.top_tokens
    likeliest = tuple([TopToken(each.text, _logprob(each.logprob)) for each in top]) if top else ()
    return Token(one.text, _logprob(one.logprob), one.rank or None, likeliest)


def _logprob(value: float | str | None) -> float | None:
    if isinstance(value, str):
        if value not in _NAN:
            raise NotQuick
        return None
    if value is not None and not math.isfinite(value):
        raise NotQuick
    return value


# ---- JSON


def _json_cases(text: str) -> Iterator[tuple[Node, Answer | None]]:
    """By the decoder of the standard library, which can be asked for one value after the other."""
    decoder = JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
    at = _skip(text, text.index("[") + 1)
    line, line_begins, counted = 1, 0, 0
    while text[at : at + 1] != "]":
        if more := text.count("\n", counted, at):
            line, line_begins = line + more, text.rfind("\n", counted, at) + 1
        counted = at
        data, at = decoder.raw_decode(text, at)
        if not isinstance(data, dict):
            raise NotQuick
        answer = _answer(data.pop(_RESPONSE)) if _RESPONSE in data else None
        yield _node(data, line, counted - line_begins + 1), answer
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                raise NotQuick
        elif text[at : at + 1] != "]":
            raise NotQuick
    if _skip(text, at + 1) != len(text):
        raise NotQuick


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotQuick
    return made


def _refuse(_: str) -> float:
    raise NotQuick


def _node(data: Any, line: int, column: int, depth: int = 0) -> Node:
    """At the place of its case: a problem with it is looked for again."""
    if depth > MAX_DEPTH:
        raise NotQuick
    node = Node(line, column)
    node.data = data
    if isinstance(data, dict):
        node.items = {key: _node(value, line, column, depth + 1) for key, value in data.items()}
        node.keys = dict.fromkeys(data, (line, column))
    elif isinstance(data, list):
        node.items = [_node(value, line, column, depth + 1) for value in data]
    return node


# ---- YAML


class _YamlCases(YamlReader):
    """Of a list of maps: the values of `response` as plain data, everything else as nodes with their places."""

    def __init__(self, source: Source, text: str) -> None:
        super().__init__(source)
        self._text = text

    def cases(self) -> Iterator[tuple[Node, Answer | None]]:
        events: Iterator[Any] = yaml.parse(self._text, Loader=yaml.CSafeLoader)
        for kind in (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.SequenceStartEvent):
            if not isinstance(next(events, None), kind):
                raise NotQuick
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            if not isinstance(event, yaml.MappingStartEvent) or event.anchor or event.tag:
                raise NotQuick
            yield self._case(event, events)
        if not isinstance(next(events, None), yaml.DocumentEndEvent):
            raise NotQuick
        if not isinstance(next(events, None), yaml.StreamEndEvent):
            raise NotQuick

    def _case(self, start: Any, events: Iterator[Any]) -> tuple[Node, Answer | None]:
        node, answer = Node(start.start_mark.line + 1, start.start_mark.column + 1), None
        items: dict[str, Node] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, events, 2)
            if not isinstance(key.data, str) or key.data == "<<" or key.data in node.keys:
                raise NotQuick
            node.keys[key.data] = (key.line, key.column)
            if key.data == _RESPONSE:
                answer = _answer(_plain_data(next(events), events, 2))
            else:
                items[key.data] = self._node(next(events), events, 2)
        if answer is not None:
            del node.keys[_RESPONSE]
        if self._source.problems or self._anchors:
            raise NotQuick
        node.items, node.data = items, {name: one.data for name, one in items.items()}
        return node, answer


def _plain_data(event: Any, events: Iterator[Any], depth: int) -> Any:
    """What YAML says there, of plain things: no anchors, tags, merges, and no key twice."""
    kind = event.__class__
    if kind is yaml.AliasEvent or event.anchor or event.tag or depth > MAX_DEPTH:
        raise NotQuick
    if kind is yaml.ScalarEvent:
        return plain_value(event.value) if event.implicit[0] else event.value
    if kind is yaml.SequenceStartEvent:
        items: list[Any] = []
        for inner in events:
            if inner.__class__ is yaml.SequenceEndEvent:
                return items
            items.append(_plain_data(inner, events, depth + 1))
    made: dict[str, Any] = {}
    for inner in events:
        if inner.__class__ is yaml.MappingEndEvent:
            return made
        key = _plain_data(inner, events, depth + 1)
        if not isinstance(key, str) or key in made or key == "<<":
            raise NotQuick
        made[key] = _plain_data(next(events), events, depth + 1)
    raise NotQuick
