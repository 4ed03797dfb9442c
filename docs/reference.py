"""Writes the tables of suite fields into the pages, from the models that load suites: `make reference`.

A table is between `<!-- fields: MODEL -->` and `<!-- end -->`, where MODEL is the name of a pydantic model.
`<!-- fields: MODEL - OTHER -->` leaves out the fields of another model. With `--check` nothing is written, and the exit
code is 1 if a page is out of date.
"""

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from seatrial.kinds.arrivals_model import Rate
from seatrial.plugins import OWN_KINDS, OWN_TARGETS, models
from seatrial.suite import suite_schema
from seatrial.suite.suite import SuiteModel
from seatrial.suite.trial import TrialModel
from seatrial.suite.values import Duration, Need, Size

DOCS = Path(__file__).parent
TABLE = re.compile(r"(<!-- fields: (\w+)(?: - (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
NAMED: dict[str, Any] = {"duration": Duration, "size": Size, "rate": Rate, "condition": Need}
Schema = Mapping[str, Any]
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms"))


def schemas() -> dict[str, Schema]:
    """The JSON Schema of every model by name, for Seatrial's own kinds and targets."""
    kinds, targets = models()
    suite = suite_schema({name: kinds[name] for name in OWN_KINDS}, {name: targets[name] for name in OWN_TARGETS})
    return {**suite["$defs"], **{one.__name__: one.model_json_schema() for one in (SuiteModel, TrialModel)}}


def updated(text: str, known: Mapping[str, Schema]) -> str:
    """A page with current tables. Raises KeyError for an unknown model."""
    return TABLE.sub(lambda found: f"{found[1]}{table(known, found[2], found[3])}{found[4]}", text)


def table(known: Mapping[str, Schema], model: str, without: str | None = None) -> str:
    """The fields of a model as a Markdown table, required ones first."""
    schema = known[model]
    required = schema.get("required", [])
    left_out = known[without]["properties"] if without else ()
    lines = ["| field | type | description | default |", "|---|---|---|---|"]
    for field in sorted(schema["properties"], key=lambda name: name not in required):
        if field not in left_out:
            one = schema["properties"][field]
            default = "required" if field in required else _default(one, known)
            cells = (f"`{field}`", _type(one, known), one.get("description", ""), default)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _type(schema: Schema, known: Mapping[str, Schema]) -> str:
    if "$ref" in schema:
        return _type(known[schema["$ref"].rpartition("/")[2]], known)
    for name, one in _named().items():
        if _shape(schema) == one:
            return name
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{_yaml(one)}`" for one in schema.get("enum") or [schema["const"]])
    if choices := _choices(schema):
        return " or ".join(dict.fromkeys(_type(one, known) for one in choices))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        items = _type(schema["items"], known) if schema.get("items") else ""
        return "list of " + re.sub(r"([a-z])(?= or |$)", r"\1s", items) if items else "list"
    return "map" if kind == "object" else str(kind)


def _choices(schema: Schema) -> list[Schema]:
    return [one for one in schema.get("anyOf") or schema.get("oneOf") or () if one.get("type") != "null"]


@cache
def _named() -> dict[str, Any]:
    anything = ConfigDict(arbitrary_types_allowed=True)
    return {name: _shape(TypeAdapter(one, config=anything).json_schema()) for name, one in NAMED.items()}


def _shape(schema: Schema) -> Any:
    """What a schema allows, apart from null: without texts, defaults and examples."""
    return _choices(schema) or {key: schema[key] for key in ("type", "pattern") if key in schema}


def _default(schema: Schema, known: Mapping[str, Schema]) -> str:
    value, kind = schema.get("default"), _type(schema, known)
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, Mapping) and any("$ref" in one for one in (schema, *_choices(schema))):
        return ""  # a model, which has a table of its own
    if isinstance(value, str) and len(value) > 40:
        return "built in"  # a regular expression
    if kind == "duration":
        size, unit = next((size, unit) for size, unit in _UNITS if value >= size and not value % size)
        return f"`{value / size:g}{unit}`"
    if kind == "size":
        return f"`{value >> 30}Gi`" if value >= 1 << 30 else f"`{value >> 20}Mi`"
    return f"`{_yaml(value)}/s`" if kind == "rate" else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_yaml(one)}' for key, one in value.items())}}}"
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if value in ("true", "false", "null") else str(value)


def main(check: bool) -> int:
    known = schemas()
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if (new := updated(text, known)) != text:
            stale.append(page.name)
            if not check:
                page.write_text(new)
    print(f"{'out of date' if check else 'updated'}: {', '.join(stale) or 'none'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
