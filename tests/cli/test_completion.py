"""A real bash completes what stands before and after `=`, where it splits words."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 60


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("plan --select machine=b", "plan --select machine=big "),
        ("plan --select=machine=b", "plan --select=machine=big "),
        ('plan --select "machine=b', 'plan --select "machine=big" '),
        ("plan other.yaml --select ca", "plan other.yaml --select cases["),
        ("run --tag sm", "run --tag smoke "),
        ("check x --suite other.yaml --trial ca", "check x --suite other.yaml --trial cases "),
        ("init serv", "init serving "),
        ("compare la", "compare last "),
    ],
)
def test_bash_completes_the_word(tmp_path: Path, typed: str, completed: str) -> None:
    for name, trial in (("seatrial.yaml", "t"), ("other.yaml", "cases")):
        entry = f"{trial}: {{kind: runtime, machine: all, run: [ls], tags: [smoke]}}"
        (tmp_path / name).write_text(f"machines: {{big: {{}}, cpu: {{}}}}\ntrials:\n  {entry}\n")
    (tmp_path / "rc").write_text(
        'PS1="ready> "\nbind "set bell-style none"\neval "$(_SEATRIAL_COMPLETE=bash_source seatrial)"\n'
    )
    search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    keyboard, terminal = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--rcfile", "rc", "-i"],
        cwd=tmp_path,
        env={**os.environ, "PATH": search, "HOME": str(tmp_path), "TERM": "dumb"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        read_until(keyboard, "ready> ")
        os.write(keyboard, f"seatrial {typed}\t".encode())
        read_until(keyboard, f"seatrial {completed}")
    finally:
        shell.kill()
        shell.wait()
        os.close(keyboard)


def read_until(keyboard: int, wanted: str) -> None:
    seen, until_s = "", time.monotonic() + PATIENCE_S
    while wanted not in seen:
        assert select.select([keyboard], [], [], max(0.0, until_s - time.monotonic()))[0], seen
        seen += os.read(keyboard, 4096).decode()
