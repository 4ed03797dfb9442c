"""One owner at a time, and one that is gone does not stand in the way."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from seatrial.record import Ownership, RunOwned, owner_of

HOLD = """
import sys
import tempfile
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
    Ownership.take(tmp_path).close()


def test_the_same_pid_with_another_start_is_another_process(tmp_path: Path) -> None:
    ownership = Ownership.take(tmp_path)
    me = owner_of(tmp_path)
    assert me is not None
    assert me.alive()
    assert me.pid == os.getpid()
    assert not msgspec.structs.replace(me, start=me.start + 1).alive()
    assert not msgspec.structs.replace(me, boot="another").alive()
    ownership.close()
    assert owner_of(tmp_path) is None


HIDDEN = """
import ctypes, os, sys
from pathlib import Path
from seatrial.record import is_owned, owner_of
libc = ctypes.CDLL(None, use_errno=True)
new_mounts, private_all, nothing = 0x20000, 0x44000, ctypes.c_char_p(None)
own = libc.unshare(new_mounts) == 0 and libc.mount(b"none", b"/", nothing, private_all, nothing) == 0
if not own or libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"):
    sys.exit(77)
os.setgroups([])
os.setgid(50_001)
os.setuid(50_001)
folder = Path(sys.argv[1])
owner = owner_of(folder)
print(Path(f"/proc/{owner.pid}").exists(), owner.alive(), is_owned(folder), flush=True)
sys.stdin.readline()
print(is_owned(folder))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount /proc and become another user")
def test_an_owner_that_proc_hides_from_other_users_is_found_by_its_lock() -> None:
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (5, 8):
        pytest.skip("this kernel has one hidepid for all mounts of /proc")
    with tempfile.TemporaryDirectory(prefix="seatrial-shared-") as name:  # pytest's own folders are for root alone
        os.chmod(name, 0o755)
        owning = holder(Path(name))
        argv = [sys.executable, "-c", HIDDEN, name]
        asking = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert asking.stdin
        assert asking.stdout
        try:
            first = asking.stdout.readline()
            if not first and asking.wait() == 77:
                pytest.skip("/proc cannot be mounted here")
            assert first == "False False True\n"
            # Its lock is free, and its pid belongs to another process that is hidden, too: this test.
            lock = Path(name, "lock")
            me = msgspec.structs.replace(owner_of(Path(name)), pid=os.getpid())
            owning.kill()
            owning.communicate()
            lock.write_bytes(msgspec.json.encode(me))
            assert asking.communicate("go on\n")[0] == "False\n"
        finally:
            for process in (owning, asking):
                process.kill()
                process.communicate()
