"""Readers: pure functions from a program's output to metrics and facts.

They run in the job, where the files are, in a process with limits on time and memory (`agent/readers`). Seatrial's own
are part of the agent. A reader of another distribution is a module named by an entry point of `seatrial.readers`; its
source is added to the agent.
"""

import inspect
from collections.abc import Mapping
from types import ModuleType

import msgspec

from seatrial.job import Better


class Reader(msgspec.Struct, frozen=True):
    metrics: Mapping[str, tuple[str, Better | None]] | None = None  # unit and direction; None: known only after reading
    source: bytes = b""  # source of its module; empty if the agent has it


json = Reader()
kineto = xplane = Reader({"step_time": ("s", "lower")})


def reader_of(found: Reader | ModuleType) -> Reader:
    """Raises TypeError unless `found` is a module with a function `read`."""
    if isinstance(found, Reader):
        return found
    if not inspect.ismodule(found) or not callable(getattr(found, "read", None)):
        raise TypeError(f"an entry point of seatrial.readers must name a module with a function `read`, got {found!r}")
    return Reader(getattr(found, "METRICS", None), inspect.getsource(found).encode())
