"""`make check` finds large files that git tracks."""

import shutil
import subprocess
from pathlib import Path

import pytest

from large_files import LIMIT, large_files


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_only_tracked_files_over_the_limit_that_are_not_allowed_are_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "ä folder").mkdir()
    for name, size in {"ä folder/large": LIMIT + 1, "allowed": LIMIT + 1, "at-limit": LIMIT, "gone": LIMIT + 1}.items():
        (tmp_path / name).write_bytes(b"\0" * size)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "gone").unlink()
    (tmp_path / "untracked").write_bytes(b"\0" * (LIMIT + 1))
    assert large_files(tmp_path, allowed={"allowed"}) == [("ä folder/large", LIMIT + 1)]
