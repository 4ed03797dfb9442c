"""Statistics of metrics: bounds for a new run, the runs to compute them from, level changes, and comparisons."""

from seatrial.stats.bounds import Fit, Interval, bounds_for, fit_bounds, prediction_interval
from seatrial.stats.changes import ChangePoint, change_points
from seatrial.stats.clean import Cleaned, Past, clean_series
from seatrial.stats.compare import Difference, compare
