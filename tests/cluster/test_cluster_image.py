"""Images made of this machine's files."""

import gzip
import io
import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from cluster import image
from cluster.errors import Unavailable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATRIAL_CACHE", str(tmp_path / "cache"))


def _opened(archive: Path) -> tuple[dict[str, Any], tarfile.TarFile]:
    """Configuration and layer, each found by its digest as a runtime would."""
    with tarfile.open(archive) as outer:

        def read(name: str) -> bytes:
            member = outer.extractfile(name)
            assert member is not None
            return member.read()

        def blob(descriptor: dict[str, Any]) -> bytes:
            data = read(f"blobs/{descriptor['digest'].replace(':', '/')}")
            assert len(data) == descriptor["size"]
            return data

        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        return config, tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(manifest["layers"][0]))))


def _content(tmp_path: Path) -> image.Content:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    return image.Content({"opt/deep/program": program}, {"bin/it": "/opt/deep/program"}, ["/bin/it"])


def test_an_archive_has_files_links_folders_and_how_to_start(tmp_path: Path) -> None:
    image.write_archive("localhost/it:1", _content(tmp_path), tmp_path / "it.tar")
    config, layer = _opened(tmp_path / "it.tar")
    assert config["config"]["Entrypoint"] == ["/bin/it"]
    names = layer.getnames()
    assert names.index("opt") < names.index("opt/deep") < names.index("opt/deep/program")
    assert layer.getmember("opt/deep/program").mode & 0o444 == 0o444, "pods need not be root to read it"
    assert layer.getmember("bin/it").linkname == "/opt/deep/program"
    assert layer.getmember("tmp").mode == 0o1777


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        image.write_archive("localhost/it:1", _content(tmp_path), tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_folder_of_ours_can_be_put_into_the_python_image_and_its_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("no busybox")
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "module.py").write_text("x = 1\n")
    first = image.python_archive({"/opt/ours": ours}, "localhost/ours:1")
    config, layer = _opened(first)
    assert "opt/ours/module.py" in layer.getnames()
    assert layer.getmember("root").mode == 0o755
    assert config["config"]["Env"][0].startswith("PATH=")
    assert image.python_archive({"/opt/ours": ours}, "localhost/ours:1") == first
    monkeypatch.setattr(image, "write_archive", lambda name, content, out: out.touch())
    (ours / "more.py").write_text("y = 2\n")
    assert image.python_archive({"/opt/ours": ours}, "localhost/ours:1") != first


def test_without_busybox_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="busybox-static"):
        image.busybox_archive()


def test_archives_that_were_not_used_for_a_week_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("no busybox")
    monkeypatch.setenv("SEATRIAL_CACHE", str(tmp_path))
    made = image.busybox_archive()
    old, recent = made.with_name("old.tar"), made.with_name("recent.tar")
    for path, age_s in ((old, image.UNUSED_S + 60), (recent, image.UNUSED_S - 3600), (made, image.UNUSED_S + 60)):
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)
    assert image.busybox_archive() == made
    assert sorted(path.name for path in made.parent.iterdir()) == sorted([made.name, "recent.tar"])
