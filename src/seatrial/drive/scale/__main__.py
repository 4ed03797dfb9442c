"""The process that watches the workloads of a scale trial; the driver of one is `python -m seatrial.drive scale`."""

import asyncio
import sys
from pathlib import Path

from seatrial.drive.scale.watch import watch_until_told

if __name__ == "__main__":
    asyncio.run(watch_until_told(Path(sys.argv[1])))
