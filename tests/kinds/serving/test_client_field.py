"""The field `client` of a serving trial, and `driver`, its former name."""

from pathlib import Path
from typing import Any

import pytest

from seatrial import plugins
from seatrial.job import Settings
from seatrial.plan import expand
from seatrial.suite import Cell, SuiteError, load, settings_of, suite_schema

HARDWARE = {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpu": []}
SUITE = """\
name: s
targets: {{far: {{kind: kubernetes}}}}
trials:
  served:
    kind: serving
    target: far
    matrix: {{n: [1]}}
    server: {{{server}}}
    cases: [cases.yaml]
    {field}: {place}
    {more}
"""
PLACE = '{image: "registry.example/seatrial:${n}", memory: 512Mi}'
BOTH_NAMES = pytest.mark.parametrize("field", ["client", "driver"])


def cell_of(folder: Path, field: str, more: str = "", place: str = PLACE, server: str = "command: serve") -> Cell:
    (folder / "cases.yaml").write_text("- {name: one, request: {requests: [{text: a}]}, error: {code: NOT_FOUND}}\n")
    path = folder / "suite.yaml"
    path.write_text(SUITE.format(field=field, place=place, more=more, server=server))
    (cell,) = expand(load(path, *plugins.models())).cells
    return cell


def settings(cell: Cell) -> Settings:
    return settings_of(cell, HARDWARE)


@BOTH_NAMES
def test_both_names_give_the_cell_that_the_former_name_always_gave(tmp_path: Path, field: str) -> None:
    cell = cell_of(tmp_path, field)
    assert cell.hash == "7a10abe3"
    assert settings(cell).fingerprint == "9b431244"
    conditions = settings(cell).conditions
    assert conditions["driver.image"] == "registry.example/seatrial:${n}"
    assert conditions["driver.memory"] == "536870912"
    assert cell.spec.client.image == "registry.example/seatrial:1"


@pytest.mark.parametrize(("field", "named"), [("client", "client"), ("driver", "driver"), ("driver", "client")])
def test_both_names_can_be_put_under_test(tmp_path: Path, field: str, named: str) -> None:
    cell = cell_of(tmp_path, field, f"under_test: [{named}]")
    assert settings(cell).fingerprint == "291b40b4"
    assert set(settings(cell).under_test) == {"driver.image", "driver.memory", "stream", "batching"}
    cell = cell_of(tmp_path, field, f"under_test: [{named}.image]")
    assert set(settings(cell).under_test) == {"driver.image", "stream", "batching"}


@BOTH_NAMES
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server": 'url: "http://127.0.0.1:1"'}, "`client` needs a server started by the trial"),
        (
            {"more": "compare: {rule: embedding, embeddings: {local: m}}"},
            "`client` cannot be combined with `embeddings.local`",
        ),
        ({"place": "{image: x, imagee: y}"}, "suite.yaml:10:24: unknown field 'imagee'; did you mean 'image'?"),
        ({"place": "{}"}, "suite.yaml:10:5: `image` is missing ("),
    ],
)
def test_mistakes_in_it_are_found_under_both_names(
    tmp_path: Path, field: str, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(SuiteError) as error:
        cell_of(tmp_path, field, **fields)
    assert message in str(error.value)


def test_it_cannot_be_set_under_both_names(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"11:5: unknown field 'driver' \(a former name of"):
        cell_of(tmp_path, "client", f"driver: {PLACE}")


def test_the_schema_names_the_field_client() -> None:
    definitions: dict[str, Any] = suite_schema(*plugins.models())["$defs"]
    assert "client" in definitions["ServingTrial"]["properties"]
    assert "driver" not in definitions["ServingTrial"]["properties"]
