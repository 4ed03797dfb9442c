"""`seatrial record` and `seatrial calibrate` as a user runs them, with llama.cpp."""

from pathlib import Path

import pytest
from llama import CASES as EXAMPLE_CASES
from llama import command

from seatrial.kinds.serving.cases import read_case_file
from seatrial.kinds.serving.generation import StopReason
from seatrial.kinds.serving.request import Mode
from world import World

COMMAND = command("${precision}")
CASES = """\
# Prompts that matter to us.
- name: greedy   # the usual
  request:
    params: {stopping: {maxNewTokens: 6}, response: {generatedTokens: true, tokenLogprobs: true, topNTokens: 3}}
    requests: [{text: A function is}]
- name: by hand as a stream
  request: {params: {stopping: {maxNewTokens: 4}}, request: {text: The class}}
- name: too long
  request: {params: {stopping: {maxNewTokens: 1}}, prompt: "LONG"}
- name: left to chance
  request: {params: {method: SAMPLE, sampling: {temperature: 5.0}, stopping: {maxNewTokens: 8}}, prompt: Once}
""".replace("LONG", "one two three four five " * 200)
KNOWN = "\n".join(CASES.splitlines()[:-2]) + "\n"  # without what is left to chance


def suite(world: World, fields: str = "", precisions: str = "f32", cases: str = "cases.yaml", rule: str = "") -> None:
    world.suite(f"""
name: recorded
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    matrix: {{precision: [{precisions}]}}
    server: {{command: '{COMMAND}', ready: {{http: /health, within: 10m}}}}
    cases: [{cases}]
    compare: {{precision: "${{precision}}"{rule}}}
    {fields}
""")


def cases_file(world: World, text: str) -> Path:
    path = world.folder / "cases.yaml"
    path.write_text(text)
    return path


def test_answers_errors_and_streams_are_recorded_and_nothing_else_changes(world: World) -> None:
    path = cases_file(world, CASES)
    suite(world)
    run = world.seatrial("run", "suite.yaml")
    assert run.returncode == 2
    assert "`seatrial record` fills it in" in run.stderr
    done = world.seatrial("record", "suite.yaml", check=0)
    assert "3 new, 1 refused" in done.stdout
    assert "the answer is random; set a `seed` or `skip_check: true`" in done.stdout
    text = path.read_text()
    kept = iter(text.splitlines())
    assert all(line in kept for line in CASES.splitlines())  # every line is still there, in order
    greedy, stream, error, chance = read_case_file(path, unanswered=True).cases
    assert greedy.answer is not None
    (made,) = greedy.answer.generations
    assert (made.generated_count, made.stop_reason) == (6, StopReason.MAX_TOKENS)
    assert made.tokens is not None
    assert len(made.tokens[0].top) == 3
    assert stream.request.mode is Mode.STREAM
    assert stream.answer is not None
    assert stream.answer.generations[0].text
    assert error.error is not None
    assert "context size" in str(error.error.message)
    assert chance.answer is None

    path.write_text(text.replace(CASES.removeprefix(KNOWN), ""))
    world.seatrial("run", "suite.yaml", check=0)
    again = path.read_text()
    done = world.seatrial("record", "suite.yaml", check=0)
    assert "3 same" in done.stdout
    assert path.read_text() == again


