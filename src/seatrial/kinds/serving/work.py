"""The client's work and its notes. Data only.

Each case is asked in one or more ways: whole or as a stream, alone or in a crowd. The client writes a note before and
after each of them; the second one has the answer."""

import random
from enum import StrEnum
from typing import Any

import msgspec

from seatrial.kinds.serving.generation import Answer
from seatrial.kinds.serving.load_work import LoadWork
from seatrial.kinds.serving.request import Expect, Mode, Request

SERVER_PORT = "serve"  # port name of the part `server`


class Variable(StrEnum):
    """Environment variables with the client's credentials; certificate and key are PEM."""

    TOKEN = "SEATRIAL_SERVER_TOKEN"
    CLIENT_CERT = "SEATRIAL_CLIENT_CERT"
    CLIENT_KEY = "SEATRIAL_CLIENT_KEY"
    EMBEDDINGS_TOKEN = "SEATRIAL_EMBEDDINGS_TOKEN"  # for the embeddings endpoint


class Note(StrEnum):
    """Kinds of the client's notes. The first three are common to all kinds of trial."""

    BEGUN = "begun"
    FINISHED = "finished"
    ENDPOINT = "endpoint"  # the route to the server is open
    READY = "ready"  # one real generation was answered; also the name of this thing
    UNREADY = "unready"  # none was answered in time
    ORDER = "order"  # order of the things, and the concurrency
    PIECE = "piece"  # part of an answer that is too long for one note
    GONE = "gone"  # the client stopped asking, with the reason


class ReadyNote(msgspec.Struct, frozen=True):
    seconds: float
    tries: int = 1


class UnreadyNote(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    tries: int = 0
    why: str = ""
    lasting: bool = False
    reached: bool = True


class AnswerNote(msgspec.Struct, frozen=True):
    """Has either `answer`, or `pieces`: the number of preceding notes that hold it."""

    answer: Answer | None = None
    pieces: int | None = None
    similarities: list[float] = []  # to the expected texts, for rule `embedding`


class Tls(msgspec.Struct, frozen=True, omit_defaults=True):
    """`cert` and `key` are secret: the client gets them as environment variables, never in its work."""

    ca: str = ""  # path of a PEM file; empty: the CA certificates of the client's system
    cert: str = ""  # client certificate, PEM
    key: str = ""
    name: str = ""  # expected host name; empty: that of the address
    verify: bool = True


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case. Its expected answer is compared by Seatrial, not by the client, except under load."""

    name: str
    request: Request
    error: bool = False  # an error is expected, so requests are not retried
    texts: tuple[str, ...] = ()  # expected texts, for rule `embedding`
    tokens: int | None = None  # length of the recorded answer, if known
    answer: Answer | None = None  # recorded answer, if answers of the load are compared with it
    skip_check: bool = False
    error_pattern: str = ""  # for the message of the expected error
    expect: Expect | None = None  # checked by the client
    turns: tuple[str, ...] = ()  # what the user of a conversation says next, each after an answer


class Embeddings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of `url` and `local` is set."""

    url: str = ""  # endpoint that has `/v1/embeddings`
    model: str = ""
    local: str = ""  # sentence-transformers model, by name or folder, that the client runs


class ServingWork(msgspec.Struct, frozen=True, omit_defaults=True):
    version: str = ""  # Seatrial version that the client's image must have; empty: not checked
    questions: tuple[Question, ...] = ()
    protocol: str = "openai"
    url: str = ""  # of a running server; empty: the part `server` of this attempt
    model: str = ""
    tls: Tls | None = None
    headers: dict[str, str] = {}
    extra: dict[str, Any] = {}  # extra fields of each request; null removes one
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

    case: int  # index of the question
    stream: bool
    crowd: bool

    @property
    def thing(self) -> str:
        return f"{self.case} {self.way}"

    @property
    def way(self) -> str:
        return f"{'stream' if self.stream else 'unary'}{' in a crowd' if self.crowd else ''}"


def asks_of(work: ServingWork) -> list[Ask]:
    """All ways of asking all cases, in the order of the cases."""
    made = []
    # All turns of a conversation are asked in the same ways.
    with_events = {at - one.request.turn for at, one in enumerate(work.questions) if one.expect and one.expect.events}
    for index, question in enumerate(work.questions):
        mode = question.request.mode
        ways = [mode is Mode.STREAM]
        also = index - question.request.turn in with_events
        if (work.stream or also) and mode is Mode.UNARY and question.request.single and not question.error:
            ways += [True] if "stream" not in question.request.body else []
        crowds = [False, True] if work.batching else [False]
        made += [Ask(index, stream, crowd) for crowd in crowds for stream in ways]
    return made


def conversation_of(work: ServingWork, ask: Ask) -> Ask:
    """The first turn, asked in the same way."""
    return Ask(ask.case - work.questions[ask.case].request.turn, ask.stream, ask.crowd)


def phases_of(work: ServingWork) -> list[tuple[list[Ask], int]]:
    """Asks in order, each phase with its concurrency: with `batching` first each alone, then all in a crowd. The seed
    determines the order."""
    asks = asks_of(work)
    random.Random(work.seed).shuffle(asks)
    # Turns of a conversation come one after the other.
    places = {ask: place for place, ask in enumerate(asks)}
    asks.sort(key=lambda ask: (places.get(conversation_of(work, ask), places[ask]), ask.case))
    if not work.batching:
        return [(asks, work.concurrency)]
    return [([ask for ask in asks if not ask.crowd], 1), ([ask for ask in asks if ask.crowd], work.concurrency)]
