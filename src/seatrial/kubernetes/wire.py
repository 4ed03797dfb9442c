"""Decoders of what a server sends, one for each form that a caller wants to see; made once and kept."""

from functools import lru_cache
from typing import Any, Generic

import msgspec

from seatrial.kubernetes.connection import JSON
from seatrial.kubernetes.errors import Asked, ProtocolError
from seatrial.kubernetes.objects import ListMeta, O, Object, Part


class Page(Part, Generic[O], frozen=True, gc=False):
    metadata: ListMeta = ListMeta()
    items: list[O] | None = None


class Line(Part, Generic[O], frozen=True, gc=False):
    """A line of a watch."""

    type: str
    object: O


class RawLine(Part, frozen=True, gc=False):
    """The same, for lines whose object is not what is watched: bookmarks and errors."""

    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def decoder(form: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(form)


def decode(asked: Asked, form: type[O], body: bytes) -> O:
    try:
        made: O = decoder(form).decode(body)
    except msgspec.DecodeError as error:
        raise not_understood(asked, body, error) from None
    return made


def decode_page(asked: Asked, form: type[O], body: bytes) -> Page[O]:
    try:
        page: Page[O] = decoder(Page[form]).decode(body)  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        raise not_understood(asked, body, error) from None
    return page


def not_understood(asked: Asked, body: bytes, error: Exception) -> ProtocolError:
    return ProtocolError(asked, f"the answer is not what an API server gives ({error}){beginning(body)}")


def beginning(body: bytes) -> str:
    """How a text begins that is no object. An object is not shown: it may be a Secret."""
    return "" if body.lstrip()[:1] == b"{" else f"; it begins with {body[:200].decode(errors='replace')!r}"


def accept(form: type[Object], many: bool = False) -> str:
    """Who wants to see metadata alone is sent metadata alone."""
    if form is not Object:
        return JSON
    return f"{JSON};as=PartialObjectMetadata{'List' if many else ''};g=meta.k8s.io;v=v1,{JSON}"
