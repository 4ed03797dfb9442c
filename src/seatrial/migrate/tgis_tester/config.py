"""Reads tgis-tester's config.yaml: models with its defaults, and validation."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field, ValidationError

from seatrial.kinds.serving.config_rules import ServerConfig, TesterModel, Whole, config_problems
from seatrial.suite.yaml.problem import KeyPath, Problem, SourceMark, SuiteError, dotted, explain
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
    path: Path
    config: TesterConfig
    source: Source
    ignored: tuple[str, ...] = ()  # warnings for unused fields, with their positions
    moved: tuple[tuple[str, str], ...] = ()  # folders of the tester's image, and where they are here

    def local(self, path: str) -> Path:
        """Where a file is here. Relative paths start two levels above the config, as for tgis-tester, or else next to
        it, as in tgis-tester's README."""
        for folder, here in self.moved:
            if path == folder or path.startswith(f"{folder}/"):
                return Path(here).absolute() / path.removeprefix(folder).lstrip("/")
        around = self.path.absolute().parent
        found = (base / path for base in (around.parent, around))
        return next((one for one in found if one.exists()), around.parent / path)


def read_tester_config(path: Path, moved: tuple[tuple[str, str], ...] = ()) -> TesterFile:
    """Raises SuiteError with all problems of the file, including those of the configuration rules."""
    source = read_source(path)
    problems = list(source.problems)

    def blame(path: KeyPath, message: str) -> None:
        problems.append(Problem(message, source.find(path)[0], dotted(path)))

    config: TesterConfig | None = None
    try:
        config = TesterConfig.model_validate(source.data)
    except ValidationError as error:
        ones: dict[tuple[SourceMark, str], Problem] = {}
        for loc, key, message in explain(error, TesterConfig, lambda loc: source.find(loc)[1]):
            mark = source.find(loc, key)[0]
            place = mark, message if key else ""  # a value can be wrong in several ways, one for each of its types
            whole = f"{ones[place].message}; or {message}" if place in ones else message
            ones[place] = Problem(whole, mark, dotted(loc))
        problems += ones.values()
    for test, spec in _items(source.data, "tests"):
        for number, one in _items(spec, "configs"):
            with contextlib.suppress(ValidationError):  # check the readable ones despite errors elsewhere
                for field, why in config_problems(ServerConfig.model_validate(one)):
                    blame(("tests", test, "configs", number, *field.split(".")), why)
    if config is not None:
        ignored = tuple(_unknown(source, config, source.data, ()))
        found = TesterFile(path, config, source, ignored, moved)
        files: dict[KeyPath, str | None] = {("runner", "ca_cert_path"): config.runner.ca_cert_path}
        for test, tested in enumerate(config.tests):
            files |= {("tests", test, "cases", number): case for number, case in enumerate(tested.cases)}
        for where, name in files.items():
            if name is not None and not found.local(name).is_file():
                top = "/".join(name.split("/")[:2])
                hint = f"; use `--map {top}=DIR` for files of tgis-tester's image" if name.startswith("/") else ""
                blame(where, f"file not found: {found.local(name)}{hint}")
    if problems or config is None:
        raise SuiteError(problems)
    return found


def _items(data: Any, name: str) -> Iterable[tuple[int, Any]]:
    found = data.get(name) if isinstance(data, dict) else None
    return enumerate(found if isinstance(found, list) else ())


def _unknown(source: Source, model: Any, data: Any, path: KeyPath) -> Iterator[str]:
    """Warnings for fields that neither Seatrial nor tgis-tester uses."""
    if isinstance(model, tuple):
        for index, (one, item) in enumerate(zip(model, data, strict=False)):
            yield from _unknown(source, one, item, (*path, index))
    elif isinstance(model, BaseModel) and isinstance(data, dict):
        for name, value in data.items():
            if name in type(model).model_fields:
                yield from _unknown(source, getattr(model, name), value, (*path, name))
            else:
                mark, _ = source.find((*path, name), key=True)
                yield f"{mark.file}:{mark.line}:{mark.column}: `{name}` is not used by Seatrial or tgis-tester"
