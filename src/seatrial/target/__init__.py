"""Where jobs run. One package a target, behind one protocol; found by the entry-point group `seatrial.targets`."""

from seatrial.target.protocol import Found, Target, TargetError, TargetKind

__all__ = ["Found", "Target", "TargetError", "TargetKind"]
