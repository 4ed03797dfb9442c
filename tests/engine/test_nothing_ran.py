"""A cell in which nothing was executed is skipped, and a run in which nothing passed is not green."""

import json

import pytest

from kinds.serving.llama import CASES, command
from world import World


def notebook(*cells: dict[str, object]) -> str:
    made = [{"metadata": {}, "source": "", **cell} for cell in cells]
    code = [{**cell, "outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell for cell in made]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


MARKDOWN = {"cell_type": "markdown", "source": "# A title"}
TAGGED = {"cell_type": "code", "source": "1 / 0", "metadata": {"tags": ["skip"]}}


@pytest.mark.parametrize("cells", [(), (MARKDOWN,), (MARKDOWN, TAGGED)])
def test_a_notebook_without_a_code_cell_that_runs_is_no_pass(
    world: World, cells: tuple[dict[str, object], ...]
) -> None:
    (world.folder / "empty.ipynb").write_text(notebook(*cells))
    world.suite("""
name: empty
runtimes: {r: {python: ">=3.11", packages: [ipykernel]}}
trials: {t: {kind: runtime, runtime: r, notebooks: [{path: empty.ipynb, parameters: {epochs: 2}}]}}
""")
    done = world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert (cell.verdict, cell.why) == ("skipped", "no code cell was run")
    assert world.results().verdict == "skipped"
    assert "no code cell was run" in done.stdout


def test_a_server_that_was_asked_nothing_is_no_pass(world: World) -> None:
    world.suite(f"""
name: serving
trials:
  tiny:
    kind: serving
    model: tiny
    server: {{command: '{command()}', ready: {{http: /health, within: 10m}}}}
    cases: [{CASES}]
    skip: [{{case: "*", why: not today}}]
""")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    assert (cell.verdict, cell.why) == ("skipped", "all 18 cases are skipped")


def test_a_plan_without_cells_is_an_error(world: World) -> None:
    world.suite("name: n\ntrials: {t: {kind: runtime, matrix: {n: [1]}, exclude: [{n: 1, why: no}], run: [sh]}}")
    for args in (("plan", "suite.yaml"), ("plan", "suite.yaml", "--json"), ("run", "suite.yaml")):
        done = world.seatrial(*args, check=2)
        assert "nothing to run: 1 combinations are excluded or deselected" in done.stderr
