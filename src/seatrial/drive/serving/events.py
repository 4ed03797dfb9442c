"""Server-sent events, as servers of OpenAI's protocol stream their answers. Pure."""

from collections.abc import Iterable, Iterator

DONE = b"[DONE]"


class Events:
    """The data of each event of a stream, from parts that may end anywhere, in the middle of a character too."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, part: bytes) -> Iterator[bytes]:
        if b"\r" in part or self._rest.endswith(b"\r"):
            self._rest = (self._rest + part).replace(b"\r\n", b"\n")
        else:
            self._rest += part
        if b"\n\n" not in part and b"\n\n" not in self._rest:
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            if data := _event_data(event.split(b"\n")):
                yield data

    @property
    def rest(self) -> bytes:
        """What came after the last whole event."""
        return self._rest.strip()


def _event_data(lines: Iterable[bytes]) -> bytes:
    found = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value.removeprefix(b" "))
        elif name == b"error":  # llama.cpp's way of an error in the middle
            found.append(b'{"error": %s}' % value.strip())
    return b"\n".join(found)
