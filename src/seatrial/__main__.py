"""`seatrial` and `python -m seatrial`."""

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
    from seatrial.cli import main as command

    command(prog_name="seatrial")


if __name__ == "__main__":
    main()
