"""`examples/training`: its suite means what it says, and its story comes out as it is told."""

import shutil
import subprocess
from pathlib import Path

import pytest

from seatrial.kinds.training.kind import kind
from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import load
from world import EVERY, SEATRIAL, World

EXAMPLE = Path(__file__).parents[3] / "examples" / "training"


def test_its_suite_loads_and_its_jobs_find_the_program(tmp_path: Path) -> None:
    cells = expand(load(EXAMPLE / "suite.yaml", *models())).cells
    assert [cell.trial for cell in cells] == ["steady", "diverges", "hangs"]
    for cell in cells:
        (code,) = kind.parts(cell)[0].job.inputs
        assert (Path(code.source) / "train.py").is_file()


def test_the_story_changes_a_line_that_is_there() -> None:
    assert "BATCH_S = 0.100" in (EXAMPLE / "job" / "train.py").read_text()
    assert "s/^BATCH_S = 0.100/BATCH_S = 0.150/" in (EXAMPLE / "demo.sh").read_text()


@pytest.mark.every
@pytest.mark.skipif(not EVERY, reason="installs JAX and trains a dozen times: minutes, with SEATRIAL_TEST_ALL=1")
def test_the_story_of_a_regression_ends_with_slower(world: World) -> None:
    folder = world.folder / "story"
    done = subprocess.run(
        ["sh", str(EXAMPLE / "demo.sh"), SEATRIAL, str(folder)],
        env=world.env,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "↓ 1 slower" in done.stdout
    shutil.rmtree(folder)
