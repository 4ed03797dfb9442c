"""Seatrial tests AI compute before its users do.

The names in `__all__` are the Python API; docs/api.md describes it. Each is imported on first use, so that
`import seatrial` is fast.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seatrial.api import Cancellation, RunPlan, attach, attach_blocking, load, plan, read_results, run, run_blocking
    from seatrial.engine import Listener, RunRefused, RunStopped
    from seatrial.job import CellResult, RunResults, Verdict
    from seatrial.plan import PlanError
    from seatrial.record import DamagedRun, RunOwned, UnknownRun
    from seatrial.record.folder import ResultsError
    from seatrial.record.history import HistoryError
    from seatrial.suite import Suite, SuiteError

__version__ = "0.3.0"

_PLACES = {
    "seatrial.api": (
        "Cancellation",
        "RunPlan",
        "attach",
        "attach_blocking",
        "load",
        "plan",
        "read_results",
        "run",
        "run_blocking",
    ),
    "seatrial.engine": ("Listener", "RunRefused", "RunStopped"),
    "seatrial.job": ("CellResult", "RunResults", "Verdict"),
    "seatrial.plan": ("PlanError",),
    "seatrial.record": ("DamagedRun", "RunOwned", "UnknownRun"),
    "seatrial.record.history": ("HistoryError",),
    "seatrial.record.folder": ("ResultsError",),
    "seatrial.suite": ("Suite", "SuiteError"),
}
_WHERE = {name: place for place, names in _PLACES.items() for name in names}

__all__ = ["SeatrialError", "__version__", *sorted(_WHERE)]


class SeatrialError(Exception):
    """Base class of the errors that the API raises. The message is for users and says what to do."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'seatrial' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps `seatrial.plan` the function: importing the package of that name would replace it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "plan" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
