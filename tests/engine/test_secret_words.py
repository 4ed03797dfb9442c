"""A secret that is a word of the records is a secret all the same, and changes no verdict."""

import sys
from pathlib import Path

import nbformat

from seatrial.agent.masking.mask import MASK, WORDS
from world import World

SUITE = """
name: words
secrets: {{{secrets}}}
env: {{{env}}}
runtimes: {{here: {{interpreter: {python}}}}}
trials:
  own:
    kind: runtime
    matrix: {{runtime: here}}
    commands: [sh]
    imports: [json, no_such_module]
    run: ["exit 3", "echo the value is done"]
    notebooks: [{{path: good.ipynb}}, {{path: bad.ipynb}}]
    xfail: [{{step: "import no_such_module", why: "to have one"}}]
  learn:
    kind: training
    command: 'for n in 1 2 3 4; do echo "step: $n loss: 0.$n"; done; echo done; echo value > file'
    log: {{must: [done, "loss: 0.4"], never: [Traceback]}}
    loss: {{pattern: 'loss: (\\S+)', target: 0.4, tolerance: 0.1}}
    files: {{made: {{match: file, count: 1}}}}
"""


def notebook(path: Path, *sources: str) -> None:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), path)


def judged(world: World, words: list[str]) -> list[tuple[str, str, list[tuple[str, str, str, str]]]]:
    """What a run with these secrets came to, cell by cell."""
    variables = {f"SECRET_{number}": word for number, word in enumerate(words)}
    secrets = ", ".join(f"{name}: {{env: {name}}}" for name in variables)
    env = ", ".join(f"{name}: {{secret: {name}}}" for name in variables)
    world.suite(SUITE.format(secrets=secrets, env=env, python=sys.executable))
    world.seatrial("run", "suite.yaml", check=1, **variables)
    cells = world.results().cells
    return [
        (cell.id, cell.verdict, [(one.step, one.check, one.verdict, one.class_) for one in cell.findings])
        for cell in cells
    ]


def test_secrets_that_are_words_of_the_records_are_masked_and_change_no_verdict(world: World) -> None:
    notebook(world.folder / "good.ipynb", "print('the code')", "{'value': 'text'}")
    notebook(world.folder / "bad.ipynb", "1 / 0")
    plain = judged(world, [])
    assert judged(world, sorted(word for word in WORDS if len(word) >= 4)) == plain
    (kept,) = (world.run().path).glob("cells/*/1/files/*/good.*")
    outputs = [cell.outputs[0] for cell in nbformat.read(kept, as_version=4).cells]
    assert outputs[0].text == f"the {MASK}\n"
    assert outputs[1].data["text/plain"] == f"{{'{MASK}': '{MASK}'}}"
    logs = [path.read_text() for path in world.run().path.glob("cells/*/1/log.txt")]
    assert any(f"the {MASK} is {MASK}" in log for log in logs)
