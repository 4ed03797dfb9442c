"""Manifests of the objects that all jobs of a run share: the run object, the agent, the inputs."""

import base64
import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from seatrial.job import Input
from seatrial.kubernetes import Manifest
from seatrial.limited_yaml import load_all
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.placement import QUEUE, marked, seconds
from seatrial.targets.kubernetes.manifest.pod import script
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.protocol import TargetError, refused

PART_BYTES = 896 << 10  # size of an archive's parts; a ConfigMap holds at most 1 MiB


def run_object(run: str, ttl_s: float, options: KubernetesOptions, namespace: str, image: str = "") -> Manifest:
    """A Job without pods, which completes at once; the cluster deletes it and all that it owns after `ttl_s`. Its
    `image`, which is never pulled, is that of a job of the run, so that image policies accept it."""
    (made,) = load_all((files(__package__) / "run.yaml").read_text(encoding="utf-8"))
    labels, spec = names.run_labels(run, "run"), made["spec"]
    queue = {QUEUE: options.queue} if options.queue else {}
    made["metadata"] = {"name": names.run_object_name(run), "namespace": namespace, "labels": labels | queue}
    spec["ttlSecondsAfterFinished"] = seconds(ttl_s)
    spec["template"]["metadata"]["labels"] = labels
    spec["template"]["spec"]["containers"][0]["image"] = image or options.image or "none"
    return marked(made, options)


def agent_configs(run: str, agent: bytes, owner: Mapping[str, Any], namespace: str) -> list[Manifest]:
    """The agent and the scripts that start it. The name depends on the content, so a newer agent has another."""
    scripts = {f"{name}.sh": script(name) for name in ("start", "keep")}
    made = _config_map(run, "agent", agent + "".join(scripts.values()).encode(), owner, namespace)
    return [{**made, "data": scripts, "binaryData": {"agent.pyz": base64.b64encode(agent).decode()}}]


def input_configs(run: str, archive: bytes, owner: Mapping[str, Any], namespace: str) -> list[Manifest]:
    """Parts of an archive in order; archives of a run share equal parts. Empty for an empty archive."""
    parts = [archive[start : start + PART_BYTES] for start in range(0, len(archive), PART_BYTES)]
    return [
        {**_config_map(run, "inputs", part, owner, namespace), "binaryData": {"part": base64.b64encode(part).decode()}}
        for part in parts
    ]


def _config_map(run: str, part: str, content: bytes, owner: Mapping[str, Any], namespace: str) -> Manifest:
    metadata = {
        "name": names.object_name(f"{names.SEATRIAL}-{run}-{part}-{hashlib.sha256(content).hexdigest()[:16]}"),
        "namespace": namespace,
        "labels": names.run_labels(run, part),
        "ownerReferences": [dict(owner)],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}


INPUT_BYTES = 16 << 20  # packed: acceptable for the cluster's database
MOST_UNPACKED_BYTES = 1 << 30
# One time for all files, so that the same files give the same archive. Zip files, and so wheels, need 1980 or later.
_TIME_S = 315_619_200
_INSTEAD = (
    "add them to the image, clone them in the job (`workspace: {git: ...}`), or mount a volume (target: `volumes`)"
)


def inputs_archive(inputs: Sequence[Input]) -> bytes:
    """A reproducible tar.gz of all inputs; empty if there are none.

    Of two inputs with the same path the later one counts, as if they were copied one after the other."""
    entries: dict[str, Path] = {}
    for given in inputs:
        for name, source in _entries(given):
            other = entries.get(name)
            if other is not None and _is_folder(other) != _is_folder(source):
                raise refused(f"two inputs have the path {name!r}, and only one is a folder: {other} and {source}")
            entries[name] = source
    if not entries:
        return b""
    packed = _Bounded()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        unpacked = 0
        for name in sorted(entries):
            unpacked += _add(archive, name, entries[name])
            if unpacked > MOST_UNPACKED_BYTES:
                raise _too_much(f"more than {MOST_UNPACKED_BYTES >> 20} MiB")
    return packed.getvalue()


class _Bounded(io.BytesIO):
    """Raises as soon as the limit is exceeded, not after all files were read."""

    def write(self, data: object) -> int:
        written = super().write(data)  # type: ignore[arg-type]
        if self.tell() > INPUT_BYTES:
            raise _too_much(f"more than {INPUT_BYTES >> 20} MiB packed")
        return written


def _too_much(how_much: str) -> TargetError:
    return refused(f"the inputs are {how_much}, too large for a cluster; {_INSTEAD}")


def _entries(given: Input) -> Iterator[tuple[str, Path]]:
    """Each file, folder and link of an input, by its path in the work folder."""
    source, goal = Path(given.source), PurePosixPath(given.path)
    if goal.is_absolute() or ".." in goal.parts:
        raise refused(f"input path {given.path!r} is outside the work folder; use a relative path without `..`")
    try:
        if not source.exists():
            if given.required:
                raise refused(f"input not found: {given.source}")
        elif source.is_dir():
            yield from _parents(goal, source)
            yield from _walk(goal, source)
        elif source.is_file():
            yield from _parents(goal.parent, source.parent)
            yield str(goal), source.resolve()
        else:
            raise refused(f"input {given.source} is neither a file nor a folder")
    except OSError as error:
        raise TargetError(f"cannot read input {given.source}: {error}") from error


def _parents(goal: PurePosixPath, source: Path) -> Iterator[tuple[str, Path]]:
    """The parent folders; `source` stands in for each."""
    folder = source.resolve()
    for part in reversed([goal, *goal.parents]):
        if part.parts:
            yield str(part), folder


def _walk(goal: PurePosixPath, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if not (path.is_symlink() or path.is_dir() or path.is_file()):
            raise refused(f"input {path} is neither a file, a folder nor a link")
        yield str(goal / path.name), path
        if _is_folder(path):
            yield from _walk(goal / path.name, path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _add(archive: tarfile.TarFile, name: str, source: Path) -> int:
    """Returns the size of its content. Of the permissions only the executable bit is kept: the pod's user differs."""
    entry = tarfile.TarInfo(name)
    entry.mtime = _TIME_S
    try:
        status = source.lstat()
        if stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(source)
            archive.addfile(entry)
        elif stat.S_ISDIR(status.st_mode):
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        else:
            entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
            with open(source, "rb") as file:
                entry.size = os.fstat(file.fileno()).st_size
                if entry.size > MOST_UNPACKED_BYTES:
                    raise _too_much(f"more than {MOST_UNPACKED_BYTES >> 20} MiB ({source})")
                archive.addfile(entry, file)
    except OSError as error:
        raise TargetError(f"cannot read input {source}: {error}") from error
    return entry.size
