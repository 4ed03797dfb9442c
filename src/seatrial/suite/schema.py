"""The JSON Schema of a suite file, for editors, generated from the models that load it."""

from collections.abc import Mapping

from pydantic import AliasChoices, BaseModel
from pydantic.json_schema import JsonSchemaValue, models_json_schema

from seatrial.suite.suite import SuiteModel
from seatrial.suite.trial import TrialModel


def suite_schema(kinds: Mapping[str, type[TrialModel]], targets: Mapping[str, type[BaseModel]]) -> JsonSchemaValue:
    models: list[type[BaseModel]] = [SuiteModel, *kinds.values(), *targets.values()]
    refs, shared = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], by_alias=True, ref_template="#/$defs/{model}"
    )
    definitions: dict[str, JsonSchemaValue] = shared["$defs"]

    def definition(model: type[BaseModel]) -> JsonSchemaValue:
        return definitions[refs[model, "validation"]["$ref"].rpartition("/")[2]]

    def with_kind(kind: str, model: type[BaseModel]) -> JsonSchemaValue:
        own = definition(model)
        aliases = [field.validation_alias for field in model.model_fields.values()]
        former = {
            str(old): {**own["properties"][one.choices[0]], "deprecated": True}
            for one in aliases
            if isinstance(one, AliasChoices)
            for old in one.choices[1:]
        }
        return {**own, "properties": {**own["properties"], **former, "kind": {"const": kind}}}

    def by_kind(choices: Mapping[str, type[BaseModel]]) -> JsonSchemaValue:
        """Schema of an entry, by its `kind`."""
        return {
            "type": "object",
            "required": ["kind"],
            "properties": {"kind": {"enum": list(choices)}},
            "allOf": [
                {"if": {"properties": {"kind": {"const": kind}}}, "then": with_kind(kind, model)}
                for kind, model in choices.items()
            ],
        }

    root = definition(SuiteModel)
    root["properties"]["trials"] |= {"additionalProperties": by_kind(kinds), "minProperties": 1}
    root["properties"]["targets"] |= {"additionalProperties": by_kind(targets)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Seatrial suite",
        **{key: value for key, value in root.items() if key != "title"},
        "patternProperties": {"^x-": {"description": "Your own fields, for YAML anchors."}},
        "$defs": definitions,
    }
