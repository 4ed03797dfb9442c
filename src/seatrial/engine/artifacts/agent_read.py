"""Lets the agent read logs and files of this machine, in a process of its own: what it reads may be hostile."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from seatrial.job import Exit, Outcome
from seatrial.targets.agent_file import agent_file

READ_S = 1800.0
_MEMORY_BYTES = 4 << 30


def read_as_agent(spec: dict[str, Any]) -> tuple[list[bytes], Exit]:
    """The agent's records, and how it ended itself: a file that it dies of is told, not raised."""
    with tempfile.TemporaryDirectory(prefix="seatrial-check-") as scratch:
        agent = agent_file(Path(scratch))
        process = subprocess.Popen(
            [sys.executable, "-I", str(agent), "read"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            asked = {**spec, "memory_bytes": _MEMORY_BYTES, "seconds": READ_S}
            out, err = process.communicate(json.dumps(asked).encode(), timeout=READ_S + 30)
        except subprocess.TimeoutExpired:
            out, err = _end(process)
            return out.splitlines(), Exit(Outcome.TIMEOUT, message=f"reading took more than {READ_S:g} s")
        except BaseException:
            _end(process)
            raise
    if process.returncode == 0:
        return out.splitlines(), Exit(Outcome.EXITED, 0)
    message = err.decode("utf-8", "replace").strip()[-2000:] or "the reader of logs and files died"
    if process.returncode < 0:
        return out.splitlines(), Exit(Outcome.INFRA, signal=-process.returncode, message=message)
    return out.splitlines(), Exit(Outcome.INFRA, process.returncode, message=message)


def _end(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()
