"""`seatrial` and `python -m seatrial`."""

import gc
import os
import signal
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    """What loads modules may swallow a KeyboardInterrupt, so there is none until somebody has something to tidy: the
    engine takes the signal over when it starts, and so do commands that hold more than what is written whole."""
    os.write(2, b"seatrial: interrupted\n")
    os._exit(130)


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    # What is imported stays. Looking through it for garbage again and again is a tenth of the time of a short command.
    gc.set_threshold(20_000, 50, 100)
    from seatrial.cli import main as command

    command(prog_name="seatrial")


if __name__ == "__main__":
    main()
