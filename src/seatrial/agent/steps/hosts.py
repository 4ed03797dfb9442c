"""Starts a command once per simulated host: `python hosts.py COUNT COMMAND`. Lines are prefixed: `[h] text`.

This file is passed to the interpreter as text (`python -c`): standard library only, no relative imports. The exit code
is that of the first host that failed. The others then have a few seconds to exit before they are killed, because they
would wait for it forever. Signals are forwarded to all.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import List, Optional

_LINE_BYTES = 1 << 20  # a longer line is passed on in parts, and the other hosts wait until it ends
_WAITING_BYTES = 8 << 20  # of a host that waits; then the long line is split, so that all hosts go on
_AFTER_FAILURE_S = 5.0  # from the first failure to SIGTERM,
AFTER_TERM_S = 5.0  # and from there to SIGKILL
_LOOK_S = 0.05


class Host:
    def __init__(self, number: int, count: int, command: str, port: int) -> None:
        self.number = number
        self.code: Optional[int] = None
        self.text = b""  # output that was not passed on yet
        self.inside = False  # whether the start of a line was passed on, but not its end
        notes = os.environ.get("SEATRIAL_NOTES_FD", "")
        self.notes: Optional[int] = int(notes) if notes.isdigit() else None
        # The host's number: in our variables, and in those of training launchers unless the job sets them.
        rank, address = str(number), {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = {"RANK": rank, "NODE_RANK": rank, "WORLD_SIZE": str(count), **address}
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**ranks, **os.environ, "SEATRIAL_HOST": rank, "SEATRIAL_HOSTS": str(count)},
            pass_fds=[] if self.notes is None else [self.notes],
        )
        assert self.process.stdout is not None
        self.pipe: int = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)

    def read(self) -> bool:
        """Takes the available output; False at its end."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return True
        self.text += data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not data:
            self.end_line()
        return bool(data)

    def end_line(self) -> None:
        if (self.text or self.inside) and not self.text.endswith(b"\n"):
            self.text += b"\n"

    def pass_on(self) -> None:
        """Writes complete lines, and what there is of a long one."""
        whole, end, rest = self.text.rpartition(b"\n")
        if len(rest) > _LINE_BYTES:
            whole, end, rest = self.text, b"", b""
        if whole or end:
            prefix = b"[%d] " % self.number
            text = (b"" if self.inside else prefix) + whole.replace(b"\n", b"\n" + prefix) + end
            self.text, self.inside = rest, not end
            while text:
                text = text[os.write(1, text) :]

    def note(self) -> None:
        """Reports that the host has exited, so that no more steps are expected."""
        if self.notes is not None:
            with contextlib.suppress(OSError):
                os.write(self.notes, b'{"note":"host","host":%d,"code":%d}\n' % (self.number, self.code or 0))

    def send(self, number: int) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


def _pass_on(hosts: List[Host]) -> None:
    """A secret or a match in a line stays intact: nothing is written between the parts of a long one."""
    hosts = sorted(hosts, key=lambda host: not host.inside)
    if hosts[0].inside and any(len(host.text) > _WAITING_BYTES for host in hosts[1:]):
        hosts[0].text = b"\n" + hosts[0].text
    for host in hosts:
        host.pass_on()
        if host.inside:
            break


def _follow(hosts: List[Host]) -> int:
    """Waits until all hosts have exited and their output is read. Returns the code of the first that failed, else 0."""
    selector = selectors.DefaultSelector()
    for host in hosts:
        selector.register(host.pipe, selectors.EVENT_READ, host)
    first, failed_s = 0, 0.0
    signals = [(signal.SIGTERM, _AFTER_FAILURE_S), (signal.SIGKILL, _AFTER_FAILURE_S + AFTER_TERM_S)]
    while any(host.code is None for host in hosts):
        for key, _ in selector.select(_LOOK_S):
            if not key.data.read():
                selector.unregister(key.fd)
        if not selector.get_map():
            time.sleep(_LOOK_S)
        for host in hosts:
            if host.code is None and host.process.poll() is not None:
                code = host.process.returncode
                host.code = 128 - code if code < 0 else code
                host.note()
                if host.code and not first:
                    first, failed_s = host.code, time.monotonic()
                    line = b"--- host %d ended with code %d\n" % (host.number, host.code)
                    host.text = b"\n" * host.inside + line + host.text
        _pass_on(hosts)
        if first and signals and time.monotonic() >= failed_s + signals[0][1]:
            number, _ = signals.pop(0)
            for host in hosts:
                host.send(number)
    for key in list(selector.get_map().values()):  # written before the exit; a remaining child may write more
        while key.data.read() and selector.select(0):
            pass
    for host in hosts:
        host.end_line()
    _pass_on(hosts)
    return first


def main(arguments: List[str]) -> int:
    count, command = int(arguments[0]), arguments[1]
    hosts: List[Host] = []

    def forward(number: int, frame: object) -> None:
        for host in hosts:
            host.send(number)

    for signalled in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signalled, forward)
    with socket.socket() as trial:  # find a free port
        trial.bind(("127.0.0.1", 0))
        port = int(trial.getsockname()[1])
    for number in range(count):
        hosts.append(Host(number, count, command, port))
    return _follow(hosts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
