"""tgis-tester's config.yaml: read as it is, checked by rules, and made into a suite with the same plan."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial import plugins
from seatrial.kubernetes import KubernetesError, load_access
from seatrial.kubernetes.credentials import run_plugin
from seatrial.migrate.tgis_tester import read_tester_config, suite_from_tester
from seatrial.plan import expand
from seatrial.suite import Cell, SuiteError, load
from seatrial.targets.kubernetes.manifest import make
from seatrial.targets.kubernetes.options import KubernetesOptions

CONFIG = """\
cluster: {api_endpoint: https://api.example:6443, namespace: tgis-test, service_account_name: tester}
worker:
  image_uri: registry.example/tgis:main
  image_pull_secret: pull
  tls_secret: tgis-tls
  ready_timeout_secs: 1800
  scheduled_timeout_secs: 90
  max_parallel_workers: 3
  max_connection_retries: 10
  ingress_hostname: apps.example:443
  pvcs: [{name: models, mount_path: /models, read_only: true}]
  transformers_cache_path: /models/cache
runner:
  ca_cert_path: certs/ca.pem
  object_store_secret: s3
  object_store_bucket: results
  object_store_endpoint: https://s3.example
  object_store_region: us
  generate_stream: true
tests:
- model: google/flan-t5-small
  cases: [tests/common.yaml, tests/flan.yaml]
  configs:
  CONFIGS
- model: bigscience/bloom-560m
  cases: [tests/common.yaml]
  configs: [{deployment_framework: hf_transformers, pt2_compile: true}]
"""
CONFIGS = """\
- {deployment_framework: hf_custom_tp, flash_attention: true}
  - {dtype_str: float32, resources: {gpu: null}}
  - {dtype_str: float32, resources: {gpu: null}, max_batch_size: 4}
  - {num_shard: 2, resources: {gpu: 2, request_cpu: 3}}
  - {resources: {gpu: {mig_1g_10gb: 1}}}
"""
COMMON = """\
- {name: one, request: {requests: [{text: hi}]}, response: {responses: [{inputTokenCount: 1, text: ho}]}}
- {name: two, single_shard_only: true, request: {requests: [{text: hi}]}, error: {code: INTERNAL, message: no}}
"""
FLAN = "- {name: tuned, request: {prefixId: soft, requests: [{text: hi}]}, response: {responses: [{text: ho}]}}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for folder in ("config", "tests", "certs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tests" / "common.yaml").write_text(COMMON)
    (tmp_path / "tests" / "flan.yaml").write_text(FLAN)
    (tmp_path / "certs" / "ca.pem").write_text("")
    path = tmp_path / "config" / "product.yaml"
    path.write_text(CONFIG.replace("CONFIGS", CONFIGS.rstrip()))
    return path


def planned(config: Path) -> dict[str, Cell]:
    made = suite_from_tester(read_tester_config(config), config.parent)
    out = config.parent / "seatrial.yaml"
    out.write_text(made.text)
    return {cell.trial: cell for cell in expand(load(out, *plugins.models())).cells}


def gathered(cell: Cell) -> dict[str, str]:
    """Why each case is not asked."""
    kind = plugins.kinds()["serving"]
    return {one.case.name: one.skipped for one in kind.gather(cell).cases}


def test_each_configuration_of_each_model_is_a_cell_of_its_own(config: Path) -> None:
    cells = planned(config)
    assert list(cells) == [
        "flan-t5-small.tgis_native-f16-flash",
        "flan-t5-small.tgis_native-f32-cpu",
        "flan-t5-small.tgis_native-f32-cpu-2",
        "flan-t5-small.tgis_native-f16-sharded2",
        "flan-t5-small.tgis_native-f16",
        "bloom-560m.hf_transformers-f16-pt2c",
    ]
    parts = [(cell.hash, part) for cell in cells.values() for part in plugins.kinds()["serving"].parts(cell)]
    names = {part.for_attempt("run", cell, 1).job.name for cell, part in parts}
    assert len(names) == 12  # a server and a driver each: two that differ in their batch size alone do not clash


def test_a_configuration_is_the_variables_of_its_server(config: Path) -> None:
    cells = planned(config)
    server, _ = plugins.kinds()["serving"].parts(cells["flan-t5-small.tgis_native-f32-cpu-2"])
    env = server.job.env
    assert env["MODEL_NAME"] == "google/flan-t5-small"
    assert (env["DTYPE_STR"], env["MAX_BATCH_SIZE"], env["NUM_SHARD"]) == ("float32", "4", "1")
    assert (env["CUDA_VISIBLE_DEVICES"], env["HF_HUB_CACHE"]) == ("-1", "/models/cache")
    assert (env["MAX_WAITING_TOKENS"], env["MASTER_PORT"]) == ("10", "29500")  # which tgis-tester forgets
    assert "QUANTIZE" not in env
    assert {port.name: port.number for port in server.job.ports} == {"serve": 8001, "health": 5001}
    assert server.job.ready is not None
    assert (server.job.ready.path, server.job.ready.within_s) == ("/health", 1800)
    assert server.job.limits.queue_s == 90
    sharded, _ = plugins.kinds()["serving"].parts(cells["flan-t5-small.tgis_native-f16-sharded2"])
    assert (sharded.job.env["NUM_SHARD"], "CUDA_VISIBLE_DEVICES" in sharded.job.env) == ("2", False)


def _pod(cell: Cell, config: Path) -> dict[str, Any]:
    suite = load(config.parent / "seatrial.yaml", *plugins.models())
    options = suite.targets[cell.target].options
    assert isinstance(options, KubernetesOptions)
    server, _ = plugins.kinds()["serving"].parts(cell)
    made = make(
        server.job.for_attempt("run", cell.hash, 1),
        options,
        namespace="tgis-test",
        run_owner={},
        agent="agent",
        inputs=[],
        secrets={},
    )
    spec: dict[str, Any] = made.root["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("trial", "limits", "asked"),
    [
        ("flan-t5-small.tgis_native-f16-flash", {"nvidia.com/gpu": "1"}, "2"),
        ("flan-t5-small.tgis_native-f32-cpu", {}, "2"),
        ("flan-t5-small.tgis_native-f16-sharded2", {"nvidia.com/gpu": "2"}, "3"),
        ("flan-t5-small.tgis_native-f16", {"nvidia.com/mig-1g.10gb": "1"}, "2"),
    ],
)
def test_requests_limits_gpus_and_slices_are_asked_for(
    config: Path, trial: str, limits: dict[str, str], asked: str
) -> None:
    pod = _pod(planned(config)[trial], config)
    container = next(one for one in pod["containers"] if one["name"] == "trial")
    resources = container["resources"]
    assert {name: value for name, value in resources["limits"].items() if "nvidia" in name} == limits
    assert resources["limits"]["cpu"] == "4"
    assert (resources["requests"]["cpu"], resources["requests"]["memory"]) == (asked, "4G")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/models", "/mnt/certs", "/home/tgis", "/tmp"} <= mounts


def test_cases_are_left_out_as_there_and_each_says_why(config: Path) -> None:
    cells = planned(config)
    assert gathered(cells["flan-t5-small.tgis_native-f16"]) == {"one": "", "two": "", "tuned": ""}
    flash = gathered(cells["flan-t5-small.tgis_native-f16-flash"])
    assert flash == {"one": "", "two": "", "tuned": "flash attention does not support prompt prefixes"}
    sharded = gathered(cells["flan-t5-small.tgis_native-f16-sharded2"])
    assert sharded["two"] == "needs a single shard; this server has 2"
    assert gathered(cells["bloom-560m.hf_transformers-f16-pt2c"]) == {"one": "", "two": ""}  # the same file


def test_every_rule_has_its_text_and_all_are_said_at_once(config: Path) -> None:
    bad = """\
- {flash_attention: true, dtype_str: float32, deployment_framework: ibm_fms, resources: {gpu: 0}}
  - {pt2_compile: true, quantize: gptq, deployment_framework: hf_accelerate}
  - {resources: {gpu: null}}
  - {num_shard: 4, resources: {gpu: 2}}
  - {num_shard: 2, resources: {gpu: {mig_2g_20gb: 2}}}
  - {port: 8001, master_port: 8001}
  - {cuda_process_memory_fraction: 1.5}
  - {dtype_str: float64}
  - {resources: {gpu: two, request_cpu: 32}}
  - {resources: {request_cpu: 32, request_memory_gb: 97}}
"""
    config.write_text(
        CONFIG.replace("CONFIGS", bad.rstrip()).replace("max_parallel_workers: 3", "max_parallel_workers: 0")
    )
    with pytest.raises(SuiteError) as caught:
        read_tester_config(config)
    said = str(caught.value)
    for line in (
        "product.yaml:24:23: flash attention needs a GPU (`resources.gpu` has none)",
        "flash attention needs float16 or bfloat16; `dtype_str` is float32",
        "flash attention needs framework tgis_native, not ibm_fms",
        "compiling with PyTorch 2 needs framework hf_transformers, not hf_accelerate",
        "gptq needs framework tgis_native, not hf_accelerate",
        "without a GPU `dtype_str` must be float32, not float16",
        "4 shards need as many GPUs; `resources.gpu` is 2",
        "2 shards need whole GPUs, not MIG slices",
        "`port` and `grpc_port` must differ; both are 8001",
        "`port` and `master_port` must differ",
        "memory fraction 1.5 (limit 1.0)",
        "expected one of float16, float32, bfloat16, got 'float64'",
        "product.yaml:8:25: must be greater than or equal to 1, got the number 0",
        "expected a map with mig_1g_10gb, mig_2g_20gb, mig_3g_40gb, got 'two'; or expected a whole number, got 'two'",
        "product.yaml:33:31: `request_cpu` is above `limit_cpu` (32 > 4 CPUs); Kubernetes rejects such a pod",
        "`request_memory_gb` is above `limit_memory_gb` (97 > 96 GB); Kubernetes rejects such a pod",
        "17 problems",
    ):
        assert line in said


def test_what_is_wrong_with_the_file_is_said_at_its_place(config: Path) -> None:
    text = config.read_text().replace("image_pull_secret: pull", "image_pull_secret: 4").replace("bigscience", "bad")
    text = text.replace("pt2_compile: true", "dtype_str: float8").replace("  tls_secret: tgis-tls\n", "")
    config.write_text(text)
    with pytest.raises(SuiteError) as caught:
        read_tester_config(config)
    said = str(caught.value)
    assert "product.yaml:4:22: expected text, but YAML reads 4 as the number 4" in said
    assert "`tls_secret` is missing" in said
    assert "expected one of float16, float32, bfloat16, got 'float8'" in said


def test_what_means_nothing_is_said_and_ignored_as_there(config: Path) -> None:
    config.write_text(config.read_text().replace("  tls_secret", "  frobnicate: 3\n  tls_secret"))
    (ignored,) = read_tester_config(config).ignored
    assert "product.yaml:5:3: `frobnicate` is not used by Seatrial or tgis-tester" in ignored


def test_a_config_beside_its_tests_finds_the_files_of_the_image_by_a_map(config: Path, tmp_path: Path) -> None:
    beside = tmp_path / "config.yaml"
    text = config.read_text().replace("certs/ca.pem", "/app/certs/ca.pem").replace("tests/flan", "/app/tests/flan")
    beside.write_text(text)
    with pytest.raises(SuiteError) as caught:
        read_tester_config(beside)
    said = str(caught.value)
    assert said.count("file not found: /app/tests/flan.yaml; use `--map /app=DIR`") == 1
    assert "2 problems" in said  # and the certificates; tests/common.yaml is found next to the config
    found = read_tester_config(beside, (("/app", str(tmp_path)),))
    assert found.local("/app/tests/flan.yaml") == tmp_path / "tests" / "flan.yaml"
    assert found.local("/apples/x") == Path("/apples/x")
    assert found.local("tests/common.yaml") == tmp_path / "tests" / "common.yaml"


def test_the_image_tag_and_the_token_of_the_environment_are_used_as_there(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read_tester_config(config)
    for image, tagged in (
        ("r.example:5000/tgis", "r.example:5000/tgis:v7"),
        ("r.example/tgis:old", "r.example/tgis:v7"),
    ):
        worker = file.config.worker.model_copy(update={"image_uri": image})
        changed = msgspec.structs.replace(file, config=file.config.model_copy(update={"worker": worker}))
        assert f'image: "{tagged}"' in suite_from_tester(changed, config.parent, image_tag="v7").text
    made = suite_from_tester(file, config.parent)
    path = config.parent / "tgis-tester.kubeconfig"
    path.write_text(made.files[path.name])
    access = load_access(path)
    assert (access.server, access.namespace) == ("https://api.example:6443", "tgis-test")
    monkeypatch.setenv("TESTER_SERVICE_ACCOUNT_TOKEN", "sesame")
    assert access.identity.plugin is not None
    assert asyncio.run(run_plugin(access.identity.plugin, access)).token == "sesame"
    monkeypatch.delenv("TESTER_SERVICE_ACCOUNT_TOKEN")
    with pytest.raises(KubernetesError, match="TESTER_SERVICE_ACCOUNT_TOKEN: is not set"):
        asyncio.run(run_plugin(access.identity.plugin, access))
