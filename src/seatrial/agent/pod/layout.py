"""Where things are in a pod: what was handed in, and the box that the trial writes and the keeper reads."""

from __future__ import annotations

import os

VARIABLE, DEFAULT = "SEATRIAL_PLACE", "/seatrial"
LOCK = "lock"  # held (flock) by the trial as long as it lives
STARTED = "started"  # made once, after the lock was taken: the steps of a box are run once
ALIVE = "alive"  # changes as long as the trial lives, for a keeper that knows no locks
CANCEL = "cancel"  # put there by whoever wants the end
COLLECTED = "collected"  # put there by whoever has fetched all


class Place:
    def __init__(self, root: str = "") -> None:
        self.root = root or os.environ.get(VARIABLE) or DEFAULT
        self.inputs = os.path.join(self.root, "inputs")
        self.work, self.files = self.box("work"), self.out("files")

    def box(self, name: str) -> str:
        return os.path.join(self.root, "box", name)

    def out(self, name: str = "") -> str:
        return os.path.join(self.box("out"), name) if name else self.box("out")

    def make(self) -> None:
        for folder in (self.work, self.box("home"), self.box("tmp"), self.files):
            os.makedirs(folder, exist_ok=True)
