"""What the driver of a model server is given to do, and the names of what it does. Data only.

Each case is asked in one or more ways: whole or as a stream, alone or in a crowd. Each way of asking a case is a thing
of the driver, with a record before and one after it that has the answer."""

import random
from typing import Any

import msgspec

from seatrial.job.generation import Mode, Request
from seatrial.job.load import LoadWork

# Variables of the driver: what it shows the server, the last two as PEM.
TOKEN, CLIENT_CERT, CLIENT_KEY = "SEATRIAL_SERVER_TOKEN", "SEATRIAL_CLIENT_CERT", "SEATRIAL_CLIENT_KEY"
EMBEDDINGS_TOKEN = "SEATRIAL_EMBEDDINGS_TOKEN"  # the same, for what embeds texts
SERVER_PORT = "serve"  # the name of the port of the part `server`

# Notes of the driver, beside those of every driver.
READY = "ready"  # one real generation was answered
UNREADY = "unready"  # none was, in time
ORDER = "order"  # in which order things are asked, and how many at a time
PIECE = "piece"  # of an answer that is too long for one note
GONE = "gone"  # nothing was asked any more from here on, and why


class Tls(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client shows is secret: it comes to the driver as variables, and is in no work."""

    ca: str = ""  # path of a PEM file; empty: what the machine of the driver trusts
    cert: str = ""  # of the client, as PEM
    key: str = ""
    name: str = ""  # that the certificate must be for; empty: that of the address
    verify: bool = True


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case without what is expected of it, which the driver need not know."""

    name: str
    request: Request
    error: bool = False  # an error is expected: whatever comes is the answer
    texts: tuple[str, ...] = ()  # that are expected, where answers are compared by their embeddings


class Embeddings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of `url` and `local`."""

    url: str = ""  # of an endpoint with `/v1/embeddings`
    model: str = ""
    local: str = ""  # a model of sentence-transformers, by name or folder, that the driver itself runs


class ServingWork(msgspec.Struct, frozen=True, omit_defaults=True):
    version: str = ""  # of Seatrial that the driver must be; empty: it is the one that made this
    questions: tuple[Question, ...] = ()
    protocol: str = "openai"
    url: str = ""  # of a server that is there already; empty: the part `server` of the same attempt
    model: str = ""
    tls: Tls | None = None
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}  # fields of each request; null takes one away
    stream: bool = False
    batching: bool = False
    concurrency: int = 8
    seed: int = 0
    request_s: float = 60.0
    ready_s: float = 600.0
    load: LoadWork | None = None
    embeddings: Embeddings | None = None


class Ask(msgspec.Struct, frozen=True):
    """One way of asking one case."""

    case: int  # its place among the questions
    stream: bool
    crowd: bool

    @property
    def thing(self) -> str:
        return f"{self.case} {self.way}"

    @property
    def way(self) -> str:
        return f"{'stream' if self.stream else 'unary'}{' in a crowd' if self.crowd else ''}"


def asks_of(work: ServingWork) -> list[Ask]:
    """In the order of the cases: what is to be asked of each."""
    made = []
    for index, question in enumerate(work.questions):
        mode = question.request.mode
        ways = [mode is Mode.STREAM]
        single = len(question.request.inputs) == 1 or question.request.messages
        if work.stream and mode is Mode.UNARY and single and not question.error:
            ways.append(True)
        crowds = [False, True] if work.batching else [False]
        made += [Ask(index, stream, crowd) for crowd in crowds for stream in ways]
    return made


def phases_of(work: ServingWork) -> list[tuple[list[Ask], int]]:
    """What is asked after what, and how many at a time: with `batching` first each alone, then all in a crowd. The
    order is the seed's."""
    asks = asks_of(work)
    random.Random(work.seed).shuffle(asks)
    if not work.batching:
        return [(asks, work.concurrency)]
    return [([ask for ask in asks if not ask.crowd], 1), ([ask for ask in asks if ask.crowd], work.concurrency)]
