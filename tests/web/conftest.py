"""Runs as an engine leaves them, and a dashboard that serves them on a port of this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from seatrial.checks import find_causes
from seatrial.job import AttemptResult, CellResult, Exit, Finding, Outcome, Place, RunResults, Stage, StageTime, Verdict
from seatrial.record import Journal, RunFolder, write_whole
from seatrial.record.folder import summed_plan
from seatrial.record.history import open_history
from seatrial.web.access import WebAccess
from seatrial.web.application import Dashboard
from seatrial.web.catalogue import ProposedChange, Site

MODES = ("a", "b", "c")


def cell_result(
    trial: str, number: int, verdict: Verdict = Verdict.PASSED, value: float = 2.0, at_s: float = 1_700_000_000.0
) -> CellResult:
    why = "" if verdict.good else "RuntimeError: CUDA out of memory"
    started = [StageTime(Stage.STARTED, at_s + number, "agent")]
    attempt = AttemptResult(
        1, Place("here", "small", "node-1"), started, Exit(Outcome.EXITED, 0), verdict, why, why, seconds=3.0
    )
    mode = MODES[number % 3]
    return CellResult(
        f"{trial}[mode={mode},n={number}]",
        f"{number:08x}",
        {"mode": mode, "n": str(number)},
        verdict,
        trial=trial,
        kind="training",
        why=why,
        attempts=[attempt],
        findings=[Finding("run train", "run", verdict, message=why or "exit code 0", evidence=why)],
        metrics={"step_time": {"value": value, "unit": "s", "better": "lower", "source": "log"}},
        benchmark=f"{trial}[mode={mode},n={number}]",
        fingerprint="f00d0000",
    )


def results(run: str, cells: list[CellResult], at_s: float = 1_700_000_000.0, suite: str = "nightly") -> RunResults:
    verdict = Verdict.PASSED if all(cell.verdict.good for cell in cells) else Verdict.FAILED
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.verdict.value] = counts.get(cell.verdict.value, 0) + 1
    return RunResults(
        1,
        run,
        suite,
        verdict,
        cells,
        suite_path="suite.yaml",
        started_s=at_s,
        seconds=60.0,
        counts=counts,
        commit="c0ffee",
    )


def write_plan(runs: Path, run: str, cells: list[CellResult]) -> RunFolder:
    folder = RunFolder(runs / run)
    planned = [{"id": one.id, "hash": one.hash, "axes": one.axes, "trial": one.trial} for one in cells]
    write_whole(folder.plan, summed_plan({"seatrial": "0.2.0", "cells": planned, "holes": []}), sync=False)
    return folder


async def write_journal(folder: RunFolder, cells: list[CellResult], finished: bool = True) -> None:
    """Every cell queued, then run, then judged; one that failed is tried twice."""
    journal = Journal(folder.journal)
    await journal.write("run", version=3, run=folder.run, cells=len(cells), seatrial="0.2.0")
    for cell in cells:
        for attempt in (1,) if cell.verdict.good else (1, 2):
            named = {"cell": cell.hash, "attempt": attempt}
            await journal.write("planned", **named, id=cell.id, host="vm", parts={"job": "here"})
            for event in ("submitted", "started", "ended", "collected", "removed"):
                await journal.write(event, **named, part="job")
            again = "retrying" if attempt == 1 and not cell.verdict.good else ""
            await journal.write("judged", **named, verdict=cell.verdict, why=cell.why, again=again)
    if finished:
        await journal.write("finished", verdict="failed")
    journal.close()


def write_results(folder: RunFolder, found: RunResults, log: str = "the end of the log\n") -> None:
    folder.results.write_bytes(msgspec.json.encode(found))
    for cell in found.cells:
        for attempt in cell.attempts:
            place = folder.attempt(cell.hash, attempt.number)
            place.mkdir(parents=True, exist_ok=True)
            (place / "log.txt").write_text(log)


async def finished_run(runs: Path, run: str, cells: list[CellResult], at_s: float = 1_700_000_000.0) -> RunFolder:
    folder = write_plan(runs, run, cells)
    await write_journal(folder, cells)
    found = results(run, cells, at_s)
    write_results(folder, found)
    open_history(runs / "history.db").add(found)
    return folder


@dataclass
class Answer:
    status: int
    text: str
    headers: Any


@dataclass
class Client:
    port: int
    session: aiohttp.ClientSession
    dashboard: Dashboard

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def get(self, path: str, method: str = "GET", **options: Any) -> Answer:
        import yarl

        url = yarl.URL(f"{self.address}{path}", encoded=True)
        async with self.session.request(method, url, **options) as answer:
            return Answer(answer.status, await answer.text(errors="replace"), answer.headers)


Served = Callable[..., Any]


@asynccontextmanager
async def serving(
    runs: Path, token: str = "", recenter: Callable[..., ProposedChange | None] | None = None, **options: Any
) -> AsyncIterator[Client]:
    options |= {"recenter": recenter} if recenter else {}
    site = Site(runs, open_history(runs / "history.db"), find_causes=find_causes, **options)
    dashboard = Dashboard(site, WebAccess.of("127.0.0.1", token))
    runner = web.AppRunner(dashboard.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        async with aiohttp.ClientSession() as session:
            yield Client(runner.addresses[0][1], session, dashboard)
    finally:
        await runner.cleanup()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
async def client(runs: Path) -> AsyncIterator[Client]:
    """Of two finished runs of six cells, the second with a cell that failed."""
    await finished_run(runs, "nightly-1", [cell_result("train", n) for n in range(6)])
    worse = [cell_result("train", n, Verdict.FAILED if n == 4 else Verdict.PASSED, 2.0 + n) for n in range(6)]
    await finished_run(runs, "nightly-2", worse, at_s=1_700_086_400.0)
    async with serving(runs) as found:
        yield found


Wait = Callable[[], Awaitable[None]]
