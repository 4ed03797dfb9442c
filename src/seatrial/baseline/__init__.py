"""Baseline files: read, explain and change the bounds of metrics.

Computing bounds needs NumPy, so import it from its own module (`new_bounds`) where needed."""

from seatrial.baseline.models import OURS, THEIRS, BaselineEntry, Baselines
from seatrial.baseline.read import read_baselines, read_for_trials
