"""The conformance pack: what it finds in llama.cpp, and that its files are written and run as they are."""

import json
from pathlib import Path

import pytest
from llama import LLAMA_CPP_PYTHON, llama, llama_cpp_python, model, started
from trial_in_process import cell_of, judged

from world import World

PACK = Path(__file__).parents[3] / "src" / "seatrial" / "cli" / "starters" / "conformance_cases.yaml"
# Rules that llama.cpp does not keep. docs/serving.md lists them.
BROKEN = {
    "usage of a completion as a stream",
    "completion as a stream without usage",
    "empty prompt",
    "logprobs of a completion",
    "echo of the prompt",
    "tool call",
    "named tool",
    "unknown model",
    "no messages",
    "unknown role",
    "negative temperature",
    "temperature above 2",
    "top_p above 1",
    "five stop sequences",
    "too many likely tokens",
}


# Those of llama-cpp-python, a server of its own around the same library, and two that it breaks only sometimes.
BROKEN_BY_PYTHON = {
    "usage of a completion as a stream",
    "two choices of a completion",
    "two prompts",
    "prompt of tokens",
    "empty prompt",
    "echo of the prompt",
    "usage of a chat as a stream",
    "content in parts",
    "max_completion_tokens",
    "two choices of a chat",
    "JSON schema",
    "tool call",
    "named tool",
    "result of a tool",
    "models",
    "unknown model",
    "invalid JSON",
    "missing messages",
    "messages of the wrong type",
    "no messages",
    "unknown role",
    "negative temperature",
    "temperature above 2",
    "top_p above 1",
    "no choices",
    "negative max_tokens",
    "max_tokens of the wrong type",
    "five stop sequences",
    "too many likely tokens",
    "likely tokens without logprobs",
    "unknown response format",
}
SOMETIMES = {"four stop sequences", "logprobs of a chat"}


async def broken_rules(tmp_path: Path, url: str) -> set[str]:
    found = (await judged(cell_of(tmp_path, url, PACK), tmp_path)).findings
    cases = [one for one in found if one.step.startswith("case ")]
    assert [one.step for one in found if not one.verdict.good and one not in cases] == []
    assert len({one.step for one in cases}) == 62
    unexplained = [one for one in cases if not one.verdict.good and "; why: " not in one.message]
    assert unexplained == []
    return {one.step.removeprefix("case ") for one in cases if not one.verdict.good}


async def test_the_pack_finds_the_rules_that_llama_cpp_does_not_keep(tmp_path: Path) -> None:
    with llama() as url:
        assert await broken_rules(tmp_path, url) == BROKEN


@pytest.mark.timeout(3600)
async def test_the_pack_finds_the_rules_that_llama_cpp_python_does_not_keep(tmp_path: Path) -> None:
    python = llama_cpp_python()
    with started("-c", LLAMA_CPP_PYTHON, str(model("f32")), python=python) as port:
        assert await broken_rules(tmp_path, f"http://127.0.0.1:{port}") - SOMETIMES == BROKEN_BY_PYTHON


def test_every_rule_of_the_pack_can_be_broken(tmp_path: Path) -> None:
    """Each case has a reason, and something that it expects."""
    (cell,) = [cell_of(tmp_path, "http://127.0.0.1:9", PACK)]
    for case in cell.gathered.asked:
        assert case.why.endswith("."), case.name
        assert case.expect is not None, case.name
        assert case.answer is None, case.name


@pytest.mark.parametrize("kind", ["runtime", "scale"])
def test_the_pack_is_for_servers_only(world: World, kind: str) -> None:
    done = world.seatrial("init", kind, "--conformance", check=2)
    assert "seatrial init serving --conformance" in done.stderr


def test_init_writes_a_suite_that_runs_when_the_address_is_set(world: World) -> None:
    world.seatrial("init", "serving", "--conformance", check=0)
    shown = world.seatrial("plan", "seatrial.yaml", "--json", check=0)
    (cell,) = json.loads(shown.stdout)["cells"]
    assert cell["contents"]["count"] == 62
    with llama() as url:
        changed = ("--set", f"trials.protocol.server.url={url}", "--set", "trials.protocol.model=tiny")
        world.seatrial("run", "seatrial.yaml", *changed, check=1)
    (result,) = world.results().cells
    failed = {one.step.removeprefix("case ") for one in result.findings if str(one.verdict) == "failed"}
    assert failed == BROKEN
