"""This side of the agent's zygote: asks it to start supervisors, one line a request, one line an answer."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from seatrial.job import Unreadable, decode
from seatrial.target.protocol import TargetError

_ANSWER_S = 60.0


class Zygote:
    """One process for each Seatrial process, started when first needed and again when it was lost."""

    def __init__(self, agent: Path) -> None:
        self._agent = agent
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}  # for this very process
        self._starting = asyncio.Lock()
        self._count = 0

    async def spawn(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer, as `agent/start/zygote.py` describes it. Raises TargetError when there was none."""
        process = await self._running()
        assert process.stdin is not None
        self._count += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        waiting[number := self._count] = answer
        try:
            process.stdin.write(msgspec.json.encode({"id": number, "job": job}) + b"\n")
            await process.stdin.drain()
            return await asyncio.wait_for(answer, _ANSWER_S)
        except (ConnectionError, TimeoutError) as error:
            raise TargetError(f"the local supervisor did not answer: {error or 'time ran out'}") from error
        finally:
            waiting.pop(number, None)

    async def close(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()
        if self._reading is not None:
            await self._reading
        self._process = None

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None and not (
                self._reading is None or self._reading.done()
            ):  # fmt: skip
                return self._process
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", self._agent, "spawn",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                    start_new_session=True,  # Ctrl-C is for Seatrial, which decides what becomes of its jobs
                )  # fmt: skip
            except OSError as error:
                raise TargetError(f"cannot start the local supervisor with {sys.executable}: {error}") from error
            self._waiting = {}
            self._reading = asyncio.create_task(self._read(self._process, self._waiting))
            return self._process

    async def _read(
        self, process: asyncio.subprocess.Process, waiting: dict[int, asyncio.Future[dict[str, Any]]]
    ) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            try:
                answer = decode(line, dict[str, Any])
            except Unreadable:  # of no request that is known: the one that waits for it says that it had no answer
                continue
            asked = waiting.get(answer.get("id", 0))
            if asked is not None and not asked.done():
                asked.set_result(answer)
        await process.wait()
        for asked in waiting.values():
            if not asked.done():
                asked.set_exception(TargetError(f"the local zygote ended with code {process.returncode}"))
