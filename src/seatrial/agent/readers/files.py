"""`python AGENT files REQUEST REPORT`: reads a job's files in a separate process with limited memory and time, because
a file may crash its reader.

REQUEST is the path of a JSON file: {"roots": [folders], "labels": [prefixes of their files], "entries": {name:
{"match", "reader", "keys", "most_bytes", "metrics", "options"}}, "memory_bytes", "seconds"}. With `metrics` the reader
returns metrics instead of the values of `keys`. REPORT gets a JSON line before and after each file, so that results
survive a crash; `gather` combines them.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import mmap
import os
import re
import resource
import signal
import stat
import time
import zlib
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional

from . import json_file, kineto, xplane
from .json_file import Bounded, UnreadableFile
from .series import to_json

# Finds files below some folders that match a pattern. Follows no link out of them, and is bounded.


MOST_ENTRIES = 500_000  # files and folders that are searched
_MOST_DEPTH = 100
_PIECE = re.compile(r"\*\*/?|\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
_GLOBS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class FoundFile(NamedTuple):
    """`relative` is the path below its root; `shown` is for display and also names the root if needed."""

    relative: str
    shown: str
    path: str
    file_stat: os.stat_result


def compiled(pattern: str) -> "re.Pattern[str]":
    """Compiles a glob: `*` and `?` stay in a folder, `**` does not, `[...]` is one of the characters. Raises ValueError
    if the pattern is invalid."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError("invalid file pattern %s; use a relative path without `..`" % pattern)

    def piece(found: "re.Match[str]") -> str:
        negated, some = found.groups()
        if some is None:
            return _GLOBS.get(found.group()) or re.escape(found.group())
        return "(?!/)[%s%s]" % ("^" if negated else "", some.replace("\\", "\\\\").replace("[", "\\["))

    try:
        return re.compile(_PIECE.sub(piece, pattern) + r"\Z", re.DOTALL)
    except re.error as error:
        raise ValueError("invalid file pattern %s: %s" % (pattern, error)) from None


class Search:
    """Walks the folders once, for all patterns. `cut` is the reason if not everything was searched."""

    def __init__(self, roots: List[str], labels: List[str]) -> None:
        self.cut = ""
        self.files: List[FoundFile] = []
        self._looked = 0
        links: List[FoundFile] = []
        for number, root in enumerate(roots):
            for found in self._walk(os.path.realpath(root), labels[number]):
                (links if stat.S_ISLNK(found.file_stat.st_mode) else self.files).append(found)
        first = {found.path: found for found in reversed(self.files)}  # a root may be inside another
        self.files = sorted(first.values())
        self._links = list(self._inside(links, [os.path.realpath(root) for root in roots]))

    def matching(self, pattern: str) -> List[FoundFile]:
        """Returns the matching files, without links to files that match themselves."""
        wanted = compiled(pattern)

        def matches(found: FoundFile) -> bool:
            return wanted.match(found.relative) is not None or wanted.match(found.shown) is not None

        chosen = {found.path: found for found in self.files if matches(found)}
        for link in self._links:
            if matches(link):
                chosen.setdefault(link.path, link)
        return sorted(chosen.values(), key=lambda found: found.shown)

    def _walk(self, root: str, label: str) -> Iterator[FoundFile]:
        below = len(root.rstrip("/")) + 1
        for folder, folders, names in os.walk(root):
            folders.sort()
            entries = sorted(folders + names)
            if folders and folder[below:].count("/") >= _MOST_DEPTH - 1:
                self.cut = "folders more than %d levels deep were not searched" % _MOST_DEPTH
                folders.clear()
            for name in entries:
                self._looked += 1
                if self._looked > MOST_ENTRIES:
                    self.cut = "more than %d files and folders; the rest was not searched" % MOST_ENTRIES
                    return
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):  # gone
                    file_stat = os.lstat(path)
                    if stat.S_ISREG(file_stat.st_mode) or stat.S_ISLNK(file_stat.st_mode):
                        relative = os.fsencode(path[below:]).decode("utf-8", "backslashreplace")
                        yield FoundFile(relative, label + relative, path, file_stat)

    def _inside(self, links: List[FoundFile], roots: List[str]) -> Iterator[FoundFile]:
        """Yields the links to a regular file below one of the roots."""
        for link in links:
            path = os.path.realpath(link.path)
            if os.path.isfile(path) and any(path.startswith(root.rstrip("/") + "/") for root in roots):
                yield FoundFile(link.relative, link.shown, path, os.stat(path))


