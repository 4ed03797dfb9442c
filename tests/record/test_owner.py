"""One owner at a time, and one that is gone does not stand in the way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from seatrial.record import Ownership, RunOwned, owner_of

HOLD = """
import sys
from pathlib import Path
from seatrial.record import Ownership
ownership = Ownership.take(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()  # until it is killed, or whoever started it is gone
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "taken\n"
    return process


def test_a_second_owner_is_refused_with_who_and_since_when(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(RunOwned, match=rf"process {process.pid} on .* \(since 20") as refused:
            Ownership.take(tmp_path)
        assert refused.value.owner is not None
        assert refused.value.owner.alive()
    finally:
        process.kill()
        process.communicate()


def test_an_owner_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    gone = owner_of(tmp_path)
    assert gone is not None
    assert not gone.alive()
    Ownership.take(tmp_path).release()


def test_the_same_pid_with_another_start_is_another_process(tmp_path: Path) -> None:
    ownership = Ownership.take(tmp_path)
    me = owner_of(tmp_path)
    assert me is not None
    assert me.alive()
    assert me.pid == os.getpid()
    assert not msgspec.structs.replace(me, start=me.start + 1).alive()
    assert not msgspec.structs.replace(me, boot="another").alive()
    ownership.release()
    assert owner_of(tmp_path) is None
