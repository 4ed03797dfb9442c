"""Reads tgis-tester's config.yaml: models with its defaults, and validation."""

import contextlib
from collections.abc import Iterable
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
    """A config file; its relative paths start at `directory`, two levels above the file."""

    path: Path
    directory: Path
    config: TesterConfig
    source: Source
    ignored: tuple[str, ...] = ()  # warnings for unused fields, with their positions


def read_tester_config(path: Path) -> TesterFile:
    """Raises SuiteError with all problems of the file, including those of the configuration rules."""
    source = read_source(path)
    problems = list(source.problems)

    def blame(path: KeyPath, message: str, key: bool = False) -> None:
        problems.append(Problem(message, source.find(path, key)[0], dotted(path)))

    config: TesterConfig | None = None
    try:
        config = TesterConfig.model_validate(source.data)
    except ValidationError as error:
        for loc, key, message in explain(error, TesterConfig, lambda loc: source.find(loc)[1]):
            blame(loc, message, key)
    for test, spec in _items(source.data, "tests"):
        for number, one in _items(spec, "configs"):
            with contextlib.suppress(ValidationError):  # check the readable ones despite errors elsewhere
                for field, why in config_problems(ServerConfig.model_validate(one)):
                    blame(("tests", test, "configs", number, field), why)
    if problems or config is None:
        raise SuiteError(problems)
    ignored = tuple(_unknown(source, TesterConfig, source.data, ()))
    return TesterFile(path, path.absolute().parent.parent, config, source, ignored)


def _items(data: Any, name: str) -> Iterable[tuple[int, Any]]:
    found = data.get(name) if isinstance(data, dict) else None
    return enumerate(found if isinstance(found, list) else ())


def _unknown(source: Source, model: type[BaseModel], data: Any, path: KeyPath) -> list[str]:
    """Warnings for fields that neither Seatrial nor tgis-tester uses."""
    found: list[str] = []
    for name, value in data.items() if isinstance(data, dict) else ():
        field = model.model_fields.get(name)
        if field is None:
            mark, _ = source.find((*path, name), key=True)
            found.append(f"{mark.file}:{mark.line}:{mark.column}: `{name}` is not used by Seatrial or tgis-tester")
            continue
        if inner := _inner_model(field.annotation):
            items = {(index,): item for index, item in enumerate(value)} if isinstance(value, list) else {(): value}
            for place, item in items.items():
                found += _unknown(source, inner, item, (*path, name, *place))
    return found


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(inner) for inner in getattr(annotation, "__args__", ()))
    return next((one for one in found if one is not None), None)
