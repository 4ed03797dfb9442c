"""Runs that go on: pages keep themselves up to date from the journal, whoever writes it and wherever they were cut."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from seatrial.job import CellResult, Verdict
from seatrial.record import Ownership, RunFolder
from seatrial.record.history import open_history
from seatrial.record.live import run_overview
from seatrial.report.terminal.live import Board
from seatrial.web.catalogue import Site
from seatrial.web.events import run_events
from seatrial.web.follow import Followers
from web.conftest import Client, cell_result, serving, write_journal, write_plan
from web.month import Month

CELLS = [cell_result("train", n, Verdict.FAILED if n == 2 else Verdict.PASSED) for n in range(4)]
Event = tuple[int, str, dict[str, str]]


async def lines_of(runs: Path, cells: list[CellResult]) -> tuple[RunFolder, list[bytes]]:
    """A run that somebody works on, without a line in its journal yet; and the lines to come, the last ends it."""
    folder = write_plan(runs, "nightly-1", cells)
    await write_journal(folder, cells)
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.unlink()
    return folder, lines


@pytest.fixture
def owned(runs: Path) -> Path:
    """The folder of a run that this process works on."""
    (runs / "nightly-1").mkdir()
    Ownership.take(runs / "nightly-1")
    return runs


@asynccontextmanager
async def events(
    client: Client, last: int | None = None, after: int | None = None
) -> AsyncIterator[AsyncIterator[Event]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    query = "" if after is None else f"?after={after}"
    patience = aiohttp.ClientTimeout(total=None)
    async with client.session.get(
        f"{client.address}/r/nightly-1/events{query}", headers=headers, timeout=patience
    ) as answer:
        assert answer.status == 200, await answer.text()
        yield _read(answer)


async def _read(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield int(fields["id"]), fields["event"], json.loads(fields["data"])
            fields = {}


# What follows each part that has other elements of its kind in it.
ENDS = {"head": "<p ", "why": '<div data-part="running"', "running": "</div>", "lists": "<p "}


def apply(page: str, parts: dict[str, str]) -> str:
    """As the script of the page does it."""
    for name, html in parts.items():
        pattern = rf'(<(\w+)[^>]*data-part="{re.escape(name)}"[^>]*>).*?(</\2>)'
        if name in ENDS:
            pattern = rf'(<(div) data-part="{name}">).*?(</div>\n{ENDS[name]})'
        made = "{1}" if name.startswith("c-") else "{0[1]}{1}{0[3]}"
        page, number = re.subn(pattern, lambda one: made.format(one, html), page, count=1, flags=re.DOTALL)  # noqa: B023
        assert number == 1, name
    return page


def without_line(page: str) -> str:
    return re.sub(r'data-line="-?\d+"', "", page)


def append(folder: RunFolder, data: bytes) -> None:
    with folder.journal.open("ab") as file:
        file.write(data)


async def test_events_cut_at_every_line_give_the_same_page(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    last = len(lines) - 2  # the last but one: the page of a run that is finished is its report
    async with serving(owned) as client:
        shown = (await client.get("/r/nightly-1")).text
        seen = None
        for number, line in enumerate(lines[:-1]):
            append(folder, line)
            async with events(client, last=seen, after=-1) as stream:
                found, kind, parts = await anext(stream)
            assert (found, kind) == (number, "parts")
            shown, seen = apply(shown, parts), found
        whole = (await client.get("/r/nightly-1")).text
        assert f'data-line="{last}"' in whole
        assert without_line(shown) == without_line(whole)


async def test_a_page_of_any_line_is_brought_to_the_last_one(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    pages = []
    async with serving(owned) as client:
        for line in lines[:-1]:
            append(folder, line)
            pages.append((await client.get("/r/nightly-1")).text)
        for number, page in enumerate(pages[:-1]):
            async with events(client, after=number) as stream:
                found, _, parts = await anext(stream)
            assert found == len(lines) - 2
            assert without_line(apply(page, parts)) == without_line(pages[-1]), f"cut after line {number}"


async def test_lines_that_come_while_an_event_is_sent_are_sent_next(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    append(folder, lines[0])
    followers = Followers()
    async with contextlib.aclosing(
        run_events(Site(owned, open_history(owned / "history.db")), followers, folder, -1)
    ) as stream:
        assert b"id: 0\n" in await anext(stream)
        append(folder, lines[1])
        async with followers.follow(folder):  # another client, for which the line is read
            pass
        assert b"id: 1\n" in await anext(stream)


async def test_a_line_that_is_not_whole_yet_is_waited_for(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    append(folder, lines[0] + lines[1][:20])
    async with serving(owned) as client, events(client) as stream:
        assert (await anext(stream))[0] == 0
        append(folder, lines[1][20:])
        assert (await anext(stream))[0] == 1


async def test_a_journal_that_is_not_there_yet_is_waited_for(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    async with serving(owned) as client, events(client, after=-1) as stream:
        first = asyncio.ensure_future(anext(stream))
        await client.get("/r/nightly-1")
        append(folder, lines[0])
        assert (await first)[:2] == (0, "parts")


async def test_a_journal_that_was_replaced_makes_pages_begin_again(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    append(folder, b"".join(lines[:9]))
    async with serving(owned) as client, events(client) as stream:
        assert (await anext(stream))[0] == 8
        fresh = folder.path / "journal.new"
        fresh.write_bytes(b"".join(lines[:3]))
        fresh.rename(folder.journal)
        assert (await anext(stream))[1] == "reload"
        async with events(client, last=8) as later:
            assert (await anext(later))[1] == "reload", "a line that there is not any more"


async def test_a_damaged_line_is_said_to_who_follows(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    append(folder, lines[0])
    async with serving(owned) as client, events(client) as stream:
        await anext(stream)
        append(folder, lines[1].replace(b"planned", b"plenned") + lines[2])
        _, kind, parts = await anext(stream)
        assert kind == "parts"
        assert "journal.jsonl:2: damaged line" in parts["head"]


async def test_the_end_of_a_run_makes_its_page_the_report(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    append(folder, b"".join(lines[:-1]))
    async with serving(owned) as client, events(client) as stream:
        await anext(stream)
        append(folder, lines[-1])
        assert [kind async for _, kind, _ in stream] == ["parts", "reload"]


async def test_a_failing_cell_counts_while_it_is_tried_again(owned: Path) -> None:
    folder, lines = await lines_of(owned, CELLS)
    failed = next(number for number, line in enumerate(lines) if b'"verdict":"failed"' in line)
    append(folder, b"".join(lines[: failed + 1]))
    assert run_overview(folder).done == 2
    async with serving(owned) as client:
        page = (await client.get("/r/nightly-1")).text
        home = (await client.get("/")).text
    assert "2 of 4 cells done: 1 to retry" in page
    assert ", 1 to retry</span>" in page
    assert ", 1 to retry</span>" in home
    assert "retrying" in page
    assert "CUDA out of memory" in page


async def test_many_clients_have_one_reader_which_ends_with_the_last(owned: Path) -> None:
    folder, lines = await lines_of(owned, [cell_result("train", n) for n in range(400)])
    append(folder, lines[0])
    async with serving(owned) as client:
        async with events(client) as one, events(client) as two, events(client) as three:
            for stream in (one, two, three):
                assert (await anext(stream))[0] == 0
            assert client.dashboard.followers.readers == 1
            append(folder, lines[1])
            assert [(await anext(stream))[0] for stream in (one, two, three)] == [1, 1, 1]
        for line in lines[2:-1]:  # their connections are found closed when they are written to
            append(folder, line)
            await asyncio.sleep(0.05)
            if not client.dashboard.followers.readers:
                return
    raise AssertionError("it still reads, and nobody is there")


async def test_who_does_not_read_stops_nobody(owned: Path) -> None:
    folder, lines = await lines_of(owned, [cell_result("train", n) for n in range(400)])
    async with serving(owned) as client:
        stuck = [await asyncio.open_connection("127.0.0.1", client.port, limit=1) for _ in range(20)]
        for _, writer in stuck:
            writer.write(b"GET /r/nightly-1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with events(client) as stream:
            for number in range(100, 500, 100):
                append(folder, b"".join(lines[number - 100 : number]))
                while (await anext(stream))[0] < number - 1:
                    pass
        assert (await client.get("/")).status == 200
        for _, writer in stuck:
            writer.close()


async def test_the_first_page_is_told_of_runs_of_other_processes(owned: Path) -> None:
    async with serving(owned) as client, client.session.get(f"{client.address}/events") as answer:
        stream = _read(answer)
        _, _, parts = await anext(stream)
        assert "No runs in progress." in parts["now"]
        folder, lines = await lines_of(owned, CELLS)
        append(folder, b"".join(lines[:2]))
        async for _, _, parts in stream:
            if "0 of 4 done" in parts.get("now", ""):
                break


async def test_page_journal_and_terminal_count_alike(runs: Path) -> None:
    folder = Month(runs).in_progress()
    last: dict[str, dict[str, object]] = {}
    for line in folder.journal.read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] == "judged":
            last[entry["cell"]] = entry
    over = [entry for entry in last.values() if not entry["again"]]
    failed = sum(entry["verdict"] != "passed" for entry in over)
    said = f"{len(over)} of 299 cells done: {failed} failed, {len(last) - len(over)} to retry"
    plan = folder.read_plan()
    board = Board(plan.cells)
    for entry in last.values():
        id_ = next(cell.id for cell in plan.cells if cell.hash == entry["cell"])
        board.update(id_, str(entry["again"] or entry["verdict"]))
    shown = "".join(text for line in board.lines(200, 40) for text, _ in line)
    assert f"{len(over)}/299 done" in shown
    assert f"{len(last) - len(over)} failed, retrying" in shown
    async with serving(runs) as client:
        page = (await client.get(f"/r/{folder.run}")).text
        home = (await client.get("/")).text
    assert said in page
    assert "14 in one place: torch-2.9-cu130 · A100-40x1" in re.sub(r"\s+", " ", page)
    assert f"{len(over)} of 299 done" in home
