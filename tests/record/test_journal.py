"""The journal: what is written is read again, what is torn is dropped, what is damaged is named."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from seatrial.record import Journal, RecordError
from seatrial.record.journal import read_journal


async def written(path: Path, count: int = 3) -> None:
    journal = Journal(path)
    for number in range(count):
        await journal.write("thing", durable=number == 1, number=number, text='with "quotes"\n and é')
    journal.close()


async def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    await written(tmp_path / "j")
    entries, size = read_journal(tmp_path / "j")
    assert [(entry["n"], entry["event"], entry["number"]) for entry in entries] == [(i, "thing", i) for i in range(3)]
    assert entries[0]["text"] == 'with "quotes"\n and é'
    assert size == (tmp_path / "j").stat().st_size


async def test_each_torn_tail_is_dropped_and_writing_goes_on(tmp_path: Path) -> None:
    await written(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole)):
        path = tmp_path / "torn"
        path.write_bytes(whole[:cut])
        journal = Journal(path)
        assert len(journal.past) == 2, cut
        await journal.write("after")
        journal.close()
        assert [entry["event"] for entry in read_journal(path)[0]] == ["thing", "thing", "after"]


async def test_a_tail_of_garbage_or_of_zeros_is_dropped(tmp_path: Path) -> None:
    for tail in (b"\0" * 4096, b'{"n":3,"event":"forged"}\n', os.urandom(64).replace(b"\n", b"")):
        path = tmp_path / "j"
        path.unlink(missing_ok=True)
        await written(path)
        with path.open("ab") as file:
            file.write(tail)
        assert len(Journal(path).past) == 3


async def test_damage_before_the_last_line_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    await written(tmp_path / "j")
    data = bytearray((tmp_path / "j").read_bytes())
    second = data.find(b"\n") + 1
    data[second + 30] ^= 1
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(RecordError, match=r"j:2: damaged line"):
        Journal(tmp_path / "j")


async def test_a_lost_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    await written(tmp_path / "j")
    lines = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    (tmp_path / "j").write_bytes(lines[0] + lines[2] + lines[2])
    with pytest.raises(RecordError, match=":2:"):
        Journal(tmp_path / "j")


async def test_a_full_disk_is_an_error_and_leaves_a_sound_journal(tmp_path: Path) -> None:
    def full(point: str) -> None:
        if point == "before second":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = Journal(tmp_path / "j", full)
    await journal.write("first")
    with pytest.raises(RecordError, match="No space left"):
        await journal.write("second")
    with pytest.raises(RecordError, match="No space left"):
        await journal.write("third")
    journal.close()
    assert [entry["event"] for entry in read_journal(tmp_path / "j")[0]] == ["first"]


async def test_many_durable_writers_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real = os.fdatasync

    def counted(file: int) -> None:
        nonlocal syncs
        syncs += 1
        real(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    journal = Journal(tmp_path / "j")
    await asyncio.gather(*(journal.write("one", durable=True, number=number) for number in range(100)))
    journal.close()
    assert len(read_journal(tmp_path / "j")[0]) == 100
    assert 1 <= syncs <= 10
