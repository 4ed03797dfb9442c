"""The JSON Schema says of a suite what the loader says; the examples and the docs are sound by both."""

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from seatrial.plan import expand
from seatrial.plugins import models
from seatrial.suite import from_data, load, suite_schema
from seatrial.suite.models import Machine, Notebook, Requires, Runtime
from seatrial.suite.suite import SuiteModel
from seatrial.suite.trial import Timeout, TrialModel
from seatrial.suite.yaml.source import Source

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*/suite.yaml"))
DOCS = sorted((ROOT / "docs").glob("*.md"))


def yaml_blocks(path: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.M | re.S)


def suites() -> list[Any]:
    """The whole suites in the docs: fenced YAML with trials."""
    return [
        pytest.param(path, block, id=f"{path.name}-{number}")
        for path in DOCS
        for number, block in enumerate(yaml_blocks(path))
        if re.search(r"^trials:", block, re.M)
    ]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    made = suite_schema(*models())
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def problems(validator: Draft202012Validator, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(Source("suite.yaml", text).data)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_are_sound(validator: Draft202012Validator, path: Path) -> None:
    assert problems(validator, path.read_text()) == []
    assert expand(load(path, *models())).cells


@pytest.mark.parametrize(("page", "text"), suites())
def test_suites_in_the_docs_are_sound(validator: Draft202012Validator, tmp_path: Path, page: Path, text: str) -> None:
    assert problems(validator, text) == []
    for block in yaml_blocks(page):
        if named := re.match(r"# file: (\S+)\n", block):
            (tmp_path / named[1]).write_text(block)
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    assert expand(load(path, *models())).cells


@pytest.mark.parametrize(("name", "sound"), [("client", True), ("driver", True), ("cliant", False)])
def test_a_former_name_of_a_field_is_as_good_as_the_current_one(
    validator: Draft202012Validator, tmp_path: Path, name: str, sound: bool
) -> None:
    server = "server: {command: serve}, cases: [cases.yaml]"
    text = f"trials: {{t: {{kind: serving, model: m, {server}, {name}: {{image: 'seatrial:1'}}}}}}"
    assert (problems(validator, text) == []) is sound
    (tmp_path / "suite.yaml").write_text(text)
    (tmp_path / "cases.yaml").write_text("[]")
    if sound:
        assert load(tmp_path / "suite.yaml", *models()).trials["t"].client  # type: ignore[attr-defined]


def test_every_field_of_a_suite_has_a_description() -> None:
    for model in (SuiteModel, Machine, Runtime, Notebook, Requires, TrialModel, Timeout):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    "text",
    [
        "trials: {t: {kind: runtime, comands: [git]}}",
        "trials: {t: {kind: runtim}}",
        "trials: {t: {commands: [git]}}",
        "trials: {}",
        "trials: {t: {kind: runtime}}\nmachines: {a: {memory: 16}}",
        "trials: {t: {kind: runtime}}\nmachines: {a: {gpu: {memory: 16Gi, cout: 1}}}",
        "trials: {t: {kind: runtime}}\nruntimes: {a: {python: 3.10}}",
        "trials: {t: {kind: runtime}}\ntargets: {a: {kind: local, paralel: 1}}",
        "trials: {t: {kind: runtime, timeout: {run: soon}}}",
        "trials: {t: {kind: runtime, exclude: [{machine: a}]}}",
        "trials: {t: {kind: runtime, env: {A: 1}}}",
    ],
)
def test_an_editor_sees_what_the_loader_refuses(validator: Draft202012Validator, text: str) -> None:
    assert problems(validator, text)


def test_the_schema_takes_what_the_loader_takes(validator: Draft202012Validator, tmp_path: Path) -> None:
    text = """
x-mine: anything
name: n
env: {A: b, C: {secret: D}}
machines: {m: {gpu: {model: A100}, features: {ipu: 4, net: fast}}}
runtimes:
  r: {notebooks: [{path: a.ipynb, timeout: 90, parameters: {n: 1}}], needs: {gpu.model: [A100], features.ipu: 4}}
trials:
  t:
    kind: runtime
    runtime: all
    machine: [m]
    zip: [{a: [1, 2], b: [x, y]}]
    xfail: [{a: [1], b: {c: 1}, step: "*", why: z}]
    timeout: {run: null, queue: 1h30m}
    run: ["true"]
"""
    assert problems(validator, text) == []
    data: Any = Source("suite.yaml", text.replace(", b: {c: 1}", "")).data
    assert from_data(data, tmp_path, *models()).trials["t"].timeout.run_s is None
