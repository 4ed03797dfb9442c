"""Scale trials: how a cluster behaves under many workloads."""

from seatrial.trial.scale.kind import kind
