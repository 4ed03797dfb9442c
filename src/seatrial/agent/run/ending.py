"""How long a job may take, and how it ended: as data."""

from __future__ import annotations

from typing import NamedTuple, Optional


class RunLimits(NamedTuple):
    run_s: Optional[float] = None
    stall_s: Optional[float] = None
    grace_s: float = 10.0


class Ending(NamedTuple):
    """How the whole ended; `code` is that of the first step that did not exit with 0."""

    outcome: str
    code: Optional[int] = None
    message: str = ""
    left: int = 0


class Unready(Exception):
    """The steps cannot be started; `outcome` says whether asking again may help."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
