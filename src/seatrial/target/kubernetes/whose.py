"""Whose a line of a log is: before it stand its host, when there are several, and another container than the trial."""


def prefix_of(number: int, hosts: int, container: str = "") -> bytes:
    host = b"[%d] " % number if hosts > 1 else b""
    return host + (b"(%s) " % container.encode() if container else b"")


class Prefixed:
    """Fed with blocks that are cut anywhere; gives whole lines, each with `prefix`. Without one, blocks as they are."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def feed(self, block: bytes) -> bytes:
        if not self._prefix:
            return block
        *lines, self._rest = (self._rest + block).split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in lines)

    def end(self) -> bytes:
        """The last line, when it was not ended; it gets its newline."""
        return self._prefix + self._rest + b"\n" if self._rest else b""
