"""Who builds an environment holds its lock, and so does the program that does the work: when only the former is killed,
the next one waits until the latter is done before it looks what there is."""

import asyncio
import fcntl
import os
from pathlib import Path
from types import TracebackType

from seatrial.target.protocol import TargetError

_POLL_S = 0.1


class BuildLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def descriptors(self) -> tuple[int, ...]:
        """To be inherited by the program that builds."""
        return (self._descriptor,)

    async def __aenter__(self) -> "BuildLock":
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TargetError(f"cannot lock {self._path}: {error}") from error
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except BlockingIOError:
                try:
                    await asyncio.sleep(_POLL_S)
                except asyncio.CancelledError:
                    os.close(self._descriptor)
                    raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
