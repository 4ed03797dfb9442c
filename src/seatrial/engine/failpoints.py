"""Points at which the tests kill or starve a run: every journal write and every effect has a number.

`SEATRIAL_FAILPOINT=7` kills this process (SIGKILL) at the seventh point; `7:ENOSPC` raises that error there;
`SEATRIAL_FAILPOINT_LOG=FILE` writes the name of each point that was passed, so that a first run tells how
many there are.
"""

import errno
import os
import signal


class Failpoints:
    def __init__(self) -> None:
        number, _, self._error = os.environ.get("SEATRIAL_FAILPOINT", "").partition(":")
        self._number = int(number) if number else 0
        self._log = os.environ.get("SEATRIAL_FAILPOINT_LOG")
        self._passed = 0

    def __call__(self, point: str) -> None:
        self._passed += 1
        if self._log:
            with open(self._log, "a") as file:
                file.write(f"{self._passed} {point}\n")
        if self._passed == self._number:
            if self._error:
                raise OSError(getattr(errno, self._error), os.strerror(getattr(errno, self._error)))
            os.kill(os.getpid(), signal.SIGKILL)
