"""Probes a port of the job until it answers once: an accepted connection, or a GET with a status below 400.

Never blocks. The runner provides its selector and calls `turn`, at `due_s` at the latest; a server that accepts a
connection but does not respond is probed again.
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import time
from typing import Callable, Optional

from ..contain.process import read_proc

_FIRST_S = 0.05
_SHARE = 0.02  # of the time since the start: the largest relative delay in noticing readiness
SLOWEST_S = 1.0
ATTEMPT_S = 5.0
_HEAD_BYTES = 8 << 10  # of an answer, which contain its status
LISTEN = b"0A"
LOOPBACK = (b"7F", b"00000000000000000000000001000000")  # how 127.0.0.0/8 and ::1 end, as the kernel prints them


class Readiness:
    """`found` is called once. `listens`, if given, must be true before the port is probed: a container's port forwarder
    accepts connections even if the container does not."""

    def __init__(
        self, port: int, path: str, found: Callable[[], object], listens: Optional[Callable[[], bool]] = None
    ) -> None:
        self._port = port
        request = "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: seatrial\r\nAccept: */*\r\nConnection: close"
        self._request = (request % (path, port) + "\r\n\r\n").encode("ascii", "replace") if path else b""
        self._found = found
        self._listens = listens or (lambda: True)
        self._selector: Optional[selectors.BaseSelector] = None
        self._socket: Optional[socket.socket] = None
        self._unsent = self._answer = b""
        self._begun_s = time.monotonic()
        self.due_s: Optional[float] = self._begun_s  # next attempt, or timeout of the current one; None: ready

    def turn(self, selector: selectors.BaseSelector) -> None:
        """Starts an attempt if one is due, and gives up one that timed out."""
        now_s = time.monotonic()
        if self.due_s is None or now_s < self.due_s:
            return
        if self._socket is not None or not self._listens():
            self._failed()
        else:
            self._selector = selector
            try:
                self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                self._socket.setblocking(False)
                self._socket.connect_ex(("127.0.0.1", self._port))  # the result is known once the socket is writable
                selector.register(self._socket, selectors.EVENT_WRITE, self._advance)
            except OSError:  # no descriptor available now
                self._failed()
                return
            self._unsent, self._answer = self._request, b""
            self.due_s = now_s + ATTEMPT_S

    def stop(self) -> None:
        """Stops probing."""
        self._close()
        self.due_s = None

    def _advance(self) -> int:
        """Handles a socket event. Returns 0: no output of the job was read."""
        if self._socket is None:
            return 0
        try:
            self._exchange(self._socket)
        except BlockingIOError:
            pass
        except OSError:
            self._failed()
        return 0

    def _exchange(self, server: socket.socket) -> None:
        error = server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        if self._unsent == self._request and server.getpeername() == server.getsockname():
            raise OSError("connected to itself: the kernel chose the probed port as the source port")
        if self._unsent:
            self._unsent = self._unsent[server.send(self._unsent) :]
            if not self._unsent and self._selector is not None:
                self._selector.modify(server, selectors.EVENT_READ, self._advance)
            return
        data = server.recv(_HEAD_BYTES) if self._request else b""
        self._answer += data
        status, ended, _ = self._answer.partition(b"\n")
        if not self._request or (ended and re.match(rb"\s*HTTP/\S*\s+[23]\d\d(?!\S)", status)):
            self.stop()
            self._found()
        elif ended or not data or len(self._answer) > _HEAD_BYTES:
            self._failed()

    def _failed(self) -> None:
        """Schedules the next attempt."""
        self._close()
        now_s = time.monotonic()
        self.due_s = now_s + min(SLOWEST_S, max(_FIRST_S, _SHARE * (now_s - self._begun_s)))

    def _close(self) -> None:
        if self._socket is None:
            return
        if self._selector is not None and self._socket.fileno() in self._selector.get_map():
            self._selector.unregister(self._socket)
        self._socket.close()
        self._socket = None


def listens_in(pid: int, port: int) -> bool:
    """Whether a process in the network of `pid` listens on the port, not only on loopback."""
    for name in ("tcp", "tcp6"):
        try:
            lines = read_proc("/proc/%d/net/%s" % (pid, name)).splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(b":")
            if fields[3] == LISTEN and int(number, 16) == port and not address.endswith(LOOPBACK):
                return True
    return False
