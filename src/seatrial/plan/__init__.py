"""From a suite to the cells that would run, what is excluded and why, the hours and the price. Pure."""

from seatrial.plan.expand import expand
from seatrial.plan.plan import Plan, PlanError
from seatrial.plan.select import Selection
