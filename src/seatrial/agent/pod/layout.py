"""Where things are in a pod: what was handed in, and the volume that the trial writes and the keeper reads."""

from __future__ import annotations

import os

VARIABLE, DEFAULT = "SEATRIAL_PLACE", "/seatrial"
LOCK = "lock"  # held (flock) by the trial as long as it lives
STARTED = "started"  # made once, after the lock was taken: the steps of a pod are run once
ALIVE = "alive"  # changes as long as the trial lives, for a keeper that knows no locks
CANCEL = "cancel"  # put there by whoever wants the end
COLLECTED = "collected"  # put there by whoever has fetched all
END_VOLUME, END_BYTES = "end", 4 << 20  # a volume that may hold 1 MiB, and what the keeper puts there


class PodFolders:
    def __init__(self, root: str = "") -> None:
        self.root = root or os.environ.get(VARIABLE) or DEFAULT
        self.inputs = os.path.join(self.root, "inputs")
        self.work, self.files = self.volume("work"), self.out("files")

    def volume(self, name: str) -> str:
        return os.path.join(self.root, "volume", name)

    def out(self, name: str = "") -> str:
        return os.path.join(self.volume("out"), name) if name else self.volume("out")

    def make(self) -> None:
        for folder in (self.work, self.volume("home"), self.volume("tmp"), self.files):
            os.makedirs(folder, exist_ok=True)
