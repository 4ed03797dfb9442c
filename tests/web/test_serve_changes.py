"""What would change something is shown as the change and the command, and the command does just that."""

import html
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli import main
from seatrial.cli.baseline.scope import RecenterPreview
from seatrial.job import Verdict
from seatrial.record.history import open_history
from web.conftest import cell_result, results, serving

SUITE = """
name: nightly
trials:
  train:
    kind: training
    matrix: {mode: [b], n: ["4"]}
    command: "true"
    metrics: {step_time: {log: 'step_time (\\S+)', unit: s, better: lower}}
    baseline: bounds.yaml
"""


def seatrial(*args: str) -> str:
    done = CliRunner().invoke(main, list(args))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def slower(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bounds of eight good runs, and then three that are slower; the current folder is that of the suite."""
    monkeypatch.chdir(runs.parent)
    Path("suite.yaml").write_text(SUITE)
    history = open_history(runs / "history.db")
    for night in range(8):
        at_s = 1_700_000_000.0 + 86_400 * night
        cell = cell_result("train", 4, value=2.0 + night % 3 / 100, at_s=at_s)
        history.add(results(f"nightly-{night}", [cell], at_s))
    seatrial("baseline", "update", "suite.yaml", "--reason", "first")
    for night in range(8, 11):
        at_s = 1_700_000_000.0 + 86_400 * night
        cell = cell_result("train", 4, Verdict.SLOWER, value=2.5 + night % 3 / 100, at_s=at_s)
        history.add(results(f"nightly-{night}", [cell], at_s))
    return runs


async def test_a_new_level_is_shown_as_a_diff_and_the_command_makes_just_that(slower: Path) -> None:
    history = open_history(slower / "history.db")
    before = Path("bounds.yaml").read_text()
    async with serving(slower, recenter=RecenterPreview(slower, history)) as client:
        page = (await client.get("/f/train%5Bmode=b,n=4%5D/step_time")).text
    assert Path("bounds.yaml").read_text() == before, "looking changes nothing"
    assert history.marks() == []
    shown = html.unescape(re.sub(r"<[^>]+>", "", page.partition('<pre class="diff">')[2].partition("</pre>")[0]))
    command = html.unescape(re.findall(r"<code>(seatrial baseline recenter [^<]+)</code>", page)[0])
    made = seatrial(*shlex.split(command)[1:])
    timeless = re.compile(r"at: \"[^\"]+\"")

    def lines(text: str) -> list[str]:
        return [timeless.sub("at", line) for line in text.splitlines() if line.startswith(("+", "-"))]

    assert lines(shown) == lines(made)
    assert len(lines(shown)) > 5


async def test_an_alarm_has_the_commands_that_judge_it(slower: Path) -> None:
    async with serving(slower) as client:
        page = (await client.get("/f/train%5Bmode=b,n=4%5D/step_time")).text
        assert "3 unreviewed alerts" in page
        commands = [html.unescape(one) for one in re.findall(r"<code>(seatrial history mark [^<]+)</code>", page)]
        seatrial(*shlex.split(commands[0])[1:])
        after = (await client.get("/f/train%5Bmode=b,n=4%5D/step_time")).text
        assert "2 unreviewed alerts" in after
        assert "regression: why" in after
    (mark,) = open_history(slower / "history.db").marks()
    assert (mark.run, mark.benchmark, mark.label) == ("nightly-10", "train[mode=b,n=4]", "regression")


@pytest.mark.parametrize(
    ("broken", "said"), [("name: [", "suite.yaml:2"), ("name: x\ntrials: {}\n", "suite.yaml:2"), (None, "")]
)
async def test_a_suite_that_cannot_be_read_takes_nothing_else_away(slower: Path, broken: str | None, said: str) -> None:
    if broken is None:
        Path("suite.yaml").unlink()
    else:
        Path("suite.yaml").write_text(broken)
    history = open_history(slower / "history.db")
    async with serving(slower, recenter=RecenterPreview(slower, history)) as client:
        page = await client.get("/f/train%5Bmode=b,n=4%5D/step_time")
    assert page.status == 200
    assert "Open regression" in page.text or "unreviewed alert" in page.text
    assert said in page.text
    assert ('<pre class="diff">' in page.text) is False
