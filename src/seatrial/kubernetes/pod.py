"""One pod: its logs, commands inside it, its ports, its files."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from seatrial.kubernetes import files, streams
from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.files import Fetched
from seatrial.kubernetes.logs import PATIENCE_S, Logs
from seatrial.kubernetes.port_forward import Forward, port_forward
from seatrial.kubernetes.streams import Command, Completed


class Pod:
    """Made by `Kubernetes.pod`. Asks nothing until it is used; `container` is needed when there are several."""

    def __init__(self, connection: Connection, namespace: str, name: str, container: str = "") -> None:
        self.namespace, self.name, self.container = namespace, name, container
        self._connection = connection

    def logs(self, *, follow: bool = False, patience_s: float = PATIENCE_S) -> Logs:
        return Logs(self._connection, self.namespace, self.name, self.container, follow=follow, patience_s=patience_s)

    async def start(self, command: Sequence[str]) -> Command:
        """A command whose streams the caller reads; use it as an async context manager."""
        return await streams.start(self._connection, self.namespace, self.name, command, self.container)

    async def run(self, command: Sequence[str], *, check: bool = False, most_bytes: int = 16 << 20) -> Completed:
        place = (self._connection, self.namespace, self.name)
        return await streams.run(*place, command, self.container, check=check, most_bytes=most_bytes)

    def forward(self, port: int) -> AbstractAsyncContextManager[Forward]:
        return port_forward(self._connection, self.namespace, self.name, port)

    async def fetch_folder(self, path: str, into: Path, pack: Sequence[str] = ()) -> Fetched:
        """`pack`: a command that writes the archive, where there is no `tar`."""
        return await files.fetch_folder(self._connection, self.namespace, self.name, self.container, path, into, pack)
