"""Seatrial proves AI compute before its users do."""

__version__ = "0.3.0"
