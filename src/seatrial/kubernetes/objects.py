"""What of Kubernetes' objects is read: small structs, never whole objects.

A caller who wants to see more of an object makes a subclass of `Object` with the fields that it needs; what it does not
name is skipped by the decoder and never becomes a Python object.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

# What decoding raises for something else than JSON of that form: text that is not UTF-8 and nesting without end, too.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ObjectPart(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A part of an object, named as in Kubernetes' JSON but in Python's way (`resource_version`).

    Without garbage collection: what comes out of JSON has no cycles, and thousands of these are kept.
    """


class Meta(ObjectPart, frozen=True, gc=False):
    """`metadata`, without annotations and managed fields, which are the bulk of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


class Object(ObjectPart, frozen=True, gc=False):
    """Any object, of which only the metadata is wanted: the server is then asked for no more than that."""

    metadata: Meta = Meta()


class Tree(Object, frozen=True, gc=False):
    """An object with its content as plain data, for those whose form only the user knows. Not for many of them."""

    api_version: str = ""
    kind: str = ""
    spec: Any = None
    status: Any = None
    data: Any = None


class StatusCause(ObjectPart, frozen=True, gc=False):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(ObjectPart, frozen=True, gc=False):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()


class Status(ObjectPart, frozen=True, gc=False):
    """What the server says instead of an object, and at the end of an exec."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class ListMeta(ObjectPart, frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


# The object that a caller wants, in every signature. Type checkers learn its default; at run time there is none.
if TYPE_CHECKING:
    import typing_extensions

    O = typing_extensions.TypeVar("O", bound=Object, default=Object)  # noqa: E741
else:
    O = TypeVar("O", bound=Object)  # noqa: E741
