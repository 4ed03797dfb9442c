"""What all targets give to a job: the agent, packed into one zipapp, once per content; the fields of its job file; and
variables."""

import contextlib
import hashlib
import io
import marshal
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from seatrial.job import Job
from seatrial.readers import reader_of

MAIN = b"import sys\nfrom seatrial_agent.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"
_INSTALLED = "seatrial_agent/readers/installed"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def agent_file(place: Path, compiled: bool = False) -> Path:
    """The zipapp below `place`, made if it is missing or damaged: its name has a hash of its sources and one of its
    bytes. `compiled`: with bytecode for this Python, which halves the CPU time of a start. Raises OSError."""
    digest = hashlib.sha256(MAGIC_NUMBER if compiled else b"")
    for name, data in _sources().items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
    made_of = f"agent-{digest.hexdigest()[:16]}"
    for path in place.glob(f"{made_of}-*.pyz"):
        with contextlib.suppress(OSError):
            if path.name == _name(made_of, path.read_bytes()):
                return path
    data = agent_bytes(compiled)
    path = place / _name(made_of, data)
    place.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, 0o644)  # a container may run it as another user
    return path


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces a file atomically: readers see the old content, the new one or none, also after a power loss."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, mode)
        os.rename(partial, path)
    except OSError:
        os.unlink(partial)
        raise


def agent_job(job: Job) -> dict[str, object]:
    """The first fields of the agent's job file (`agent/job_file.py`), the same on every target."""
    steps = [{"name": one.name, "kind": one.kind, "args": one.args, "timeout_s": one.timeout_s} for one in job.steps]
    limits = {"run_s": job.limits.run_s, "stall_s": job.limits.stall_s, "grace_s": job.limits.grace_s}
    return {"version": 1, "name": job.name, "steps": steps, "limits": limits}


def job_variables(job: Job, ports: Mapping[str, int]) -> dict[str, str]:
    """Variables that mark the job's processes, so that leftovers are found, and tell them their ports by name."""
    own = {"RUN": job.run, "CELL": job.cell, "ATTEMPT": str(job.attempt), "JOB": job.name}
    own |= {f"PORT_{name.upper().replace('-', '_')}": str(number) for name, number in ports.items()}
    own |= {"PORT": str(next(iter(ports.values())))} if ports else {}
    return {f"SEATRIAL_{name}": value for name, value in own.items()}


def _name(made_of: str, data: bytes) -> str:
    return f"{made_of}-{hashlib.sha256(data).hexdigest()[:16]}.pyz"


@cache
def agent_bytes(compiled: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _sources().items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            if compiled and name.endswith(".py"):
                with contextlib.suppress(SyntaxError):  # an installed reader, reported when a suite names it
                    archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _bytecode(name, data), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _bytecode(name: str, source: bytes) -> bytes:
    """A .pyc that is not compared with its source; a Python of another version ignores it."""
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(source) + marshal.dumps(code)


@cache
def _sources() -> dict[str, bytes]:
    """Sources of the agent and of installed readers. A reader that cannot be loaded is left out, so that only suites
    that name it fail."""
    from importlib.metadata import entry_points

    found = dict(_sources_below(files("seatrial.agent"), "seatrial_agent"))
    found[f"{_INSTALLED}/__init__.py"] = b""
    for point in entry_points(group="seatrial.readers"):
        with contextlib.suppress(Exception):
            found[f"{_INSTALLED}/{point.name}.py"] = reader_of(point.load()).source
    return dict(sorted({**found, "__main__.py": MAIN}.items()))


def _sources_below(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources_below(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".txt")):
            yield f"{name}/{entry.name}", entry.read_bytes()
