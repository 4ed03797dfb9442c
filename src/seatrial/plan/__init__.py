"""Expands a suite into a plan: cells, exclusions with reasons, hours and price. Pure."""

from seatrial.plan.expand import expand
from seatrial.plan.plan import Plan, PlanError
from seatrial.plan.select import Selection
