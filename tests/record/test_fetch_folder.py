"""Files that a job wrote to a storage: fetching is tried again, the job is not."""

from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from seatrial.record import RecordError
from seatrial.record.remote import fetch_folder


class Flaky(LocalFileSystem):  # type: ignore[misc]
    """A real file system on which the next transfers fail with `errors`."""

    protocol = "flaky"
    cachable = False
    errors: ClassVar[list[Exception]] = []

    def get_file(self, rpath: str, lpath: str, **options: Any) -> None:
        if self.errors:
            raise self.errors.pop()
        super().get_file(rpath, lpath, **options)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    (tmp_path / "job" / "outputs").mkdir(parents=True)
    (tmp_path / "job" / "outputs" / "m.json").write_text("7")
    return f"flaky://{tmp_path}/job"


def test_a_connection_that_breaks_is_tried_again(storage: str, tmp_path: Path, waited: list[float]) -> None:
    Flaky.errors = [ConnectionResetError("cut"), TimeoutError("slow")]
    fetch_folder(storage, ["**/m.json"], tmp_path / "here")
    assert (tmp_path / "here/outputs/m.json").read_text() == "7"
    assert waited == [1.0, 4.0]


@pytest.mark.parametrize(("error", "waits"), [(ConnectionResetError("cut"), 3), (PermissionError("no"), 0)])
def test_what_keeps_failing_is_told_and_what_cannot_pass_is_not_tried_again(
    storage: str, tmp_path: Path, waited: list[float], error: Exception, waits: int
) -> None:
    Flaky.errors = [error] * 9
    with pytest.raises(RecordError, match=f"cannot read {storage}: {type(error).__name__}: {error}"):
        fetch_folder(storage, ["**/m.json"], tmp_path / "here")
    assert len(waited) == waits
