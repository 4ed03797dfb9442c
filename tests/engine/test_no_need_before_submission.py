"""A part that is not needed any more is not submitted, though that became so while it was asked where its peer is."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import Fate, Script, ScriptedLife
from simulation import READY_S

from seatrial.job import Exit, Outcome

FATES = {"server": Fate(ready_s=1.0), "driver": Fate(end_s=5.0)}


def interrupt(script: Script, life: ScriptedLife) -> None:
    assert life.engine is not None
    life.engine.interrupt()


def end_server(script: Script, life: ScriptedLife) -> None:
    script.job("-server")._end_itself(Exit(Outcome.EXITED, 1))


@pytest.mark.parametrize("happens", [interrupt, end_server])
def test_a_driver_is_not_submitted_after_that(tmp_path: Path, happens: Callable[[Script, ScriptedLife], None]) -> None:
    made = Script(tmp_path, lambda job: FATES[job.part], shape="pair", retries=0)
    life = made.life()
    life.target.addresses_s = 3.0
    life.target.meanwhile = lambda: happens(made, life)
    results = made.run(life)
    assert results is not None
    assert [job.part for job in life.target.submissions] == ["server"]
    assert made.events().count("submitted") == 1


def test_a_driver_is_submitted_when_nothing_happens_meanwhile(tmp_path: Path) -> None:
    made = Script(tmp_path, lambda job: FATES[job.part], shape="pair", retries=0)
    life = made.life()
    life.target.addresses_s = 3.0
    assert made.run(life) is not None
    assert [job.part for job in life.target.submissions] == ["server", "driver"]


def test_a_driver_is_not_submitted_when_its_server_is_ready_too_late(tmp_path: Path) -> None:
    fates = {"server": Fate(ready_s=READY_S + 5.0, stop_s=20.0), "driver": Fate(end_s=5.0)}
    made = Script(tmp_path, lambda job: fates[job.part], shape="pair", retries=0)
    life = made.life()
    results = made.run(life)
    assert results is not None
    assert "ready" in made.events()  # while it was being stopped
    assert [job.part for job in life.target.submissions] == ["server"]
    assert results.cells[0].attempts[0].parts["server"].exit.outcome is Outcome.UNREADY
