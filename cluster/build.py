"""Kubernetes and what goes with it from their Go modules, built once and kept in the user's cache."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import BuildFailed, ClusterError, Unavailable
from cluster.go import Go, find_go
from cluster.places import cache_place, lock_file

HERE = Path(__file__).resolve().parent
SAY_EVERY_S = 20.0
LAST_LINES = 15
NEEDS_BYTES = 6 << 30
UNUSED_S = 60 * 24 * 3600.0
_KUBERNETES = HERE / "kubernetes"
_KWOK = HERE / "kwok"
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|TLS handshake|x509:|module lookup disabled|reading https?://"
)


@dataclass(frozen=True)
class Program:
    name: str
    module: Path
    source: str
    """The module that it is made from, whose version is its own."""
    package: str = "."


KUBERNETES = Program("kubernetes", _KUBERNETES, "k8s.io/kubernetes")
PAUSE = Program("pause", _KUBERNETES, "k8s.io/kubernetes", "./pause")
KWOK = Program("kwok", _KWOK, "sigs.k8s.io/kwok")


def quiet(text: str) -> None:
    """For callers that want to hear nothing."""


def built(program: Program, say: Callable[[str], None] = quiet) -> Path:
    """The program, from the cache or built now. One build at a time: two at once may not fit in memory. What is there
    is had without waiting for the build of another."""
    cache = cache_place()
    cache.mkdir(parents=True, exist_ok=True)
    with lock_file(cache / "go-lock"):
        go = find_go(program.module, cache, say)
    binary = cache / "built" / f"{program.name}-{_digest(program, go)}" / program.name
    if not binary.exists():
        waits = f"waiting for another process that builds; then {program.name} is built"
        with lock_file(cache / "lock", lambda: say(waits)) as lock:
            if not binary.exists():
                _build(program, go, binary, lock, say)
            _forget_old(cache / "built")
    os.utime(binary.parent)
    return binary


def was_built(program: Program) -> bool:
    """Whether the program was built here, perhaps of another version: then a build takes seconds, not minutes."""
    return any((cache_place() / "built").glob(f"{program.name}-*/{program.name}"))


def version_of(program: Program) -> str:
    """Of the module that the program is made from: v1.35.4."""
    found = re.search(rf"^\s*{re.escape(program.source)} (v\S+)", (program.module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{program.module / 'go.mod'} does not require {program.source}.", "Restore the file.")
    return found.group(1)


def source_folder(program: Program, say: Callable[[str], None] = quiet) -> Path:
    """Where Go keeps the files of the module that the program is made from."""
    go = find_go(program.module, cache_place(), say)
    done = subprocess.run(
        [go.binary, "mod", "download", "-json", program.source],
        cwd=program.module,
        env=_environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        log = cache_place() / "built" / f"{program.name}.log"
        log.write_text(done.stdout + done.stderr)
        raise _failed(program, (done.stdout + done.stderr).splitlines()[-LAST_LINES:], log)
    return Path(json.loads(done.stdout)["Dir"])


def _digest(program: Program, go: Go) -> str:
    digest = hashlib.sha256(f"{go.version} {_flags(program)}".encode())
    for path in sorted([program.module / "go.mod", program.module / "go.sum", *program.module.rglob("*.go")]):
        digest.update(f"{path.relative_to(program.module)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _flags(program: Program) -> list[str]:
    linker = "-s -w"
    if program is KUBERNETES:
        version = version_of(program)
        major, minor, _ = version.removeprefix("v").split(".", 2)
        says = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        # The same files make the same bytes, so the date of the build must not be in them.
        says["buildDate"] = "1970-01-01T00:00:00Z"
        linker += "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in says.items())
    return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", linker]


def _build(program: Program, go: Go, binary: Path, lock: int, say: Callable[[str], None]) -> None:
    cache = binary.parent.parent.parent
    if shutil.disk_usage(cache).free < NEEDS_BYTES:
        raise ClusterError(
            f"building {program.name} needs {NEEDS_BYTES >> 30} GiB of disk at {cache}, which has less.",
            "Make room, or name another place in SEATRIAL_CACHE (and in GOPATH and GOCACHE for Go's own files).",
        )
    log = binary.parent.parent / f"{program.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    say(f"building {program.name} {version_of(program)} with {go.version}, once: it takes minutes and is cached")
    began = time.monotonic()
    draft = binary.with_name(binary.name + ".draft")
    draft.parent.mkdir(exist_ok=True)
    command = ["build", "-v", *_flags(program), "-o", str(draft), program.package]
    code, lines = _run(go, command, program, log, lock, say)
    if code != 0:
        raise _failed(program, lines, log)
    draft.replace(binary)
    say(f"built {program.name} in {time.monotonic() - began:.0f} s")


def _failed(program: Program, lines: list[str], log: Path) -> ClusterError:
    if any(_UNREACHABLE.search(line) for line in lines):
        what = f"the Go modules of {program.name} cannot be had. The last lines:\n" + "\n".join(lines)
        return Unavailable(what, "GOPROXY says where Go gets modules from.")
    return BuildFailed(f"{program.name} {version_of(program)}", lines, log)


def _run(
    go: Go, args: list[str], program: Program, log: Path, lock: int, say: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Exit code and last lines. It inherits the lock: when only we are killed, the next one waits until it is done."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    count, said = 0, time.monotonic()
    with (
        log.open("a") as out,
        subprocess.Popen(
            [go.binary, *args],
            cwd=program.module,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock,),
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            last.append(line.rstrip()[:400])
            count += 1
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                say(f"  {program.name}: {count} packages")
    return process.returncode, list(last)


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _forget_old(built_place: Path) -> None:
    for folder in built_place.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)
