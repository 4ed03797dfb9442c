"""Answers of llama.cpp against those of the same model in NumPy, which has not a line in common with it: every way of
running it passes at its own precision, every fault that is put into it fails at f32 and at f16."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xllamacpp

from kinds.serving.answers.tiny_llama import FILE, PROMPTS, WIDTH, Array, TinyLlama, weights_in
from seatrial.kinds.serving.answers import judge_answers

F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30  # types of the cache of keys and values
ASKED = {"max_tokens": 24, "temperature": 0, "logprobs": 5, "repeat_penalty": 1.0, "cache_prompt": False}


@cache
def _reference() -> list[dict[str, Any]]:
    return TinyLlama().answers()


def answers(
    model: Path, crowd: bool = False, body: dict[str, Any] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Of the engine with these options, one after the other or eight at a time, with these fields in each request."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.hostnames, parameters.port = str(model), ["127.0.0.1"], 0
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 8 * 512, 8, False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.verbosity = 0
    for name, value in options.items():
        setattr(parameters, name, value)
    server = xllamacpp.Server(parameters)

    def ask(prompt: str) -> dict[str, Any]:
        (made,) = server.handle_completions({**ASKED, "prompt": prompt, **(body or {})})["choices"]
        listed = made["logprobs"]["content"]
        return {
            "prompt": prompt,
            "text": made["text"],
            "finish": made["finish_reason"],
            "lp": {
                "tokens": [one["token"] for one in listed],
                "token_logprobs": [one["logprob"] for one in listed],
                "top_logprobs": [{top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in listed],
            },
        }

    with ThreadPoolExecutor(8 if crowd else 1) as asking:
        return list(asking.map(ask, PROMPTS))


def of(precision: str) -> Path:
    return FILE.with_name(f"tiny-{precision}.gguf")


@pytest.mark.parametrize(
    ("precision", "weights", "options"),
    [
        ("f32", "f32", {"cache_type_k": F32, "cache_type_v": F32}),
        ("f32", "f32", {"cache_type_k": F16, "cache_type_v": F16}),
        ("f32", "f32", {"flash_attn_type": 1}),
        ("f32", "f32", {"flash_attn_type": 0, "crowd": True}),
        ("f32", "f32", {"kv_unified": True, "crowd": True}),
        ("f32", "f32", {"cont_batching": False, "crowd": True}),
        ("f32", "f32", {"n_batch": 32, "n_ubatch": 2}),
        ("f32", "f32", {"n_parallel": 1, "body": {"cache_prompt": True}}),
        ("f16", "f16", {}),
        ("f16", "f16", {"cache_type_k": F32, "cache_type_v": F32}),
        ("f16", "f16", {"flash_attn_type": 0, "crowd": True}),
        ("bf16", "f16", {"cache_type_k": BF16, "cache_type_v": BF16}),
        ("bf16", "f32", {"cache_type_k": BF16, "cache_type_v": BF16}),
        ("q8_0", "q8_0", {}),
        ("q8_0", "q8_0", {"n_batch": 32, "n_ubatch": 2}),
        ("q8_0", "q8_0", {"flash_attn_type": 0, "crowd": True}),
        ("q8_0", "q8_0", {"flash_attn_type": 1, "cache_type_k": Q8_0, "cache_type_v": Q8_0}),
        ("q8_0", "f32", {"flash_attn_type": 1, "cache_type_k": Q8_0, "cache_type_v": Q8_0}),
    ],
)
def test_a_way_of_running_the_engine_passes_at_its_own_precision(
    precision: str, weights: str, options: dict[str, Any]
) -> None:
    judged = judge_answers(_reference(), answers(of(weights), **options), precision)
    assert judged.passed, (judged.cases, judged.whole)


# ---- faults, each of which must be caught at f32 and at f16


Edit = Callable[[dict[str, Array]], None]


def _scaled(name: str, by: float) -> Edit:
    def edit(weights: dict[str, Array]) -> None:
        weights[name] *= np.float32(by)

    return edit


def _noisy(size: float, part: str = "") -> Edit:
    def edit(weights: dict[str, Array]) -> None:
        chance = np.random.default_rng(1)
        for name, values in weights.items():
            if values.ndim == 2 and part in name:
                values *= (1 + size * chance.standard_normal(values.shape)).astype(np.float32)

    return edit


def _without_a_head(weights: dict[str, Array]) -> None:
    weights["blk.1.attn_output.weight"][:, :WIDTH] = 0


def _layers_swapped(weights: dict[str, Array]) -> None:
    for name in [name for name in weights if name.startswith("blk.0.")]:
        first, second = weights[name], weights[name.replace("blk.0.", "blk.1.")]
        first[:], second[:] = second.copy(), first.copy()


def _two_tokens_swapped(weights: dict[str, Array]) -> None:
    """Of which the first is in most answers."""
    one, other = TinyLlama().encode(" the is")
    weights["output.weight"][[one, other]] = weights["output.weight"][[other, one]]


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(_scaled("blk.1.attn_q.weight", 1.02), id="queries of a layer by 1.02"),
        pytest.param(_scaled("blk.0.attn_v.weight", 1.02), id="values of a layer by 1.02"),
        pytest.param(_scaled("blk.0.ffn_down.weight", 1.01), id="a projection by 1.01"),
        pytest.param(_scaled("output.weight", 1.002), id="logits by 1.002"),
        pytest.param(_noisy(0.002), id="all off by 0.2 %"),
        pytest.param(_noisy(0.01, "blk.0.ffn_up"), id="one tensor off by 1 %"),
        pytest.param(_without_a_head, id="no head"),
        pytest.param(_layers_swapped, id="layers swapped"),
        pytest.param(_two_tokens_swapped, id="tokens swapped"),
    ],
)
def test_a_fault_of_the_weights_is_caught(tmp_path: Path, edit: Edit) -> None:
    data = bytearray(FILE.read_bytes())
    edit(weights_in(data))
    (tmp_path / "broken.gguf").write_bytes(data)
    assert_caught(tmp_path / "broken.gguf")


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        ("f32", {"rope_freq_base": 8000.0}),
        ("f32", {"rope_freq_base": 9900.0}),
        ("f32", {"rope_freq_scale": 0.99}),
        ("f32", {"flash_attn_type": 1, "cache_type_k": Q4_0, "cache_type_v": Q4_0}),
        ("f32", {"flash_attn_type": 1, "cache_type_k": Q8_0, "cache_type_v": Q8_0}),
        ("q8_0", {}),
        ("f32", {"body": {"repeat_penalty": 1.1}}),
        ("f32", {"body": {"repeat_penalty": 1.02}}),
        ("f32", {"body": {"frequency_penalty": 0.1}}),
        ("f32", {"body": {"presence_penalty": 0.1}}),
        ("f32", {"body": {"dry_multiplier": 0.8, "dry_allowed_length": 1}}),
        ("f32", {"body": {"temperature": 0.1, "seed": 1}}),
        ("f32", {"body": {"max_tokens": 23}}),
        ("f32", {"body": {"max_tokens": 25}}),
    ],
)
def test_a_fault_of_the_engine_is_caught(weights: str, options: dict[str, Any]) -> None:
    assert_caught(of(weights), **options)


def assert_caught(model: Path, **options: Any) -> None:
    made = answers(model, **options)
    for precision in ("f32", "f16"):
        judged = judge_answers(_reference(), made, precision)
        assert not judged.passed, (precision, judged.cases, judged.whole)
