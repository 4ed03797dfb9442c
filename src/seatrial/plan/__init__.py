"""From a suite to the cells that would run, what is excluded and why, the hours and the price. Pure."""

from seatrial.plan.expand import count_combinations, expand
from seatrial.plan.pairwise import Coverage, Pair
from seatrial.plan.plan import OverCost, Plan, PlanError, TooManyCells, UnknownName
from seatrial.plan.select import Selection
