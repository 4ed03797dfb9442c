"""Who watches a training here sees where it is."""

import asyncio
from pathlib import Path

import pytest
from reads import LOSS, STEP

from seatrial.job import Job, Step
from seatrial.target.local import kind

TRAIN = "for n in 1 2 3 4 5 6; do echo step: $n loss: 0.$n; sleep 0.4; done"
OWN = r"""printf '{"note":"progress","text":"half \\u001b[31mway\\n  there"}\n' >&3; sleep 0.6"""


async def test_the_last_step_and_what_a_program_says_itself_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    target = kind.open("here", kind.options())
    await target.open()
    values = {"step": STEP, "loss": LOSS}
    steps = (Step("train", "train", {"command": TRAIN, "values": values}), Step("own", "run", {"command": OWN}))
    job = Job("progress-1", "progress", "00000000", 1, "progress", steps)
    seen: list[str] = []
    try:
        handle = await target.submit(job, {})
        async with asyncio.timeout(60):
            async for event in target.watch():
                if event.handle == handle and event.progress:
                    seen.append(event.progress)
                if event.handle == handle and event.exit:
                    break
        await target.remove(handle)
    finally:
        await target.close()
    assert any(text.startswith("step ") and ", loss 0." in text for text in seen)
    assert seen[-1] == "half [31mway there"