# Limits this process's memory and time before it reads untrusted files.


_MEMORY_BYTES = 1 << 30
_SECONDS = 300.0


class OverTime(Exception):
    def __init__(self) -> None:
        super().__init__("the read timed out")


class Limited:
    """Limits in force from construction on. Mapped files do not count as memory. One per process."""

    def __init__(self, memory_bytes: Optional[int], seconds: Optional[float]) -> None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = memory_bytes or _MEMORY_BYTES
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
        self._over = self._inside = False
        signal.signal(signal.SIGALRM, self._ring)
        # Repeatedly, because a library may swallow the exception.
        signal.setitimer(signal.ITIMER_REAL, seconds or _SECONDS, 0.5)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """OverTime is raised only inside this block: when the time is over, or at once if it was over before."""
        if self._over:
            raise OverTime
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _ring(self, number: int, frame: object) -> None:
        self._over = True
        if self._inside:
            raise OverTime


_MOST_FILES = 1_000  # files of an entry that are reported one by one
_MOST_BYTES = {"json": 64 << 20, "xplane": 2 << 30, "kineto": 4 << 30}
MOST_REPORT_BYTES = 32 << 20
_MOST_WHY = 2_000  # longest reason of a reader, characters
Report = Callable[[Dict[str, Any]], Any]


