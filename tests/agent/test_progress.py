"""Who watches a training here sees where it is."""

import asyncio
from pathlib import Path

import pytest
from reads import LOSS, STEP

from seatrial.job import Job, Step
from seatrial.targets.local import kind

UNTIL = "; until test -e {}; do sleep 0.05; done"
TRAIN = "for n in 1 2 3 4 5 6; do echo step: $n loss: 0.$n; done"
OWN = r"""printf '{"note":"progress","text":"half \\u001b[31mway\\n  there"}\n' >&3"""


async def test_the_last_step_and_what_a_program_says_itself_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    target = kind.open("here", kind.options())
    await target.open()
    values = {"step": STEP, "loss": LOSS}
    trained, said = tmp_path / "trained", tmp_path / "said"
    train, own = TRAIN + UNTIL.format(trained), OWN + UNTIL.format(said)
    steps = (
        Step("train", "command", {"command": train, "follow": {"values": values}}),
        Step("own", "command", {"command": own}),
    )
    job = Job(name="progress-1", run="progress", cell="00000000", attempt=1, title="progress", steps=steps)
    seen: list[str] = []
    try:
        handle = await target.submit(job, {})
        async with asyncio.timeout(600):
            async for event in target.watch():
                if event.handle == handle and event.progress:
                    seen.append(event.progress)
                    # The name of a step comes first, if somebody looks before it has said anything.
                    trained.touch() if ", loss 0." in event.progress else None
                    said.touch() if event.progress.startswith("half") else None
                if event.handle == handle and event.exit:
                    break
        await target.remove(handle)
    finally:
        await target.close()
    assert any(text.startswith("step ") and ", loss 0." in text for text in seen)
    assert seen[-1] == "half [31mway there"
