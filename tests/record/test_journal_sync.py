"""Once a sync has failed nobody is told that a line is on the disk: the system reports such an error once, and drops
what it could not write."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from seatrial.record import Journal, RecordError
from seatrial.record.journal import read_journal

WAIT_S = 60.0


@pytest.mark.parametrize("waiters", [1, 3])
async def test_whoever_waits_for_a_sync_that_fails_sees_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiters: int
) -> None:
    syncs = 0
    all_wait = threading.Event()
    real = os.fdatasync

    def failing_once(file: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == 1:
            assert all_wait.wait(WAIT_S)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(file)

    monkeypatch.setattr(os, "fdatasync", failing_once)
    path = tmp_path / "j"
    journal = Journal(path)
    first = asyncio.create_task(journal.write("first", durable=True))
    while syncs == 0:  # noqa: ASYNC110 - in another thread
        await asyncio.sleep(0)
    others = [asyncio.create_task(journal.write("other", durable=True)) for _ in range(waiters)]
    while len(read_journal(path)[0]) < 1 + waiters:  # noqa: ASYNC110 - each is written before it waits
        await asyncio.sleep(0)
    all_wait.set()
    outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    journal.close()
    assert [type(outcome) for outcome in outcomes] == [RecordError] * (1 + waiters)
    assert all("Input/output error" in str(outcome) for outcome in outcomes)
