"""The kinds of trial: one package each, behind `protocol.py`, found by the entry-point group `seatrial.kinds`.

The `__init__` modules import nothing, so that a driver starts without loading the suite models.
"""
