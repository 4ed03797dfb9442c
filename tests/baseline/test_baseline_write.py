"""Writing a file of bounds where it cannot be written: nothing is made, nothing is left behind, and why is told."""

from pathlib import Path

import pytest

from seatrial.baseline import Baselines
from seatrial.baseline import edit as file_change
from seatrial.baseline.edit import Edit, FileChange
from seatrial.baseline.selection import SelectedFile
from seatrial.record import write_whole

EDIT = Edit("train", "x", {"upper": 2.0}, {"at": "1", "what": "made", "why": "first"})


def place(path: Path) -> SelectedFile:
    return SelectedFile("bounds.yaml", path, False, Baselines(str(path)), {"train": "train"})


def test_a_link_to_nothing_is_told_and_no_folder_is_made(tmp_path: Path) -> None:
    link = tmp_path / "bounds.yaml"
    link.symlink_to("disk/bounds.yaml")
    with pytest.raises(OSError, match=r"cannot write bounds.yaml: link target not found: disk/bounds.yaml"):
        file_change.change(place(link), [EDIT])
    assert list(tmp_path.iterdir()) == [link]


def test_a_folder_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot write bounds.yaml: folder not found: .*/disk$"):
        file_change.change(place(tmp_path / "disk" / "bounds.yaml"), [EDIT])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_went_away_meanwhile_is_told(tmp_path: Path) -> None:
    gone = FileChange("bounds.yaml", tmp_path / "disk" / "bounds.yaml", None, b"x", "")
    with pytest.raises(OSError, match=r"^cannot write bounds.yaml: No such file or directory$"):
        file_change.write_change(gone)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_put_in_its_place_is_taken_away_again(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    (path / "inside").mkdir(parents=True)  # a file cannot replace it
    with pytest.raises(OSError, match="directory"):
        write_whole(path, b"x")
    assert list(tmp_path.iterdir()) == [path]
