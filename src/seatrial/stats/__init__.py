"""Bounds for one new run, the runs that they may be made from, changes of level, and differences between two runs."""

from seatrial.stats.bounds import Fit, Interval, bounds_for, fit_bounds, prediction_interval
from seatrial.stats.changes import ChangePoint, change_points
from seatrial.stats.clean import Cleaned, Past, clean_series
from seatrial.stats.compare import Difference, compare
