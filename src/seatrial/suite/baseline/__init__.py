"""Files of bounds: Seatrial's own and torchprime's, read with every error at its place and edited value by value."""

from seatrial.suite.baseline.edit import CannotEdit, Edit, edited
from seatrial.suite.baseline.entry import OURS, THEIRS, Baselines, Entry
from seatrial.suite.baseline.read import agreed_better, read_baselines

__all__ = ["OURS", "THEIRS", "Baselines", "CannotEdit", "Edit", "Entry", "agreed_better", "edited", "read_baselines"]
