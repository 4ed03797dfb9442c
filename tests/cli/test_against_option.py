"""What is new in a run, from the command line: since the last time that each cell ran, or since a run that is named."""

import json
from typing import Any

from world import World

SUITE = """\
name: nightly
trials:
  works:
    kind: runtime
    matrix: {n: [one, two]}
    run: ["test ! -e FOLDER/broken-${n} || { echo 'CUDA error: out of memory'; exit 1; }"]
"""


def news(world: World) -> dict[str, Any]:
    data = json.loads(world.run().results.read_text())
    return {
        "against": data["against"],
        **{cell["id"]: cell["news"]["change"] for cell in data["cells"] if cell["news"]},
        **{cause["text"]: cause["news"]["change"] for cause in data["causes"]},
    }


def test_a_run_says_what_is_new_since_each_cell_ran_last_and_since_a_run_that_is_named(world: World) -> None:
    world.suite(SUITE.replace("FOLDER", str(world.folder)))
    world.seatrial("run", "suite.yaml", check=0)
    good = world.results().run
    assert news(world) == {"against": "history", "works[n=one]": "first", "works[n=two]": "first"}
    (world.folder / "broken-one").touch()
    world.seatrial("run", "suite.yaml", "--select", "n=one", check=1)
    assert news(world) == {"against": "history", "works[n=one]": "new", "CUDA error: out of memory": "new"}
    (world.folder / "broken-two").touch()
    world.seatrial("run", "suite.yaml", check=1)
    assert news(world) == {
        "against": "history",
        "works[n=one]": "known",
        "works[n=two]": "new",
        "CUDA error: out of memory": "known",
    }
    shown = json.loads(world.seatrial("report", "last", "--json", "--against", good, check=0).stdout)
    assert (shown["against"], shown["changes"]) == (good, {"new": 2})
    (world.folder / "broken-two").unlink()
    world.seatrial("run", "suite.yaml", "--against", good, check=1)
    assert news(world) == {
        "against": good,
        "works[n=one]": "new",
        "works[n=two]": "same",
        "CUDA error: out of memory": "new",
    }
    assert "run not found: 'no-such'" in world.seatrial("run", "suite.yaml", "--against", "no-such", check=2).stderr
