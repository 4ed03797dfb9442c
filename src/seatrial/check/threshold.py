"""A requirement of a suite (`>=15`, `<2Gi`, `1`), as far as a check has to know it."""

from typing import Protocol


class Threshold(Protocol):
    @property
    def text(self) -> str: ...

    def met_by(self, have: float) -> bool: ...
