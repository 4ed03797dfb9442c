"""results.json: its schema is complete, shipped, and what we write keeps to it."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import sample

import seatrial.record
from seatrial.job import RunResults
from seatrial.record.folder import ResultsError, read_results

SCHEMA = json.loads(Path(seatrial.record.__file__).with_name("results.schema.json").read_text())
HEAD = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Results of a Seatrial run"}


def test_the_schema_that_is_shipped_is_the_schema() -> None:
    """But for the meaning of each field, which only the file has. Unknown fields are allowed: the form grows."""
    made = json.loads(msgspec.json.encode(msgspec.json.schema(RunResults)))
    for part in made["$defs"].values():
        if "description" in part:  # a docstring: Python 3.13 takes out its indentation, older ones do not
            part["description"] = " ".join(part["description"].split())
    shipped = copy.deepcopy(SCHEMA)
    for part in shipped["$defs"].values():
        for field in part.get("properties", {}).values():
            del field["description"]
    assert shipped == {**HEAD, **made}


def test_every_field_says_what_it_means() -> None:
    structs = [part for part in SCHEMA["$defs"].values() if "properties" in part]
    missing = [
        (part["title"], name)
        for part in structs
        for name, field in part["properties"].items()
        if not field.get("description")
    ]
    assert len(structs) == 24
    assert missing == []


@pytest.mark.parametrize("make", [sample.small, sample.green, sample.large])
def test_what_is_written_is_valid(make: Any) -> None:
    data = json.loads(msgspec.json.encode(make()))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("run"),
        lambda data: data.update(verdict="fine"),
        lambda data: data["cells"][0].pop("hash"),
        lambda data: data["cells"][1]["findings"][0].update(verdict=3),
        lambda data: data["holes"][0].pop("why"),
        lambda data: data["cells"][0].update(exhibits=[{"kind": "pie", "title": "t"}]),
        lambda data: data["cells"][0].update(exhibits=[{"kind": "token-diff", "title": "t", "data": {"got": 7}}]),
    ],
)
def test_what_is_not_valid_is_refused_by_the_schema_and_by_us(spoil: Any, tmp_path: Path) -> None:
    data = json.loads(msgspec.json.encode(sample.small()))
    spoil(data)
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(data)
    (tmp_path / "results.json").write_text(json.dumps(data))
    with pytest.raises(ResultsError, match=r"not a results\.json"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", ["../../elsewhere", "..", "", "a\0b"])
def test_a_hash_or_part_that_leads_out_of_the_run_is_refused(name: str, tmp_path: Path) -> None:
    part = {"place": {"target": "here", "machine": "", "host": ""}, "stages": [], "exit": {"outcome": "exited"}}
    for spoil in (lambda cell: cell.update(hash=name), lambda cell: cell["attempts"][0].update(parts={name: part})):
        data = json.loads(msgspec.json.encode(sample.small()))
        spoil(data["cells"][0])
        (tmp_path / "results.json").write_text(json.dumps(data))
        with pytest.raises(ResultsError, match="invalid cell hash or part name"):
            read_results(tmp_path)


def test_fields_of_a_later_time_are_no_error(tmp_path: Path) -> None:
    data = json.loads(msgspec.json.encode(sample.small())) | {"new": 1}
    data["cells"][0]["newer"] = {}
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    (tmp_path / "results.json").write_text(json.dumps(data))
    assert read_results(tmp_path) == sample.small()


def test_missing_torn_and_newer_results_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"no results yet.*seatrial attach"):
        read_results(tmp_path)
    encoded = msgspec.json.encode(sample.small())
    (tmp_path / "results.json").write_bytes(encoded[: len(encoded) // 2])
    with pytest.raises(ResultsError, match="seatrial attach"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(sample.small(), version=99)))
    with pytest.raises(ResultsError, match="version 99"):
        read_results(tmp_path)
