"""Real model servers for tests: llama.cpp from the wheel xllamacpp, as the example starts it."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "serving"
SERVER = EXAMPLE / "server"
CASES = EXAMPLE / "cases.yaml"


def model(precision: str) -> Path:
    return SERVER / "model" / f"tiny-{precision}.gguf"


def command(precision: str = "f32") -> str:
    """That starts it as a part of a trial; the precision may be a placeholder."""
    return f"exec {sys.executable} {SERVER}/serve.py {model(precision)}"


def free_port() -> int:
    """Not one of those that the kernel gives to others who ask for any, of which some do before it is used."""
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(20_000, highest)))
            return port


@contextmanager
def started(*argv: str, **env: str) -> Iterator[int]:
    """The port of a server that says when it is listening, while it runs."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *argv],
        env={**os.environ, "SEATRIAL_PORT": str(port), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@contextmanager
def llama(precision: str = "f32", **env: str) -> Iterator[str]:
    """Its address, while it runs."""
    with started(str(SERVER / "serve.py"), str(model(precision)), **env) as port:
        yield f"http://127.0.0.1:{port}"
