"""Where jobs run. One package a target, behind one protocol; found by the entry-point group `seatrial.targets`."""

from seatrial.targets.protocol import (
    DamagedJob,
    Diagnostic,
    DiagnosticLevel,
    Endpoint,
    Found,
    RunInUse,
    Target,
    TargetError,
    TargetKind,
    TargetLost,
)
