"""Bounds for one new run, the runs that they may be made from, changes of level, and differences between two runs."""

from seatrial.stats.bounds import Interval, prediction_interval
from seatrial.stats.change_points import Change, change_points
from seatrial.stats.clean import Cleaned, Past, clean
from seatrial.stats.compare import Difference, compare
from seatrial.stats.online import Online

__all__ = [
    "Change",
    "Cleaned",
    "Difference",
    "Interval",
    "Online",
    "Past",
    "change_points",
    "clean",
    "compare",
    "prediction_interval",
]
