"""Files out of a container whose connection is cut: with a real `tar` and shell, over a way that ends where it is told.
The way through a real pod is tested in test_client_in_pods.py."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.kubernetes import Access, KubernetesError, TooLarge
from seatrial.kubernetes import pod as files
from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.pod import Completed, Pod

SIZE = 3_000_000


class Near(Pod):
    """A container that is this machine. The first commands are cut after so many bytes; `between` happens then."""

    def __init__(self, *cuts: int, between: Callable[[], object] = lambda: None) -> None:
        super().__init__(Connection(Access("http://127.0.0.1:9")), "ns", "pod")
        self.cuts, self.between, self.commands, self.bytes = list(cuts), between, 0, 0

    async def run(
        self,
        command: Sequence[str],
        *,
        check: bool = False,
        most_bytes: int = 16 << 20,
        write: Callable[[bytes], object] | None = None,
    ) -> Completed:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        if write is None:
            return Completed(process.returncode or 0, output, b"")
        self.commands += 1
        cut = self.cuts.pop(0) if self.cuts else len(output)
        write(output[:cut])
        self.bytes += len(output[:cut])
        if cut < len(output):
            self.between()
            raise KubernetesError("tar: the connection ended before the command's result arrived")
        return Completed(process.returncode or 0, b"", b"")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "backoff_s", lambda attempt: 0.0)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    folder.mkdir()
    (folder / "data").write_bytes(os.urandom(SIZE))
    return folder


async def fetched(near: Near, kept: Path, tmp_path: Path) -> dict[str, bytes]:
    await near.fetch_folder(str(kept), tmp_path / "here")
    return {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}


async def test_it_goes_on_where_it_stopped_as_often_as_it_gets_further(kept: Path, tmp_path: Path) -> None:
    near = Near(*[300_000] * 8)
    assert await fetched(near, kept, tmp_path) == {"data": (kept / "data").read_bytes()}
    assert near.commands == 9
    assert near.bytes < SIZE + 20_000


async def test_one_that_gets_no_further_is_given_up(kept: Path, tmp_path: Path) -> None:
    near = Near(300_000, *[0] * 50)
    with pytest.raises(KubernetesError, match="before the command's result arrived"):
        await fetched(near, kept, tmp_path)
    assert not (tmp_path / "here").exists()
    assert near.commands < 10


async def test_of_a_folder_that_changed_in_between_all_is_fetched_anew(kept: Path, tmp_path: Path) -> None:
    def change() -> Any:
        (kept / "data").write_bytes(os.urandom(SIZE))
        (kept / "another").write_text("new")

    near = Near(1_000_000, between=change)
    assert await fetched(near, kept, tmp_path) == {"data": (kept / "data").read_bytes(), "another": b"new"}
    assert near.commands == 3


async def test_what_is_larger_than_it_may_be_is_not_fetched(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="exceeds 1000 bytes"):
        await Near().fetch_folder(str(kept), tmp_path / "here", most_bytes=1000)
    assert not (tmp_path / "here").exists()
