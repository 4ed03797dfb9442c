"""How a pod's files come home from images that lack things."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

from seatrial.target.kubernetes import names
from seatrial.target.kubernetes.files.collect import WITHOUT_TAR
from seatrial.target.kubernetes.plain import script


def test_without_a_tar_a_python_packs(tmp_path: Path) -> None:
    agent, out = tmp_path / "agent", tmp_path / "out"
    agent.mkdir()
    (out / "files").mkdir(parents=True)
    (agent / "start.sh").write_text(script("start"))
    (out / "files" / "kept").write_bytes(os.urandom(100_000))
    command = [part.replace(names.AGENT, str(agent)).replace(names.OUT, str(out)) for part in WITHOUT_TAR]
    done = subprocess.run(command, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        found = archive.extractfile("./files/kept")
        assert found is not None
        assert found.read() == (out / "files" / "kept").read_bytes()
