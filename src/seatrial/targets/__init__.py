"""Where jobs run. One package a target, behind one protocol; found by the entry-point group `seatrial.targets`."""

from seatrial.targets.protocol import (
    DamagedJob,
    Diagnostic,
    DiagnosticLevel,
    Endpoint,
    Found,
    HasApi,
    HasProcesses,
    OwnedObjects,
    RunInUse,
    Target,
    TargetError,
    TargetKind,
    TargetLost,
)
