"""Images made of this machine's own files, without a registry: OCI archives that `ctr images import` takes."""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.errors import Unavailable
from cluster.places import cache_place

PAUSE, BUSYBOX, PYTHON = "localhost/pause:1", "localhost/busybox:1", "localhost/python:3"
FORMAT = 2
"""Part of an archive's name in the cache: raised when what is written here changes."""
UNUSED_S = 7 * 24 * 3600.0
_MEDIA = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1000:\nnobody:x:65534:\n",
}
# A Python may well live in the home of root: pods that may not be root must reach it.
_FOLDERS = {"tmp": 0o1777, "root": 0o755, "etc": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755, "var/tmp": 0o1777}
_PYTHON_LEAVES_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|__pycache__|site-packages|config-3[^/]*)(/|$)|_tkinter|\.a$"
)
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


@dataclass
class Content:
    """What an image has: files of this machine by their path inside, symbolic links, and how it starts."""

    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    path: str = "/bin:/usr/bin"

    def add_program(self, inside: str, program: Path) -> None:
        self.files[inside] = program
        self._add_libraries([program])

    def add_folder(self, inside: str, folder: Path, leave_out: re.Pattern[str] | None = None) -> None:
        loaded = []
        for at, _, names in os.walk(folder):
            for name in names:
                path = Path(at, name)
                relative = str(path.relative_to(folder))
                if (leave_out is None or not leave_out.search(f"/{relative}")) and path.is_file():
                    self.files[f"{inside.strip('/')}/{relative}"] = path
                    if name.endswith(".so") or ".so." in name:
                        loaded.append(path)
        self._add_libraries(loaded)

    def _add_libraries(self, programs: list[Path]) -> None:
        """What the loader says it would load; a static program has none."""
        said = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout if programs else ""
        for library in _LIBRARY.findall(said):
            self.files.setdefault(library.lstrip("/"), Path(library))


def pause_archive(pause: Path) -> Path:
    return _kept(PAUSE, lambda: Content({"pause": pause}, entrypoint=["/pause"]), [pause])


def busybox_archive() -> Path:
    busybox = _busybox()
    return _kept(BUSYBOX, lambda: _with_busybox(busybox), [busybox])


def python_archive(
    folders: Mapping[str, Path] | None = None, name: str = PYTHON, programs: Mapping[str, Path] | None = None
) -> Path:
    """With the standard library of the Python that runs this; `folders`, and `programs` with the libraries that they
    load, are put into the image by their path inside."""
    busybox, python, standard = _busybox(), Path(sys.executable).resolve(), Path(os.__file__).resolve().parent

    def content() -> Content:
        made = _with_busybox(busybox)
        made.add_program(str(python).lstrip("/"), python)
        made.add_folder(str(standard), standard, _PYTHON_LEAVES_OUT)
        for command in ("python3", "python"):
            made.links[f"bin/{command}"] = str(python)
        made.path = f"{sys.base_prefix}/bin:{made.path}"
        for inside, folder in (folders or {}).items():
            made.add_folder(inside, folder)
        for inside, program in (programs or {}).items():
            made.add_program(inside, program)
        return made

    more = [f"{inside} {folder} {_newest(folder)}" for inside, folder in sorted((folders or {}).items())]
    more += [f"{inside} {program}" for inside, program in sorted((programs or {}).items())]
    return _kept(name, content, [busybox, python, standard / "os.py", *(programs or {}).values()], more)


def write_archive(name: str, content: Content, out: Path) -> None:
    """One layer, the same bytes for the same files."""
    raw = _layer(content)
    packed = gzip.compress(raw, 1, mtime=0)
    blobs: dict[str, bytes] = {}

    def descriptor(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{_MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Env": [f"PATH={content.path}"], "Entrypoint": content.entrypoint or None, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(raw).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": descriptor("config.v1+json", json.dumps(config).encode()),
        "layers": [descriptor("layer.v1.tar+gzip", packed)],
    }
    entry = descriptor("manifest.v1+json", json.dumps(manifest).encode())
    entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    draft = out.with_name(f"{out.name}.{os.getpid()}.draft")
    with tarfile.open(draft, "w") as archive:
        for path, data in sorted(blobs.items()):
            _add(archive, path, data, 0o644)
    draft.replace(out)


def _kept(name: str, content: Callable[[], Content], made_from: list[Path], more: list[str] | None = None) -> Path:
    """From the cache when it was made from the same files. Archives that were not used for a week are deleted."""
    known = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in made_from]
    digest = hashlib.sha256(json.dumps([FORMAT, name, known, more]).encode()).hexdigest()[:16]
    out = cache_place() / "images" / f"{digest}.tar"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        write_archive(name, content(), out)
    out.touch()
    for other in out.parent.glob("*.tar"):
        if other.stat().st_mtime < out.stat().st_mtime - UNUSED_S:
            other.unlink(missing_ok=True)
    return out


def _newest(folder: Path) -> int:
    paths = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    return max((path.stat().st_mtime_ns for path in paths if path.is_file()), default=0)


def _with_busybox(busybox: Path) -> Content:
    content = Content()
    content.add_program("bin/busybox", busybox)
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    content.links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    return content


def _busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        raise Unavailable("there is no busybox to make images of.", "Debian: apt-get install busybox-static")
    return Path(found).resolve()


def _layer(content: Content) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        made: set[str] = set()
        for folder, mode in _FOLDERS.items():
            _add_folders(archive, folder, made, mode)
        for path, text in _ACCOUNTS.items():
            _add(archive, path, text.encode(), 0o644)
        for path, source in sorted(content.files.items()):
            _add_folders(archive, os.path.dirname(path), made)
            _add(archive, path, source.read_bytes(), source.stat().st_mode & 0o777 | 0o444)
        for path, leads_to in sorted(content.links.items()):
            if path not in content.files:
                _add_folders(archive, os.path.dirname(path), made)
                link = tarfile.TarInfo(path)
                link.type, link.linkname, link.mode = tarfile.SYMTYPE, leads_to, 0o777
                archive.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _add_folders(archive: tarfile.TarFile, folder: str, made: set[str], mode: int = 0o755) -> None:
    if not folder or folder in made:
        return
    _add_folders(archive, os.path.dirname(folder), made)
    made.add(folder)
    entry = tarfile.TarInfo(folder)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)
