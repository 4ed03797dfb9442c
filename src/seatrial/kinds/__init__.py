"""The kinds of trial. One package each, behind `protocol.py`; found by the entry-point group `seatrial.kinds`.

The packages import nothing by themselves, so that a driver starts without the models that users write.
"""
