"""What the driver's records say: when the server first answered, and what came back of each thing that was asked."""

from typing import Any

import msgspec

from seatrial.job import ObservedStep, Unreadable, convert, decode
from seatrial.job.generation import Answer, merge_messages
from seatrial.job.load import LOAD
from seatrial.job.serving import GONE, PIECE, READY, UNREADY

ENDPOINT = "endpoint"  # the note of a driver that opened the way to its server
BEGUN, FINISHED = "begun", "finished"  # as every driver notes what it does


class DriverRecords(msgspec.Struct, frozen=True):
    answers: dict[str, Answer] = {}  # by thing
    beside: dict[str, int] = {}  # how many others were being answered when it was asked
    similarities: dict[str, list[float]] = {}  # to what is expected, by thing, where that was asked for
    begun: frozenset[str] = frozenset()
    ready: dict[str, Any] | None = None
    unready: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    way: str = ""  # that lies between driver and server, where it is more than a connection
    way_s: float = 0.0  # the least that it adds to every answer, in the median
    way_p99_s: float = 0.0
    gone: str = ""  # why nothing was asked any more
    broken: int = 0  # records that cannot be read


def read_records(step: ObservedStep) -> DriverRecords:
    answers: dict[str, Answer] = {}
    beside: dict[str, int] = {}
    similarities: dict[str, list[float]] = {}
    pieces: dict[str, list[str]] = {}
    begun, broken = set(), 0
    ready: dict[str, Any] | None = None
    unready: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    way, way_s, way_p99_s, gone = "", 0.0, 0.0, ""
    for note in step.notes:
        kind, thing = note.get("note"), str(note.get("thing"))
        if kind == BEGUN:
            begun.add(thing)
            pieces.pop(thing, None)  # those of a driver that was killed in the middle of them
        elif kind == PIECE:
            pieces.setdefault(thing, []).append(str(note.get("text")))
        elif kind == FINISHED and thing == READY:
            ready = note
        elif kind == FINISHED and thing == LOAD:
            load = note
        elif kind == FINISHED:
            try:
                answers[thing] = _answer(note, pieces.pop(thing, []))
                beside[thing] = int(note.get("beside") or 0)
                similarities[thing] = convert(note.get("similarities") or [], list[float])
            except (Unreadable, KeyError, ValueError):
                broken += 1
        elif kind == UNREADY:
            unready = note
        elif kind == ENDPOINT and note.get("adds_s"):
            way, way_s = str(note.get("way")), float(note["adds_s"])
            way_p99_s = float(note.get("adds_p99_s") or way_s)
        elif kind == GONE:
            gone = str(note.get("why"))
    return DriverRecords(
        answers, beside, similarities, frozenset(begun), ready, unready, load, way, way_s, way_p99_s, gone, broken
    )


def _answer(note: dict[str, Any], pieces: list[str]) -> Answer:
    if "pieces" in note:
        if note["pieces"] != len(pieces):
            raise ValueError("pieces are missing")
        answer = decode("".join(pieces), Answer)
    else:
        answer = convert(note["answer"], Answer)
    if answer.messages and not answer.generations and answer.failure is None:
        return msgspec.structs.replace(answer, generations=(merge_messages(answer.messages),))
    return answer
