"""The kinds of trial. One package a kind, behind one protocol; found by the entry-point group `seatrial.kinds`."""

from seatrial.trial.protocol import Judgement, Kind
