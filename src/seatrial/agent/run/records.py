"""The agent's records: one JSON object per line and one write per line, so that a kill damages at most the last."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterable, Optional

from ..contain.process import copy_open, write_whole
from ..job_file import Ending, JobError
from ..masking.mask import Mask
from .log import Log

_NAME = "records.jsonl"
_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
NOTES_BYTES = 32 << 20  # of all notes of a job; others are dropped


class RecordsFile:
    """Raises JobError once if writing fails, since the job is then no longer observed. After that only `last` tries
    again."""

    def __init__(self, folder: str, mask: Mask, name: str = _NAME) -> None:
        self._path = os.path.join(folder, name)
        self._mask = mask
        self._torn = False
        self._failed = False
        self._notes_bytes = 0
        try:
            self._fd = self._open()
        except OSError as error:
            raise self._gave_up(error) from error

    def begin(self, hardware: Dict[str, Any]) -> float:
        """Writes the first record: host, process, hardware, and the wall and monotonic time."""
        host = os.uname().nodename
        return self.write("begin", version=1, wall_s=time.time(), host=host, pid=os.getpid(), hardware=hardware)

    def write(self, event: str, **fields: Any) -> float:
        """Appends a record and returns its time."""
        at_s = time.monotonic()
        self._append(self._line(dict(fields, event=event, at_s=round(at_s, 6))))
        return at_s

    def last(self, event: str, **fields: Any) -> None:
        """Writes a record even after a failure; there may be space again."""
        self._failed = False
        self.write(event, **fields)

    def note(self, step: int, data: Any, ours: Iterable[str] = ()) -> bool:
        """Writes a note; False if the limit is reached. `ours`: words that are never secrets."""
        line = self._line({"event": "note", "step": step, "at_s": round(time.monotonic(), 6), "data": data}, ours)
        if self._notes_bytes + len(line) > NOTES_BYTES:
            return False
        self._notes_bytes += len(line)
        self._append(line)
        return True

    def restore(self) -> None:
        """Restores the file if the job deleted it."""
        if os.fstat(self._fd).st_nlink:
            return
        try:
            new = self._open()
            copy_open(self._fd, new)
        except OSError as error:
            raise self._gave_up(error) from error
        self._fd = new

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _line(self, record: Any, ours: Iterable[str] = ()) -> bytes:
        return _to_text(self._mask.data(record, ours)).encode("utf-8", "replace") + b"\n"

    def _append(self, line: bytes) -> None:
        if self._failed:
            return
        view = memoryview(b"\n" + line if self._torn else line)
        try:
            while view:  # after a short write the next one raises
                view = view[os.write(self._fd, view) :]
                self._torn = bool(view)
        except OSError as error:
            raise self._gave_up(error) from error

    def _gave_up(self, error: OSError) -> JobError:
        self._failed = True
        return JobError("cannot write %s: %s" % (self._path, error))


# The output folder of a job: writes how it ended, and restores files that the job damages.


END_FILE = "end.json"
END_BYTES = 16 << 10  # reserved for end.json, so that it can be written when the disk is full


class OutFolder:
    """`kept`: small files that are restored if a job deletes or changes them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.kept: Dict[str, bytes] = {}
        self._end_fd = -1

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def reserve_end(self) -> None:
        self._end_fd = os.open(self.path(END_FILE + ".new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._end_fd, 0, END_BYTES)

    def finish(self, ending: Ending, records: Optional[RecordsFile], log: Log, mask: Mask) -> Dict[str, Any]:
        """Writes the last record, the end of the log and end.json. Returns the content of end.json."""
        if log.error:
            ending = ending._replace(message=join_messages(ending.message, log.error))
        facts: Dict[str, Any] = {
            "outcome": ending.outcome,
            "message": mask.text(ending.message),
            "left": ending.left,
            "log_bytes": log.total_bytes,
            "log_omitted_bytes": log.omitted_bytes,
        }
        if records is not None:
            try:
                self.restore(records, log)
                records.last("end", **facts)
            except JobError as error:
                facts["message"] = join_messages(facts["message"], str(error))
        log.close()
        facts = dict(facts, version=1, code=ending.code, wall_s=time.time(), at_s=time.monotonic())
        data = json.dumps(facts).encode()
        if len(data) > END_BYTES:
            data = json.dumps(dict(facts, message=facts["message"][: END_BYTES // 8])).encode()
        if not os.fstat(self._end_fd).st_nlink:
            self.reserve_end()
        os.pwrite(self._end_fd, data, 0)
        os.ftruncate(self._end_fd, len(data))
        os.fsync(self._end_fd)
        os.rename(self.path(END_FILE + ".new"), self.path(END_FILE))
        return facts

    def restore(self, records: RecordsFile, log: Log) -> None:
        """Restores what is needed to find and report the job: it may delete or lock anything it owns."""
        try:
            if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
                if os.path.isdir(self.folder):
                    os.chmod(self.folder, 0o700)
                else:
                    os.makedirs(self.folder, 0o700)
            for name, data in self.kept.items():
                if _content(self.path(name), len(data) + 1) != data:
                    write_whole(self.path(name), data)
        except OSError as error:
            raise JobError("cannot write %s: %s" % (self.folder, error)) from error
        records.restore()
        log.restore()


def _content(path: str, most_bytes: int) -> Optional[bytes]:
    """Returns the content; None if it is not a file, which is then replaced."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(most_bytes)
    except OSError:
        return None


def join_messages(*messages: str) -> str:
    return "; ".join(message for message in messages if message)
