"""Planted faults: a serving trial with its default settings fails for each of them, and never for the good server."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from fault_proxy import FAULTS, TOKEN_S, Models, fault_proxy
from trial_in_process import calibrate, cell_of, judged, record

from seatrial.job import Finding

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCHEMA = """{type: object, properties: {color: {enum: [red, blue]}}, required: [color], additionalProperties: false}"""
CASES = f"""
- {{name: a table, prompt: The following table, max_tokens: 12, logprobs: 5}}
- {{name: a list, prompt: The following list, max_tokens: 12, logprobs: 5}}
- {{name: long, prompt: "{"A module is a class. " * 60}", max_tokens: 4, logprobs: 5}}
- name: a chat
  messages: [{{role: user, content: What is a module?}}]
  max_tokens: 8
  logprobs: true
  top_logprobs: 5
- {{name: until a comma, prompt: Once upon a time, max_tokens: 24, stop: [","], logprobs: 5}}
- {{name: by chance, prompt: Once upon a time, max_tokens: 8, temperature: 0.8, seed: 7}}
- {{name: letters, prompt: A ship, max_tokens: 24, grammar: 'root ::= "é🚢 ünï"'}}
- {{name: nothing, messages: [{{role: user, content: What is a module?}}], max_tokens: 4, stop: ["\\n"]}}
- {{name: thoughts, messages: [{{role: user, content: Please think.}}], max_tokens: 4}}
- {{name: two, prompt: Once upon a time, max_tokens: 4, n: 2, temperature: 0.8, seed: 7}}
- name: a color
  messages: [{{role: user, content: Which color?}}]
  max_tokens: 100
  response_format: {{type: json_schema, json_schema: {{name: color, schema: {SCHEMA}}}}}
- name: a tool
  messages: [{{role: user, content: Paint the wall.}}]
  max_tokens: 100
  tool_choice: required
  tools: [{{type: function, function: {{name: paint, parameters: {SCHEMA}}}}}]
"""
LOAD = {"arrivals": {"burst": 8}, "requests": 40, "check": "all", "lag": "1h"}
# llama.cpp counts the tokens of one choice only, and the proxy not those of its thoughts.
SKIP = [{"case": "two", "why": "wrong usage"}, {"case": "thoughts", "why": "wrong usage"}]
COMPARE = {"tolerances": "tolerances.yaml"}
REPEATS = 200 if os.environ.get("SEATRIAL_TEST_ALL") else 3
GOOD, PACED, SLOWER = "none", "none-paced", "15-percent-slower"


class Recorded(NamedTuple):
    url: str  # of the proxy
    folder: Path
    cases: Path  # with the answers of the good server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    folder = tmp_path_factory.mktemp("recorded")
    path = folder / "cases.yaml"
    path.write_text(CASES)
    async with fault_proxy(Models(folder)) as url:
        await record(folder, f"{url}/{GOOD}", path)
        await calibrate(folder, f"{url}/{GOOD}", path, 2)
        yield Recorded(url, folder, path)


def bad(findings: list[Finding]) -> list[str]:
    return [f"{one.step} ({one.check}): {one.message}" for one in findings if not one.verdict.good]


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in (GOOD, PACED, SLOWER)])
async def test_a_fault_is_found(recorded: Recorded, name: str) -> None:
    load = {**LOAD, "request": "3s"} if "hang" in FAULTS[name].how else LOAD
    fields = {"load": load, "skip": SKIP} if FAULTS[name].load else {}
    cell = cell_of(recorded.folder, f"{recorded.url}/{name}", recorded.cases, compare=COMPARE, **fields)
    found = bad((await judged(cell, recorded.folder)).findings)
    assert found


async def test_the_good_server_is_never_accused(recorded: Recorded) -> None:
    url = f"{recorded.url}/{GOOD}"
    cell = cell_of(recorded.folder, url, recorded.cases, compare=COMPARE, load=LOAD, skip=SKIP)
    for _ in range(REPEATS):
        assert bad((await judged(cell, recorded.folder)).findings) == []


async def test_a_slower_server_is_found_by_a_bound(recorded: Recorded) -> None:
    load = {**LOAD, "requests": 8}
    skip = [{"case": f"{letter}*", "why": "one is enough"} for letter in "lubnt"]
    skip += [{"case": name, "why": "one is enough"} for name in ("a list", "a chat", "a color", "a tool")]

    async def run(name: str, **fields: object) -> tuple[float, list[str]]:
        cell = cell_of(recorded.folder, f"{recorded.url}/{name}", recorded.cases, skip=skip, batching=False, **fields)
        done = await judged(cell, recorded.folder)
        return done.metrics["load"]["tpot"]["p50"]["value"], bad(done.findings)

    before, found = await run(PACED, load=load)
    assert found == []
    assert before > 0.9 * TOKEN_S
    bounds = {"tpot.p50": f"{TOKEN_S * 1.02}s"}  # not of the time before, which is longer on a busy machine
    assert [one for one in (await run(SLOWER, load={**load, "bounds": bounds}))[1] if "bound tpot.p50" in one]
