"""Submits one job to the local target and waits to be killed: `python submitter.py RUN NAME COMMAND`."""

import asyncio
import sys

from seatrial.job import Job, Step
from seatrial.targets.local import kind


async def main(run: str, name: str, command: str) -> None:
    target = kind.open("here", kind.options())
    await target.open()
    job = Job(
        name=name,
        run=run,
        cell="69b56f04",
        attempt=1,
        title=name,
        steps=(Step(f"run {command}", "command", {"command": command}),),
    )
    print("now", flush=True)
    await target.submit(job, {})
    await asyncio.sleep(60)


asyncio.run(main(*sys.argv[1:]))
