"""What was collected needs no target any more: a run that is taken up when its target cannot be reached, or does not
answer, still gets its results."""

from pathlib import Path

import pytest
from scripted import Fate, Script

from seatrial.engine.run import OPEN_S
from seatrial.job import Verdict
from seatrial.targets import TargetError, TargetLost

FATES = {"job": Fate(end_s=5.0), "server": Fate(ready_s=1.0), "driver": Fate(end_s=5.0)}
COUNT = 2


ERRORS = [TargetError("no route to host"), TargetLost("who are you?"), None]


@pytest.mark.parametrize("error", ERRORS, ids=["error", "lost", "hangs"])
@pytest.mark.parametrize(("shape", "parts"), [("single", 1), ("pair", 2)])
def test_results_are_written_though_the_target_cannot_be_reached(
    tmp_path: Path, shape: str, parts: int, error: TargetError | None
) -> None:
    made = Script(tmp_path, lambda job: FATES[job.part], shape=shape, count=COUNT)
    collected = COUNT * parts
    life = made.life(kill_when=lambda point: "collected" in point and made.events().count("collected") == collected)
    assert made.run(life) is None
    attached = made.life()
    attached.target.unreachable, attached.target.hangs = error, error is None
    attached_s = made.world.now_s
    results = made.run(attached)
    assert results is not None, "the run stopped"
    assert [cell.verdict for cell in results.cells] == [Verdict.PASSED] * COUNT
    written = made.folder.read_results()
    assert written is not None
    assert [cell.verdict for cell in written.cells] == [Verdict.PASSED] * COUNT
    assert "left" in made.events()  # of what could not be removed
    assert [at_s for at_s, _, state in attached.updates if state == "passed"] == [attached_s] * COUNT
    assert made.world.now_s <= attached_s + 2 * OPEN_S + 1.0


def test_verdicts_do_not_wait_for_a_target_that_new_cells_need(tmp_path: Path) -> None:
    made = Script(tmp_path, lambda job: FATES[job.part], count=COUNT, parallel=1)
    life = made.life(kill_when=lambda point: point == "synced collected")
    assert made.run(life) is None
    attached = made.life()
    attached.target.hangs = True
    attached_s = made.world.now_s
    assert made.run(attached, kill_after_s=1000.0) is None
    (update,) = attached.updates
    assert update[0] == attached_s
    assert update[2] == "passed"
