"""docs/verdicts.md is true: each of its situations is run. `make reference` writes its tables."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from situations import SECTIONS, Here, Situation

from seatrial.record import UnknownRun
from world import World

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
TABLES = re.compile(r"(?<=<!-- situations -->\n).*?(?=<!-- end -->)", re.DOTALL)


class Row(NamedTuple):
    situation: Situation
    code: int
    run: str
    cells: str


def row(folder: Path, env: dict[str, str], situation: Situation) -> Row:
    folder.mkdir(parents=True)
    made = Here if situation.quick else World
    world = made(folder, {**env, "SEATRIAL_STATE": str(folder / "state")})
    code = situation.act(world)
    code = code if code >= 0 else 128 - code  # as a shell shows a signal
    try:
        results = world.run().read_results()
    except UnknownRun:
        return Row(situation, code, "–", "–")
    if results is None:
        world.reap()  # its job may still be at work
        return Row(situation, code, "not finished", "–")
    cells = [f"`{cell.verdict}`{', flaky' if cell.flaky else ''}" for cell in results.cells]
    return Row(situation, code, f"`{results.verdict}`", "; ".join(cells))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")}
    env["SEATRIAL_CACHE"] = os.environ["SEATRIAL_CACHE"]
    every = World(tmp_path_factory.mktemp("verdicts"), env)
    situations = [one for some in SECTIONS.values() for one in some]
    work = [(every.state / str(number), env, one) for number, one in enumerate(situations)]
    made = {one.text: row(folder, env, one) for folder, env, one in work if one.quick}  # these change our own folder
    with ThreadPoolExecutor(4) as pool:  # most of the time a situation waits for its job
        made |= {
            one.situation.text: one for one in pool.map(lambda item: row(*item), (w for w in work if not w[2].quick))
        }
    assert every.processes() == []
    return [made[one.text] for one in situations]


def tables(rows: list[Row]) -> str:
    lines = []
    left = iter(rows)
    for section, some in SECTIONS.items():
        lines += [f"## {section}", "| situation | exit code | run | cells |", "|---|---|---|---|"]
        lines += [f"| {one.situation.text} | {one.code} | {one.run} | {one.cells} |" for one in islice(left, len(some))]
        lines.append("")
    return "\n".join(lines)


def test_nothing_exits_with_0_unless_it_may(rows: list[Row]) -> None:
    wrong = [one for one in rows if (one.code == 0) != one.situation.green]
    assert wrong == []


def test_only_what_exits_with_0_has_a_good_verdict(rows: list[Row]) -> None:
    """Except a run that passed, and something after it failed: a copy, or `--strict`."""
    good = [one for one in rows if one.run in ("`passed`", "`xfail`") and one.code]
    assert {one.situation.text for one in good} == {
        "A metric has no baseline, with `--strict`.",
        "The copy with `--out` fails.",
    }


def test_the_page_has_the_tables(rows: list[Row]) -> None:
    text = PAGE.read_text()
    new = TABLES.sub(lambda _: tables(rows), text)
    if os.environ.get("REWRITE_VERDICTS"):
        PAGE.write_text(new)
    else:
        assert text == new, "run `make reference`"
