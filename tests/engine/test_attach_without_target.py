"""What was collected needs no target any more: a run that is taken up when its target cannot be reached still gets its
results."""

from pathlib import Path

import pytest
from scripted import Fate, Script

from seatrial.job import Verdict
from seatrial.targets import TargetError, TargetLost

FATES = {"job": Fate(end_s=5.0), "server": Fate(ready_s=1.0), "driver": Fate(end_s=5.0)}
COUNT = 2


@pytest.mark.parametrize("error", [TargetError("no route to host"), TargetLost("who are you?")], ids=["error", "lost"])
@pytest.mark.parametrize(("shape", "parts"), [("single", 1), ("pair", 2)])
def test_results_are_written_though_the_target_cannot_be_reached(
    tmp_path: Path, shape: str, parts: int, error: TargetError
) -> None:
    made = Script(tmp_path, lambda job: FATES[job.part], shape=shape, count=COUNT)
    collected = COUNT * parts
    life = made.life(kill_when=lambda point: "collected" in point and made.events().count("collected") == collected)
    assert made.run(life) is None
    attached = made.life()
    attached.target.unreachable = error
    results = made.run(attached)
    assert results is not None, "the run stopped"
    assert [cell.verdict for cell in results.cells] == [Verdict.PASSED] * COUNT
    written = made.folder.read_results()
    assert written is not None
    assert [cell.verdict for cell in written.cells] == [Verdict.PASSED] * COUNT
    assert "left" in made.events()  # of what could not be removed
