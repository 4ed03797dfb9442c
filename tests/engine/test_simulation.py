"""The engine against a simulated world: thousands of schedules with kills, faults, lost answers and interrupts, each of
which its seed makes again. `SEATRIAL_TEST_ALL=1` makes 100,000 of them; `SEATRIAL_SEEDS=17:18` just that one."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulation import Violation, sim_suite, simulate

from seatrial.engine import Run, phases
from seatrial.engine.attempt import Attempt
from seatrial.engine.phases import Collected, Removed
from seatrial.job import Exit, Outcome
from seatrial.suite import HERE
from world import EVERY

CHUNKS = 10
PER_CHUNK = 10_000 if EVERY else 100


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder where syncing costs nothing, if there is one."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="seatrial-simulation-") as folder:
        yield Path(folder)


def seeds(chunk: int) -> range:
    if chosen := os.environ.get("SEATRIAL_SEEDS"):
        first, _, end = chosen.partition(":")
        return range(int(first), int(end)) if chunk == 0 else range(0)
    return range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_always_holds_does_in_every_schedule(chunk: int, memory: Path) -> None:
    suite, plan = sim_suite()
    seen: Counter[str] = Counter()
    for seed in seeds(chunk):
        world = simulate(seed, suite, plan, memory)
        seen.update(kills=world.kills, faults=len(world.faults), interrupts=world.interrupts, jobs=len(world.jobs))
    if not os.environ.get("SEATRIAL_SEEDS"):  # the schedules were not all of one easy sort
        assert min(seen[what] for what in ("kills", "faults", "interrupts", "jobs")) > PER_CHUNK / 20


async def _forget(phase: Collected, part: Any) -> Removed:
    return Removed(phase.ended, phase.observation)


async def _nothing(self: Any) -> None: ...


@pytest.mark.parametrize(
    ("bugs", "found"),
    [
        ([(Collected, "advance", _forget), (Run, "_sweep", _nothing)], "is left"),
        ([(phases, "_exit", lambda said, stopping, part: Exit(Outcome.EXITED, 0))], "and was"),
        ([(Attempt, "_usable", lambda self, name: ("sim://a-server", HERE))], "is invalid"),
        ([(Attempt, "_stop_reason", lambda self, part: None)], "for something that will never come"),
    ],
)
def test_a_planted_bug_is_found(bugs: Any, found: str, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for planted in bugs:
        monkeypatch.setattr(*planted)
    suite, plan = sim_suite()

    def search() -> None:
        for seed in range(200):
            simulate(seed, suite, plan, memory)

    with pytest.raises(Violation, match=found):
        search()
