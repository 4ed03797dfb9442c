"""`seatrial` and `python -m seatrial`."""

import gc
import os
import signal
import sys
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    """What loads modules may swallow a KeyboardInterrupt, so there is none until somebody has something to tidy: the
    engine takes the signal over when it starts, and so do commands that hold more than what is written whole."""
    os.write(2, b"seatrial: interrupted\n")
    os._exit(130)


def _open_missing_streams() -> None:
    """With `>&-` a stream is closed, and Python has None for it. Files and programs must not get its number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY)
            os.dup2(opened, number)
            os.set_inheritable(number, True)
            if opened != number:
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w"))


def main() -> None:
    _open_missing_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    # What is imported stays. Looking through it for garbage again and again is a tenth of the time of a short command.
    gc.set_threshold(20_000, 50, 100)
    from seatrial.cli import main as command

    command(prog_name="seatrial")


if __name__ == "__main__":
    main()
