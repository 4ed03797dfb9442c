"""The folder that reports on a job: how its end is written there, and how it is put back when the job damages it."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Optional, Tuple

from ..contain.process import write_whole
from ..masking.mask import Mask
from .ending import Ending
from .log import Log
from .records import RecordError, RecordsFile

END_FILE = "end.json"
END_BYTES = 16 << 10  # kept free for the end, so that a full disk does not silence it


class OutFolder:
    """`kept`: small files that a job may delete or change, and that are put back as they were."""

    def __init__(self, folder: str, mask: Mask) -> None:
        self.folder = folder
        self.kept: Dict[str, bytes] = {}
        self._mask = mask
        self._end_fd = -1
        self._as_written: Dict[str, Tuple[int, ...]] = {}  # what a file looks like that was found as it should be

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def reserve_end(self) -> None:
        self._end_fd = os.open(self.path(END_FILE + ".new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._end_fd, 0, END_BYTES)

    def finish(self, ending: Ending, records: Optional[RecordsFile], log: Log) -> Dict[str, Any]:
        """The last record, the end of the log, end.json. What it says."""
        if log.error:
            ending = ending._replace(message=join_messages(ending.message, log.error))
        facts: Dict[str, Any] = {
            "outcome": ending.outcome,
            "message": self._mask.text(ending.message),
            "left": ending.left,
            "log_bytes": log.total_bytes,
            "log_omitted_bytes": log.omitted_bytes,
        }
        if records is not None:
            try:
                self.restore(records, log)
                if records.notes_omitted:
                    facts["notes_omitted"] = records.notes_omitted
                records.last("end", **facts)
            except RecordError as error:
                facts["message"] = join_messages(facts["message"], str(error))
        log.close()
        facts = dict(facts, version=1, code=ending.code, wall_s=time.time(), at_s=time.monotonic())
        self.write_end(facts)
        return facts

    def write_end(self, facts: Dict[str, Any]) -> None:
        data = json.dumps(facts).encode()
        if len(data) > END_BYTES:
            data = json.dumps(dict(facts, message=facts["message"][: END_BYTES // 8])).encode()
        if not os.fstat(self._end_fd).st_nlink:
            self.reserve_end()
        os.pwrite(self._end_fd, data, 0)
        os.ftruncate(self._end_fd, len(data))
        os.fsync(self._end_fd)
        os.rename(self.path(END_FILE + ".new"), self.path(END_FILE))

    def restore(self, records: RecordsFile, log: Log) -> None:
        """A job can delete or lock whatever it owns. What is needed to find it and to tell of it is put back."""
        try:
            if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
                if os.path.isdir(self.folder):
                    os.chmod(self.folder, 0o700)
                else:
                    os.makedirs(self.folder, 0o700)
            for name, data in self.kept.items():
                self._put_back(self.path(name), data)
        except OSError as error:
            raise RecordError(self.folder, error) from error
        records.restore()
        log.restore()

    def _put_back(self, path: str, data: bytes) -> None:
        found = _look(path)
        if found is not None and found == self._as_written.get(path):
            return
        if _content(path, len(data) + 1) != data:
            write_whole(path, data)
        self._as_written[path] = _look(path) or ()


def _look(path: str) -> Optional[Tuple[int, ...]]:
    """What changes with the content of a file; None when it is not there."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _content(path: str, most_bytes: int) -> Optional[bytes]:
    """None for what is no file: then it is replaced, whatever it is."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, most_bytes)
    except OSError:
        return None
    finally:
        os.close(fd)


def join_messages(*messages: str) -> str:
    return "; ".join(message for message in messages if message)
