"""A history that the previous version wrote: its causes stay known, though their messages have been reworded."""

import sqlite3
from pathlib import Path

from world import World

WRITTEN = Path(__file__).with_name("previous_history.sql")
TRIAL = "kind: runtime, facts: false, retries: 0"
SUITE = f"""
name: previous
trials:
  code: {{{TRIAL}, run: ["exit 3"]}}
  command: {{{TRIAL}, commands: [no-such-command]}}
  module: {{{TRIAL}, imports: [no_such_module]}}
  text: {{{TRIAL}, run: [{{command: "echo hello", contains: [goodbye]}}]}}
  never: {{{TRIAL}, run: [{{command: "echo hello", never: [hello]}}]}}
  slow: {{{TRIAL}, run: [{{command: "sleep 60", timeout: 1s}}]}}
  own: {{{TRIAL}, run: ["echo 'ValueError: of the program' >&2; exit 1"]}}
  training:
    kind: training
    retries: 0
    command: "echo step 1 loss 2.5"
    metrics: {{step_time: {{log: "step_time: ([\\\\d.]+)"}}}}
"""


def test_causes_of_the_previous_version_stay_known(world: World) -> None:
    (world.folder / "runs").mkdir()
    with sqlite3.connect(world.folder / "runs" / "history.db") as database:
        database.executescript(WRITTEN.read_text())
    first = min(database.execute("SELECT run FROM runs"))[0]
    before = dict(database.execute("SELECT trial, headline FROM cells").fetchall())
    database.close()
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", check=1)
    results = world.results()
    assert len(results.causes) == len(results.cells) == len(before) == 8
    assert {cause.news.since.run for cause in results.causes if cause.news and cause.news.since} == {first}
    assert [
        cell.id for cell in results.cells if not (cell.news and cell.news.since and cell.news.since.run == first)
    ] == []
    texts = {cell.trial: cell.attempts[-1].headline for cell in results.cells}
    assert {trial for trial, text in texts.items() if text == before[trial]} == {"module", "own", "training"}
