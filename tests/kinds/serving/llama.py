"""Real model servers for tests: llama.cpp from the wheel xllamacpp, as the example starts it; llama-cpp-python."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EVERY = bool(os.environ.get("SEATRIAL_TEST_ALL"))
EXAMPLE = ROOT / "examples" / "serving"
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
def started(*argv: str, python: str | Path = sys.executable, **env: str) -> Iterator[int]:
    """The port of a server that says when it is listening, while it runs."""
    port = free_port()
    process = subprocess.Popen(
        [python, *argv],
        env={**os.environ, "SEATRIAL_PORT": str(port), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert any("listening" in line for line in process.stdout)
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@contextmanager
def llama(precision: str = "f32", **env: str) -> Iterator[str]:
    """Its address, while it runs."""
    with started(str(SERVER / "serve.py"), str(model(precision)), **env) as port:
        yield f"http://127.0.0.1:{port}"


LLAMA_CPP_PYTHON = """
import os, sys, uvicorn
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings
model = ModelSettings(model=sys.argv[1], model_alias="tiny", n_ctx=512, n_threads=1, verbose=False)
app = create_app(server_settings=ServerSettings(interrupt_requests=False), model_settings=[model])
print("listening soon", flush=True)
uvicorn.run(app, port=int(os.environ["SEATRIAL_PORT"]), log_level="error")
"""


def llama_cpp_python() -> Path:
    """The Python of an environment with llama-cpp-python, which has to be compiled: ten minutes."""
    python = ROOT / ".cache" / "llama-cpp-python" / "bin" / "python"
    if not EVERY and not python.exists():
        pytest.skip("llama-cpp-python has to be compiled: ten minutes, with SEATRIAL_TEST_ALL=1")
    if not python.exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, python.parents[1]], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", python, "llama-cpp-python[server]==0.3.36"]
        options = "-DGGML_NATIVE=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAVA_BUILD=OFF -DGGML_OPENMP=OFF"
        if subprocess.run(install, env={**os.environ, "CMAKE_ARGS": options}, check=False).returncode:
            shutil.rmtree(python.parents[1])
            pytest.skip("llama-cpp-python cannot be compiled here")
    return python
