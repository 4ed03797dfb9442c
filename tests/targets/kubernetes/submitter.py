"""Submits one job and waits to be killed: `python submitter.py KUBECONFIG NAMESPACE SHARED RUN NAME COMMAND`."""

import asyncio
import sys

from seatrial.job import Environment, Job, Step
from seatrial.targets.kubernetes import kind


async def main(kubeconfig: str, namespace: str, shared: str, run: str, name: str, command: str) -> None:
    volumes = [{"host": shared, "at": shared, "read_only": False}]
    options = kind.options(kubeconfig=kubeconfig, namespace=namespace, volumes=volumes, pull="Never")
    target = kind.open("cluster", options)
    await target.open()
    step = Step(f"run {command}", "command", {"command": command})
    job = Job(
        name=name,
        run=run,
        cell="69b56f04",
        attempt=1,
        title=name,
        steps=(step,),
        environment=Environment(image="localhost/python:3"),
    )
    print("now", flush=True)
    await target.submit(job, {})
    await asyncio.sleep(3600)


asyncio.run(main(*sys.argv[1:]))
