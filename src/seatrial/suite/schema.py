"""The JSON Schema of a suite file, for editors, made from the same models that load it."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from seatrial.suite.suite import SuiteModel
from seatrial.suite.trial import TrialModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def suite_schema(kinds: Mapping[str, type[TrialModel]], targets: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    models: list[type[BaseModel]] = [SuiteModel, *kinds.values(), *targets.values()]
    refs, shared = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], by_alias=True, ref_template="#/$defs/{model}"
    )
    definitions: dict[str, Any] = shared["$defs"]

    def by_kind(choices: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
        """An entry: the fields of the kind that its `kind` names."""
        return {
            "type": "object",
            "required": ["kind"],
            "properties": {"kind": {"enum": list(choices)}},
            "allOf": [
                {
                    "if": {"properties": {"kind": {"const": name}}},
                    "then": _with_kind(refs[model, "validation"], definitions, name),
                }
                for name, model in choices.items()
            ],
        }

    root = _definition(refs[SuiteModel, "validation"], definitions)
    root["properties"]["trials"] |= {"additionalProperties": by_kind(kinds), "minProperties": 1}
    root["properties"]["targets"] |= {"additionalProperties": by_kind(targets)}
    return {
        "$schema": DIALECT,
        "title": "Seatrial suite",
        **{key: value for key, value in root.items() if key != "title"},
        "patternProperties": {"^x-": {"description": "Your own: a place for YAML anchors."}},
        "$defs": definitions,
    }


def _definition(ref: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    name = str(ref["$ref"]).rpartition("/")[2]
    found: dict[str, Any] = definitions[name]
    return found


def _with_kind(ref: Mapping[str, Any], definitions: dict[str, Any], kind: str) -> dict[str, Any]:
    definition = _definition(ref, definitions)
    own = dict(definition)
    own["properties"] = {**definition["properties"], "kind": {"const": kind}}
    return own
