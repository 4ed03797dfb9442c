"""What the driver's records say: when the server first answered, and what came back of each thing that was asked."""

import contextlib
from typing import Any

import msgspec

from seatrial.job import ObservedStep, Unreadable, convert, decode
from seatrial.job.generation import Answer, merge_messages
from seatrial.job.load import LOAD
from seatrial.job.serving import GONE, PIECE, READY, SERVER_PORT, UNREADY

ENDPOINT = "endpoint"  # the note of a driver that opened the way to its server
BEGUN, FINISHED = "begun", "finished"  # as every driver notes what it does


class DriverRecords(msgspec.Struct):
    answers: dict[str, Answer] = {}  # by thing
    similarities: dict[str, list[float]] = {}  # to what is expected, by thing, where that was asked for
    begun: set[str] = set()
    ready: dict[str, Any] | None = None
    unready: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    way: str = ""  # that lies between driver and server, where it is more than a connection
    way_s: float = 0.0  # the least that it adds to every answer, in the median
    way_p99_s: float = 0.0
    gone: str = ""  # why nothing was asked any more


def driver_records(step: ObservedStep) -> DriverRecords:
    found = DriverRecords()
    pieces: dict[str, list[str]] = {}
    for note in step.notes:
        kind, thing = note.get("note"), str(note.get("thing"))
        if kind == BEGUN:
            found.begun.add(thing)
            pieces.pop(thing, None)  # those of a driver that was killed in the middle of them
        elif kind == PIECE:
            pieces.setdefault(thing, []).append(str(note.get("text")))
        elif kind == FINISHED and thing == READY:
            found.ready = note
        elif kind == FINISHED and thing == LOAD:
            found.load = note
        elif kind == FINISHED:
            with contextlib.suppress(Unreadable, KeyError, ValueError):  # of which is then said that it has no record
                found.answers[thing] = _answer(note, pieces.pop(thing, []))
                found.similarities[thing] = convert(note.get("similarities") or [], list[float])
        elif kind == UNREADY:
            found.unready = note
        elif kind == ENDPOINT and note.get("port") == SERVER_PORT and note.get("adds_s"):
            found.way, found.way_s = str(note.get("way")), float(note["adds_s"])
            found.way_p99_s = float(note.get("adds_p99_s") or found.way_s)
        elif kind == GONE:
            found.gone = str(note.get("why"))
    return found


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
