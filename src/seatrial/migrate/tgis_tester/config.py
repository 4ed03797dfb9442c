"""tgis-tester's config.yaml: its models, with its defaults, and the reading of a file."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field, ValidationError

from seatrial.kinds.serving.config_rules import ServerConfig, TesterModel, Whole, config_problems
from seatrial.suite.yaml.problem import KeyPath, Problem, SuiteError, dotted, explain
from seatrial.suite.yaml.source import Source, read_source


class Cluster(TesterModel):
    api_endpoint: str
    namespace: str
    service_account_name: str
    service_account_token: str | None = None


class VolumeClaim(TesterModel):
    name: str
    mount_path: str
    read_only: bool = False


class Worker(TesterModel):
    image_uri: str
    image_pull_secret: str | None = None
    tls_secret: str
    ready_timeout_secs: Whole
    scheduled_timeout_secs: Whole
    max_parallel_workers: Annotated[int, Field(strict=True, ge=1)]
    max_connection_retries: Whole
    ingress_hostname: str
    pvcs: tuple[VolumeClaim, ...] = ()
    transformers_cache_path: str
    prefix_store_path: str = ""
    adapter_cache: str = ""


class RunnerConfig(TesterModel):
    ca_cert_path: str | None = None
    object_store_secret: str
    object_store_bucket: str
    object_store_endpoint: str
    object_store_region: str
    validate_models: bool = False
    generate_stream: bool = False
    evaluation_strategy: Literal["approx_equality", "exact_text_match", "embeddings_similarity"] = "approx_equality"
    save_passed_test_results: bool = False


class TestedModel(TesterModel):
    model: str
    configs: tuple[ServerConfig, ...]
    cases: tuple[str, ...]


class TesterConfig(TesterModel):
    cluster: Cluster
    worker: Worker
    runner: RunnerConfig
    tests: Annotated[tuple[TestedModel, ...], Field(min_length=1)]


class TesterFile(msgspec.Struct, frozen=True):
    """A config that was read; `directory` is where its relative paths begin: two levels above the file."""

    path: Path
    directory: Path
    config: TesterConfig
    source: Source
    ignored: tuple[str, ...] = ()  # fields that mean nothing, with their places


def read_tester_config(path: Path) -> TesterFile:
    """Raises SuiteError with every problem of the file, those of the rules for configurations included."""
    source = read_source(path)
    problems = list(source.problems)
    config: TesterConfig | None = None
    try:
        config = TesterConfig.model_validate(source.data)
    except ValidationError as error:
        for loc, key, message in explain(error, TesterConfig, lambda loc: source.find(loc)[1]):
            problems.append(_problem(source, loc, message, key))
    for where, one in _model_configs(source.data):
        problems += [_problem(source, (*where, field), why) for field, why in config_problems(one)]
    if problems or config is None:
        raise SuiteError(problems)
    ignored = tuple(_unknown(source, TesterConfig, source.data, ()))
    return TesterFile(path, path.absolute().parent.parent, config, source, ignored)


def _model_configs(data: Any) -> Iterator[tuple[KeyPath, ServerConfig]]:
    """Those that can be read, whatever is wrong with the others."""
    for test, spec in _items(data, "tests"):
        for number, one in _items(spec, "configs"):
            with contextlib.suppress(ValidationError):
                yield ("tests", test, "configs", number), ServerConfig.model_validate(one)


def _items(data: Any, name: str) -> Iterable[tuple[int, Any]]:
    found = data.get(name) if isinstance(data, dict) else None
    return enumerate(found if isinstance(found, list) else ())


def _problem(source: Source, path: KeyPath, message: str, key: bool = False) -> Problem:
    mark, _ = source.find(path, key)
    return Problem(message, mark, dotted(path))


def _unknown(source: Source, model: type[BaseModel], data: Any, path: KeyPath) -> list[str]:
    """What the file says and nobody reads."""
    found: list[str] = []
    for name, value in data.items() if isinstance(data, dict) else ():
        field = model.model_fields.get(name)
        if field is None:
            mark, _ = source.find((*path, name), key=True)
            found.append(f"{mark.file}:{mark.line}:{mark.column}: `{name}` means nothing here, nor to tgis-tester")
            continue
        inner = _inner_model(field.annotation)
        if inner is None:
            continue
        items: list[tuple[KeyPath, Any]] = [((*path, name), value)]
        if isinstance(value, list):
            items = [((*path, name, index), item) for index, item in enumerate(value)]
        for place, item in items:
            found += _unknown(source, inner, item, place)
    return found


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(inner) for inner in getattr(annotation, "__args__", ()))
    return next((one for one in found if one is not None), None)


def minutes(seconds: int) -> str:
    """As a suite writes a time."""
    return f"{seconds // 60}m" if seconds and seconds % 60 == 0 else f"{seconds}s"


def gigabytes(number: int) -> str:
    """Theirs are decimal; a suite's are binary."""
    return f"{math.floor(number * 1000**3 / 1024**2)}Mi"
