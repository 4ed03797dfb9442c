"""A log keeps its ends within its bound, and who reads it can tell what is missing."""

import os
from pathlib import Path

import pytest

from seatrial.agent.run import log as agent_log
from seatrial.agent.run.log import HEAD_BYTES, SEGMENT_BYTES, SEGMENTS, Log
from seatrial.targets import job_files as reading


def joined(folder: Path) -> bytes:
    return b"".join(reading.LogReader(folder).blocks())


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_reader_and_writer_agree_on_the_form() -> None:
    assert reading.SEGMENT_BYTES == agent_log.SEGMENT_BYTES
    assert reading.LOG_NAME == agent_log.LOG_NAME


@pytest.mark.parametrize("size", [0, 1, HEAD_BYTES, HEAD_BYTES + 1, HEAD_BYTES + SEGMENT_BYTES * (SEGMENTS + 1)])
def test_a_log_within_the_bound_is_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    log = Log(str(tmp_path))
    for start in range(0, size, 300_007):
        log.write(data[start : start + 300_007])
    log.close()
    assert joined(tmp_path) == data
    assert (log.total_bytes, log.omitted_bytes) == (size, 0)


def test_a_log_beyond_the_bound_keeps_both_ends_and_says_how_much_is_missing(tmp_path: Path) -> None:
    block = b"".join(b"%07d\n" % number for number in range(1 << 17))
    log = Log(str(tmp_path))
    for _ in range(40):
        log.write(block)
        assert on_disk(tmp_path) <= 12 << 20
    log.close()
    whole = joined(tmp_path)
    note = b"\n[seatrial: %d bytes left out here]\n" % log.omitted_bytes
    assert note in whole
    assert whole.startswith(block * 4)
    assert whole.endswith(block * 4)
    assert len(whole) - len(note) + log.omitted_bytes == log.total_bytes == 40 << 20


def test_a_follower_that_is_too_slow_hears_what_it_missed(tmp_path: Path) -> None:
    log, reader = Log(str(tmp_path)), reading.LogReader(tmp_path)
    log.write(b"a" * (HEAD_BYTES + SEGMENT_BYTES // 2))
    first = b"".join(reader.blocks())
    log.write(b"z" * (SEGMENT_BYTES * 20))
    rest = b"".join(reader.blocks())
    log.close()
    told = int(rest.split(b"[seatrial: ")[1].split()[0])
    assert len(first) + told + rest.count(b"z") == log.total_bytes


def test_a_disk_that_takes_no_more_stops_the_log_and_nothing_else(tmp_path: Path) -> None:
    log = Log(str(tmp_path))
    log.write(b"before")
    tmp_path.joinpath("log.txt.1").mkdir()
    log.write(b"x" * (HEAD_BYTES + 100))
    log.write(b"y" * 100)
    assert "the log is incomplete" in log.error
    assert log.omitted_bytes == log.total_bytes - HEAD_BYTES