def test_a_diff_shows_what_would_change_token_by_token_and_writes_nothing(world: World) -> None:
    suite(world, precisions="f32, q8_0", cases=str(EXAMPLE_CASES))
    before = EXAMPLE_CASES.read_bytes()
    many = world.seatrial("record", "suite.yaml", "--diff", check=2)
    assert "2 cells would write" in many.stderr
    assert "--select 'tiny[precision=q8_0]'" in many.stderr
    same = world.seatrial("record", "suite.yaml", "--diff", "--select", "precision=f32", check=0)
    assert "changed" not in same.stdout
    # Within the tolerance of its precision, as `run` finds; not within that of f32.
    world.seatrial("run", "suite.yaml", "--select", "precision=q8_0", check=0)
    other = world.seatrial("record", "suite.yaml", "--diff", "--select", "precision=q8_0", check=0)
    assert "18 same" in other.stdout
    path = world.folder / "suite.yaml"
    path.write_text(path.read_text().replace('precision: "${precision}"', "precision: f32"))
    world.seatrial("run", "suite.yaml", "--select", "precision=q8_0", check=1)
    other = world.seatrial("record", "suite.yaml", "--diff", "--select", "precision=q8_0", check=1)
    lines = other.stdout.splitlines()
    assert any(line.startswith("  changed  ") for line in lines)
    assert any(line.startswith("    - token ") for line in lines)
    assert any(line.startswith("    + token ") for line in lines)
    assert any("moved by" in line for line in lines)
    assert EXAMPLE_CASES.read_bytes() == before


def test_models_share_prompts_and_have_answers_of_their_own(world: World) -> None:
    path = cases_file(world, KNOWN)
    suite(world, "answers: answers/${precision}.yaml", precisions="f32, q8_0")
    done = world.seatrial("record", "suite.yaml", check=0)
    assert done.stdout.count("3 new") == 2
    assert path.read_text() == KNOWN
    answers = [world.folder / "answers" / f"{precision}.yaml" for precision in ("f32", "q8_0")]
    assert answers[0].read_text().startswith("# Answers recorded by `seatrial record`")
    assert answers[0].read_text() != answers[1].read_text()
    world.seatrial("run", "suite.yaml", check=0)
    answers[0].write_text(answers[0].read_text().replace("name: too long", "name: much too long"))
    done = world.seatrial("run", "suite.yaml", check=2)
    assert "`too long`" in done.stderr
    assert "has no answer; " in done.stderr


def test_tolerances_are_measured_written_with_their_source_and_used(world: World) -> None:
    suite(world, precisions="f32, f16", cases=str(EXAMPLE_CASES), rule=", tolerances: tolerances.yaml")
    path = world.folder / "tolerances.yaml"
    missing = world.seatrial("run", "suite.yaml", check=2)
    assert "tolerances.yaml" in missing.stderr
    done = world.seatrial("calibrate", "suite.yaml", "--select", "precision=f16", "--repeat", "1", check=0)
    assert "tolerance: drift" in done.stdout
    text = path.read_text()
    assert "tiny[precision=f16]" in text
    assert "sequential and concurrent, servers started 1 times" in text
    missing = world.seatrial("run", "suite.yaml", check=2)
    assert "no tolerance for tiny[precision=f32]; run `seatrial calibrate`" in missing.stderr
    world.seatrial("run", "suite.yaml", "--select", "precision=f16", check=0)
    # A tolerance that is far too small shows that it is this one that is used.
    path.write_text(text.replace("rms: 0.00", "rms: 0.0000000"))
    world.seatrial("run", "suite.yaml", "--select", "precision=f16", check=1)
    path.write_text("# mine\n" + text + "# the end\n")
    world.seatrial("calibrate", "suite.yaml", "--select", "precision=f16", "--repeat", "1", check=0)
    assert path.read_text().startswith("# mine\n")
    assert path.read_text().endswith("# the end\n")


@pytest.mark.parametrize("command", ["record", "calibrate"])
def test_a_server_that_does_not_answer_is_not_trusted(world: World, command: str) -> None:
    path = cases_file(world, KNOWN)
    suite(world)
    text = (world.folder / "suite.yaml").read_text()
    (world.folder / "suite.yaml").write_text(text.replace(COMMAND, "exit 3"))
    done = world.seatrial(command, "suite.yaml", check=1)
    assert "nothing was written" in done.stderr
    assert path.read_text() == KNOWN


def test_a_suite_without_servers_has_nothing_to_record(world: World) -> None:
    world.suite("name: plain\ntrials: {one: {kind: runtime, run: ['true']}}\n")
    assert "no serving trial in " in world.seatrial("record", "suite.yaml", check=2).stderr
