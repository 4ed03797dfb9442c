"""Seatrial's own programs that are parts of an attempt: they ask a server, or load a cluster, and record what they saw.

A driver is a process of its own, `python -m seatrial.drive KIND`, found by `plugins.drivers`."""

from seatrial.drive.driver import Driver, DriverError
