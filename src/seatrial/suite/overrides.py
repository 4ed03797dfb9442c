"""`--target`: one target for every cell. A target of the suite, a kind with its defaults, a kind with options
(`kubernetes:context=prod,namespace=trials`), or a YAML file with one entry."""

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from seatrial.suite.names import NAME
from seatrial.suite.suite import ChosenTarget, TargetEntry, own_fields
from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, SuiteError, dotted, explain, nearest
from seatrial.suite.yaml.source import Source, YamlMap, read_source

OPTION = "--target"
# Options that do not change where a cell runs, and so do not count for the target's name.
_APART = ("parallel",)
_OPTION = re.compile(r",(?=[A-Za-z_]+=)")

TargetModels = Mapping[str, type[BaseModel]]


def choose_target(text: str, known: Mapping[str, TargetEntry], kinds: TargetModels) -> ChosenTarget:
    """Resolves `--target TEXT`; `known` are the suite's targets. Raises SuiteError."""
    kind, colon, options = text.partition(":")
    if text in known:
        return ChosenTarget(text, text, known[text])
    if text in kinds:
        return _made(text, text, {"kind": text}, kinds)
    if colon and kind in kinds:
        return _from_options(text, kind, options, kinds)
    if "/" in text or text.endswith((".yaml", ".yml")):
        return _from_file(text, Path(text), kinds)
    hint = nearest(text if not colon else kind, [*known, *kinds])
    message = f"unknown target {text!r}: not a name in the suite, a target kind or a file{hint}"
    raise SuiteError([Problem(message, path=OPTION)])


def _from_options(text: str, kind: str, options: str, kinds: TargetModels) -> ChosenTarget:
    given: dict[str, str] = {}
    for part in _OPTION.split(options):
        key, equals, value = part.partition("=")
        if not equals or not key or key in given:
            why = f"duplicate option `{key}`" if key in given else f"invalid option {part!r}"
            raise SuiteError([Problem(f"{why}; use {kind}:KEY=VALUE,KEY=VALUE", path=OPTION)])
        given[key] = value
    data = {key: Source(OPTION, value).data for key, value in given.items()}
    try:
        kinds[kind].model_validate(data)
    except ValidationError as error:
        wrong = [item["loc"][0] for item in error.errors(include_url=False) if item["loc"]]
        # Treat such a value as text, although YAML reads a number or a keyword.
        data |= {key: given[key] for key in data if key in wrong and not isinstance(data[key], dict | list)}
    name = ",".join(f"{key}={given[key]}" for key in sorted(given) if key not in _APART)
    return _made(text, f"{kind}:{name}" if name else kind, {"kind": kind, **data}, kinds)


def _from_file(text: str, path: Path, kinds: TargetModels) -> ChosenTarget:
    source = read_source(path)
    if source.problems:
        raise SuiteError(source.problems)
    place: KeyPath = ()
    data = source.data
    if isinstance(data, dict) and "kind" not in data:  # NAME: {kind: ...}, perhaps below `targets:`
        for _ in range(2 if set(data) == {"targets"} else 1):
            if isinstance(data, dict) and len(data) == 1:
                name, data = next(iter(data.items()))
                place = (*place, name)
    name = str(place[-1]) if place else path.stem
    if not isinstance(data, dict) or "kind" not in data or not NAME.fullmatch(name):
        message = "expected one target: a map with `kind` and options, or NAME with such a map"
        raise SuiteError([Problem(message, source.find(place)[0])])
    return _made(text, name, data, kinds, source, place)


def _made(
    text: str, name: str, data: YamlMap, kinds: TargetModels, source: Source | None = None, place: KeyPath = ()
) -> ChosenTarget:
    """`data` is at `place` in `source`, if it is from a file."""

    def find(path: KeyPath, key: bool = False) -> tuple[SourceMark | None, str | None]:
        return source.find((*place, *path), key) if source else (None, None)

    kind = data["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise SuiteError([Problem(f"unknown kind {kind!r}{nearest(kind, kinds)}", find(("kind",))[0], OPTION)])
    try:
        options = kinds[kind].model_validate(own_fields(data, kinds[kind]))
    except ValidationError as error:
        problems = [
            Problem(message, find(loc, key)[0], f"{OPTION} {dotted(loc)}".strip())
            for loc, key, message in explain(error, kinds[kind], lambda loc: find(loc)[1])
        ]
        raise SuiteError(problems) from None
    return ChosenTarget(text, name, TargetEntry(kind, options), data)
