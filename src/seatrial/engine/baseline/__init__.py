"""Makes, moves, widens and explains bounds: from the history to changes of baseline files, each with its reason."""

from seatrial.engine.baseline.change import CannotWrite, Change, FileChanged, change, write
from seatrial.engine.baseline.hardware import hardware
from seatrial.engine.baseline.make import update
from seatrial.engine.baseline.move import recenter, widen
from seatrial.engine.baseline.place import Chosen, NoBaseline, Place, choose, places
from seatrial.engine.baseline.runs_file import PastRun, read_runs
from seatrial.engine.baseline.show import Shown, show, unused
from seatrial.engine.baseline.take import Figure, Taken, keep, newest_fingerprint, take_bounds
from seatrial.engine.baseline.whose import MixedRuns, whose
from seatrial.engine.baseline.why import Refused, Updated, Why

__all__ = [
    "CannotWrite",
    "Change",
    "Chosen",
    "Figure",
    "FileChanged",
    "MixedRuns",
    "NoBaseline",
    "PastRun",
    "Place",
    "Refused",
    "Shown",
    "Taken",
    "Updated",
    "Why",
    "change",
    "choose",
    "hardware",
    "keep",
    "newest_fingerprint",
    "places",
    "read_runs",
    "recenter",
    "show",
    "take_bounds",
    "unused",
    "update",
    "whose",
    "widen",
    "write",
]
