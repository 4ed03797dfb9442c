"""Decoders of what a server sends, one for each form that a caller asks for; made once and kept."""

from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from seatrial.kubernetes.errors import ProtocolError
from seatrial.kubernetes.http.connection import JSON
from seatrial.kubernetes.objects import UNDECODABLE, ListMeta, O, Object, ObjectPart
from seatrial.kubernetes.resources import ApiRequest

_P = TypeVar("_P", bound=ObjectPart)


class ListPage(ObjectPart, Generic[O], frozen=True, gc=False):
    metadata: ListMeta = ListMeta()
    items: list[O] | None = None


class WatchLine(ObjectPart, Generic[O], frozen=True, gc=False):
    """A line of a watch."""

    type: str
    object: O


class RawWatchLine(ObjectPart, frozen=True, gc=False):
    """The same, for lines whose object is not what is watched: bookmarks and errors."""

    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def decoder(form: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(form)


def decode_answer(request: ApiRequest, form: type[_P], body: bytes) -> _P:
    try:
        made: _P = decoder(form).decode(body)
    except UNDECODABLE as error:
        problem = f"the answer is not what an API server gives ({error}){beginning(body)}"
        raise ProtocolError(request, problem) from None
    return made


def beginning(body: bytes) -> str:
    """How a text begins that is no object. An object is not shown: it may be a Secret."""
    return "" if body.lstrip()[:1] == b"{" else f"; it begins with {body[:200].decode(errors='replace')!r}"


def accept(form: type[Object], many: bool = False) -> str:
    """A caller that reads metadata alone is sent metadata alone."""
    if form.__struct_fields__ != Object.__struct_fields__:
        return JSON
    return f"{JSON};as=PartialObjectMetadata{'List' if many else ''};g=meta.k8s.io;v=v1,{JSON}"
