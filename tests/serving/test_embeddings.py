"""The rule `embedding`: texts that mean the same, by the embeddings of a real endpoint."""

from collections.abc import Iterator

import pytest
from llama import command, free_port, model, started

from seatrial.drive.driver import DriverError
from seatrial.drive.serving.embeddings import cosine
from world import World

EMBED = """
import os, sys, threading, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.hostnames, parameters.port = ["127.0.0.1"], int(os.environ["SEATRIAL_PORT"])
parameters.n_ctx, parameters.warmup, parameters.embedding = 512, False, True
parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
server = xllamacpp.Server(parameters)
print("listening", flush=True)
threading.Event().wait()
"""
CASES = """\
- name: about functions
  request: {params: {stopping: {maxNewTokens: 6}}, prompt: A function is}
  response: {responses: [{text: " a part of a class"}]}
"""


@pytest.fixture
def embedding() -> Iterator[str]:
    with started("-c", EMBED, str(model("f32"))) as port:
        yield f"http://127.0.0.1:{port}"


def suite(world: World, compare: str) -> None:
    world.suite(f"""
name: embedded
trials:
  tiny:
    kind: serving
    model: tiny
    retries: 0
    server: {{command: '{command()}', ready: {{http: /health, within: 60s}}}}
    cases: [cases.yaml]
    stream: true
    compare: {{{compare}}}
""")
    (world.folder / "cases.yaml").write_text(CASES)


def test_another_text_passes_when_it_is_similar_enough_and_only_then(world: World, embedding: str) -> None:
    suite(world, f"rule: embedding, similarity: 0.01, embeddings: {{url: '{embedding}'}}")
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    said = [finding.message for finding in cell.findings if finding.step == "case about functions"]
    assert "another text, with a similarity of 0." in said[0]
    suite(world, f"rule: embedding, similarity: 0.9999, embeddings: {{url: '{embedding}'}}")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    failed = [finding for finding in cell.findings if not finding.verdict.good]
    assert {(finding.class_, finding.check) for finding in failed} == {("diverged", "unary"), ("diverged", "stream")}
    assert "at least 0.9999 is asked for" in failed[0].message


def test_an_endpoint_that_does_not_answer_is_not_the_servers_fault(world: World) -> None:
    suite(world, f"rule: embedding, embeddings: {{url: 'http://127.0.0.1:{free_port()}'}}")
    done = world.seatrial("run", "suite.yaml", check=3)
    assert "gives no embedding of a text" in done.stdout


@pytest.mark.parametrize(
    ("compare", "said"),
    [
        ("rule: embedding", "the rule embedding needs `embeddings`"),
        ("embeddings: {url: 'http://here'}", "`embeddings` is for the rule `embedding`; the rule is near-tie"),
    ],
)
def test_what_does_not_go_together_is_said(world: World, compare: str, said: str) -> None:
    suite(world, compare)
    assert said in world.seatrial("plan", "suite.yaml", check=2).stderr


def test_the_cosine_of_two_embeddings() -> None:
    assert cosine((1.0, 0.0), (1.0, 1.0)) == pytest.approx(0.5**0.5)
    assert cosine((0.0, 0.0), (1.0, 1.0)) == 0.0
    with pytest.raises(DriverError, match="not of one model"):
        cosine((1.0,), (1.0, 1.0))
