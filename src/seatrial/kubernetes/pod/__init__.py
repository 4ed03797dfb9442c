"""One pod: its logs, commands inside it, its ports, its files."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from seatrial.kubernetes.pod.commands import PodContainer
from seatrial.kubernetes.pod.files import NO_LIMIT, Fetched, fetch_archive
from seatrial.kubernetes.pod.logs import LOG_PATIENCE_S, read_log
from seatrial.kubernetes.pod.port_forward import Forward, port_forward


class Pod(PodContainer):
    """Made by `Kubernetes.pod`. Asks nothing until it is used; `container` is needed when there are several."""

    def log(self, patience_s: float = LOG_PATIENCE_S) -> AsyncIterator[bytes]:
        return read_log(self, patience_s)

    def forward(self, port: int) -> AbstractAsyncContextManager[Forward]:
        return port_forward(self, port)

    async def fetch_folder(
        self, path: str, into: Path, pack: Sequence[str] = (), most_bytes: int = NO_LIMIT
    ) -> Fetched:
        """`pack`: another command than `tar` that writes the archive. Raises TooLarge beyond `most_bytes`."""
        return await fetch_archive(self, path, into, pack, most_bytes)
