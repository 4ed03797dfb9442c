"""What can go wrong with a cluster: what happened, where, and what to do next."""

import re
from pathlib import Path

LOOKED_AT_BYTES = 64 << 10
_NO_MORE_WATCHES = "too many open files"
_STACK = re.compile(r"goroutine \d+ .*\[.*\]:$")


class ClusterError(Exception):
    """Its text says what happened; `do` says what to do next."""

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(f"{what}\n{do}" if do else what)
        self.what = what
        self.do = do


class Unavailable(ClusterError):
    """This machine lacks something that a cluster needs: tests that want one are skipped, with this as the reason."""


class BuildFailed(ClusterError):
    def __init__(self, what: str, lines: list[str], log: Path) -> None:
        super().__init__("\n".join([f"{what} did not build. Its last lines:", *lines]), f"The whole of it: {log}")
        self.lines = lines


class PartFailed(ClusterError):
    """A part of the cluster ended, or did not become ready."""

    def __init__(self, part: str, what: str, lines: list[str], do: str = "") -> None:
        if not do and any(_NO_MORE_WATCHES in line for line in lines):
            # Of files there are always enough; each part of a cluster watches some, by an instance of inotify.
            do = "Have fewer clusters at once, or as root: sysctl fs.inotify.max_user_instances=1024"
        super().__init__("\n".join([f"{part} {what}. The last lines of its log:", *lines]), do)
        self.part = part
        self.lines = lines


class PortTaken(ClusterError):
    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} is taken by another program.", "Name another with --port, or none: a free one is found."
        )
        self.port = port


class Different(ClusterError):
    """A cluster of this name is there, but not as it is asked for."""

    def __init__(self, name: str, there: str, asked: str) -> None:
        super().__init__(
            f"cluster {name} is there {there}, and was asked for {asked}.",
            f"Take another name, or first: python -m cluster down {name}",
        )


def last_lines(path: Path, count: int = 15, width: int = 400) -> list[str]:
    """The end of a log, bounded, whatever is in it. Of a Go program that panicked: what it said before the stacks."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - LOOKED_AT_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError as error:
        return [f"({path}: {error.strerror})"]
    stacks = next((number for number, line in enumerate(lines) if _STACK.match(line)), len(lines))
    lines = [line[:width] for line in lines[:stacks] if line.strip()]
    return lines[-count:] or [f"({path} is empty)"]
