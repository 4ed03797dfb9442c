"""Configurations of servers: what makes no sense is refused before anything starts, all of it at once."""

from pathlib import Path

import pytest

from seatrial import plugins
from seatrial.engine import RunOptions, create
from seatrial.plan import expand
from seatrial.suite import SuiteError, load

SUITE = """
name: configs
machines: {none: {}, two: {gpu: {count: 2}}}
trials:
  flan:
    kind: serving
    machine: [MACHINE]
    matrix:
      config: [CONFIGS]
    server: {command: "launcher --dtype ${config.dtype}", protocol: PROTOCOL}
    cases: [cases.yaml]
"""


def prepare(folder: Path, configs: str, machine: str, protocol: str = "tgis") -> None:
    (folder / "cases.yaml").write_text("- {name: a, request: {prompt: hi}, response: {responses: [{text: ho}]}}\n")
    text = SUITE.replace("CONFIGS", configs).replace("MACHINE", machine).replace("PROTOCOL", protocol)
    (folder / "suite.yaml").write_text(text)
    suite = load(folder / "suite.yaml", *plugins.models())
    create(suite, expand(suite), folder / "runs", RunOptions())


def test_all_that_makes_no_sense_is_said_at_once(tmp_path: Path) -> None:
    configs = "{name: a, dtype: float32, flash_attention: true}, {name: b, dtype: float16, num_shard: 4}"
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path, configs, "none, two")
    said = str(caught.value)
    assert "flan[machine=none,config=a]: a: flash attention needs a GPU" in said
    assert "a: flash attention needs float16 or bfloat16; `dtype_str` is float32" in said
    assert "b: without a GPU `dtype_str` must be float32, not float16" in said
    assert "flan[machine=two,config=b]: b: 4 shards need as many GPUs; `resources.gpu` is 2" in said
    assert not (tmp_path / "runs").exists()


def test_what_makes_sense_and_what_is_the_users_own_is_not(tmp_path: Path) -> None:
    prepare(tmp_path, "{name: a, dtype: float16, num_shard: 2, flash_attention: true, our_own: 3}", "two")
    prepare(tmp_path, "{name: a, dtype: hf_custom, flash_attention: maybe}", "none", protocol="openai")


def test_a_value_that_no_server_knows_is_said(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="dtype_str: expected one of float16, float32, bfloat16, got 'float8'"):
        prepare(tmp_path, "{name: a, dtype: float8}", "two")
