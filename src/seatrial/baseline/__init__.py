"""Files of bounds: read with every error at its place, explained, and changed from the history, each change with its
reason. What makes bounds needs NumPy, so it is imported from its own module by those who need it."""

from seatrial.baseline.models import OURS, THEIRS, BaselineEntry, Baselines
from seatrial.baseline.read import read_baselines, read_for_trials
