"""Targets: where jobs run. One package per target behind one protocol, found by entry point (`seatrial.targets`)."""

from seatrial.targets.protocol import (
    DamagedJob,
    Diagnostic,
    DiagnosticLevel,
    Endpoint,
    Found,
    HasApi,
    HasObjects,
    HasProcesses,
    HasTombstones,
    OwnedObjects,
    RunInUse,
    Target,
    TargetError,
    TargetKind,
    TargetLost,
)