def main(arguments: List[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        request = json.load(file)
    limited = Limited(request.get("memory_bytes"), request.get("seconds"))
    with open(arguments[1], "wb", buffering=0) as report:
        read_files(request, limited, lambda line: report.write(json.dumps(line).encode("utf-8") + b"\n"))
    return 0


def read_files(request: Dict[str, Any], limited: Limited, report: Report) -> None:
    """Reads all entries. After the time limit, the others are reported as not read."""
    search: Optional[Search] = None
    for name, entry in request["entries"].items():
        found: List[FoundFile] = []
        try:
            with limited.reading():
                search = search or Search(request["roots"], request["labels"])
                found = search.matching(str(entry.get("match") or ""))
            report({"entry": name, "count": len(found), "cut": search.cut})
        except (OverTime, ValueError) as error:
            report({"entry": name, "count": 0, "error": str(error)})
        for one in found[:_MOST_FILES]:
            _read_reported(name, entry, one, limited, report)


def _read_reported(name: str, entry: Dict[str, Any], found: FoundFile, limited: Limited, report: Report) -> None:
    """Reads one file and reports it, with its error if there is one."""
    described: Dict[str, Any] = {"path": found.shown, "bytes": found.file_stat.st_size, "error": None, "values": {}}
    described["modified_s"] = found.file_stat.st_mtime
    reader = str(entry.get("reader") or "")
    if reader:
        report({"entry": name, "begun": described})
        began_s = time.monotonic()
        try:
            with limited.reading():
                described.update(read_one(found.path, reader, entry))
        except OverTime as error:
            took_s = time.monotonic() - began_s
            described["error"] = "partly read: %s, after %.0f s on this file" % (error, took_s)
        except MemoryError:
            described["error"] = "reading the file needs more memory than the limit"
        except UnreadableFile as error:
            described["error"] = str(error)
        except (OSError, zlib.error, EOFError) as error:
            described["error"] = "cannot read the file: %s" % error
    report({"entry": name, "file": described})


def read_one(path: str, reader: str, entry: Dict[str, Any]) -> Dict[str, Any]:
    most_bytes = int(entry.get("most_bytes") or _MOST_BYTES.get(reader) or _MOST_BYTES["json"])
    by_name = _by_name(reader) if reader not in _MOST_BYTES or (entry.get("metrics") and reader == "json") else None
    keys = [str(key) for key in entry.get("keys") or ()]
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise UnreadableFile("not read: %d bytes (limit %d)" % (size, most_bytes))
        if size == 0:
            raise UnreadableFile("the file is empty")
        if reader == "xplane":
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
                return {"profile": xplane.read_xplane(data)}
        plain = unpacked(file)
        if by_name is not None:
            return {"reading": _reading(by_name, Bounded(plain, most_bytes).read(), entry.get("options") or {})}
        if reader == "kineto":
            return {"profile": kineto.read_kineto(plain, most_bytes)}
        lines = path.endswith((".jsonl", ".ndjson", ".jsonl.gz"))
        bounded = Bounded(plain, most_bytes)
        return json_file.read_json_lines(bounded, keys) if lines else json_file.read_json_keys(bounded, keys)


def _by_name(reader: str) -> Any:
    """Returns the module of an installed reader, or our own for JSON."""
    if reader == "json":
        return json_file
    try:
        return importlib.import_module("%s.installed.%s" % (__package__, reader))
    except ImportError as error:
        raise UnreadableFile("reader %r not found where the run was started: %s" % (reader, error)) from None


def _reading(module: Any, data: bytes, options: Dict[str, Any]) -> Dict[str, Any]:
    """Runs a reader. Its metrics get the units and directions that it declares."""
    try:
        found = module.read(data, options)
        verdict = str(found.get("verdict") or "ok")
        if verdict not in ("ok", "failed", "unjudged"):
            raise TypeError("verdict %r (expected ok, failed or unjudged)" % verdict)
        declared = getattr(module, "METRICS", None) or {}
        metrics = {}
        for name, value in found["metrics"].items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError("metric %r is %r (expected a number)" % (name, value))
            unit, better = declared.get(name) or ("", None)
            metrics[str(name)] = {"value": to_json(float(value)), "unit": str(unit), "better": better}
        return {"metrics": metrics, "verdict": verdict, "why": str(found.get("why") or "")[:_MOST_WHY]}
    except ValueError as error:
        raise UnreadableFile(str(error) or "not in the reader's format") from None
    except (OverTime, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - third-party code: report its error for this file only
        raise UnreadableFile("the reader has a bug: %s: %s" % (type(error).__name__, error)) from None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """Opens a regular file; a running process may have replaced it since it was found."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableFile("no longer a regular file")
        yield file


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """The content of a file that may be compressed; it may be a pipe."""
    packed = file.peek(2)[:2] == b"\x1f\x8b"  # type: ignore[attr-defined]
    return gzip.GzipFile(fileobj=file, mode="rb") if packed else file  # type: ignore[return-value]


def gather(lines: Iterable[bytes], entries: Dict[str, Any], well: bool, how: str) -> Dict[str, Any]:
    """Returns the report by entry, with an error for the file that was being read if the reader failed."""
    result: Dict[str, Any] = {name: {"count": 0, "files": []} for name in entries}
    begun: Optional[Dict[str, Any]] = None
    done = set()
    taken_bytes = 0
    for line in lines:
        taken_bytes += len(line)
        try:
            header = json.loads(line.decode("utf-8", "replace"))
            into = result[header["entry"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if taken_bytes > MOST_REPORT_BYTES:
            into["error"] = "the results exceed the report's size limit"
            break
        if "file" in header:
            into["files"].append(header["file"])
            begun = None
        elif "begun" in header:
            begun = dict(header["begun"], entry=header["entry"])
        else:
            done.add(header["entry"])
            into.update({key: value for key, value in header.items() if key != "entry" and value not in ("", None)})
    if begun is not None:
        name = begun.pop("entry")
        result[name]["files"].append(dict(begun, error="reading failed: the reader %s" % how))
    if not well:
        for name in result:
            if name not in done:
                result[name]["error"] = "not searched: the reader %s first" % how
    return result
