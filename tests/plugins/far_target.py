"""A target that several machines reach, as a plugin would bring it: a folder with jobs that are processes, and files in
it by which a test says what the place is like.

    refuse, broken   `verify` refuses with that text, or cannot be answered
    slow             `verify` takes without end
    holder           the name of the machine that works on every run here
    lost             who is inside can do nothing any more: TargetLost, with that text
    closed           nobody gets in: `open` fails with that text
    shut             nobody gets in, and nobody is told: `open` takes without end, and leaves `knocked`
    asked            gets a line for each job that is verified
"""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pydantic import BaseModel, ConfigDict

from seatrial.job import Job, Outcome
from seatrial.targets import Diagnostic, DiagnosticLevel, Found, RunInUse, TargetError, TargetLost
from seatrial.targets.local import LocalOptions
from seatrial.targets.local.target import LocalTarget


class FarOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    place: Path
    parallel: int | None = None
    env: dict[str, str] = {}


class FarTarget(LocalTarget):
    def __init__(self, name: str, options: FarOptions) -> None:
        super().__init__(name, LocalOptions(state=options.place / "state", cache=options.place / "cache"))
        self._host = "far"
        self._place = options.place
        self._opened = False

    def _said(self, name: str) -> str:
        path = self._place / name
        return path.read_text() if path.exists() else ""

    def _enter(self) -> None:
        if why := self._said("lost"):
            raise TargetLost(why)
        holder = self._said("holder")
        if holder and holder != socket.gethostname():
            raise RunInUse(f"the run is being worked on by {holder}")

    async def open(self) -> None:
        if why := self._said("closed"):
            raise TargetError(why)
        while self._said("shut"):
            (self._place / "knocked").touch()
            await asyncio.sleep(0.02)
        self._opened = True
        await super().open()

    async def verify(self, job: Job) -> None:
        with open(self._place / "asked", "a") as file:
            file.write(f"{job.title}\n")
        while self._said("slow"):  # noqa: ASYNC110 - a file of the test
            await asyncio.sleep(0.02)
        if why := self._said("refuse"):
            raise TargetError(why, Outcome.REFUSED)
        if why := self._said("broken"):
            raise TargetError(why)

    async def examine(self) -> list[Diagnostic]:
        if why := self._said("closed"):
            raise ConnectionError(why)
        return [
            Diagnostic(
                DiagnosticLevel.WARNING, "the door", "it \x1b[31mcreaks\nloudly", "kind: Oil\nmetadata:\n  name: hinge"
            )
        ]

    async def submit(self, job: Job, secrets: Mapping[str, str]) -> str:
        self._enter()
        return await super().submit(job, secrets)

    async def adopt(self, handle: str) -> None:
        self._enter()
        await super().adopt(handle)

    async def cancel(self, handle: str) -> None:
        self._enter()
        await super().cancel(handle)

    async def fetch(self, handle: str, path: str, into: Path) -> bool:
        if why := self._said("lost"):
            raise TargetLost(why)
        return await super().fetch(handle, path, into)

    async def list(self, run: str | None = None) -> list[Found]:
        assert self._opened
        if why := self._said("closed"):
            raise TargetError(why)
        in_use = bool(self._said("holder"))
        return [msgspec.structs.replace(found, in_use=in_use) for found in await super().list(run)]


class FarKind:
    name = "far"
    options = FarOptions
    one_machine = False

    def is_available(self) -> bool:
        return False

    def open(self, name: str, options: FarOptions) -> FarTarget:
        return FarTarget(name, options)


kind = FarKind()
