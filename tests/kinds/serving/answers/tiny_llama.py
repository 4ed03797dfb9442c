"""The small Llama of examples/serving in NumPy, so that tests can compute it in any precision, and wrongly.

It agrees with transformers in float32 to the last digits. Every operation is rounded to the precision that is asked
for; what a test wants to break it changes in `weights` or in the fields of the model."""

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]
FILE = Path(__file__).parents[4] / "examples" / "serving" / "server" / "model" / "tiny-f32.gguf"
HEADS, WIDTH, LAYERS = 2, 32, 2
END = 2
PROMPTS = (
    *("The following table", "A function is", "Each module", "The import system", "If the value"),
    *("When an exception", "This statement", "A generator"),
)
_WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def bfloat16(values: Array) -> Array:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


def int8(values: Array) -> Array:
    """Blocks of 32 with a scale each, as GGUF's q8_0."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    rounded: Array = np.round(blocks / np.where(scale == 0, 1, scale)).clip(-127, 127) * scale
    return rounded.reshape(values.shape)


ROUND: dict[str, Callable[[Array], Array]] = {
    "f32": lambda values: values.astype(np.float32),
    "f16": lambda values: values.astype(np.float16).astype(np.float32),
    "bf16": bfloat16,
    "q8_0": int8,
}


@cache
def read_model() -> tuple[dict[str, Any], dict[str, Array]]:
    return _head()[0], weights_in(FILE.read_bytes())


def weights_in(data: bytes | bytearray) -> dict[str, Array]:
    """Of the bytes of the file. What is changed in those of a bytearray is changed in it."""
    return {
        name: np.frombuffer(data, np.float32, int(np.prod(shape)), at).reshape(shape[::-1])
        for name, shape, at in _head()[1]
    }


@cache
def _head() -> tuple[dict[str, Any], list[tuple[str, list[int], int]]]:
    """What the file says of the model; and of each tensor the name, the shape and where it is."""
    with FILE.open("rb") as file:
        assert file.read(4) == b"GGUF"
        _, tensors, keys = _number(file, "I"), _number(file, "Q"), _number(file, "Q")
        meta = {_text(file): _value(file, _number(file, "I")) for _ in range(keys)}
        places = [(_text(file), _shape(file), _number(file, "I"), _number(file, "Q")) for _ in range(tensors)]
        start = -(-file.tell() // 32) * 32
    return meta, [(name, shape, start + offset) for name, shape, _, offset in places]


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode()


def _shape(file: BinaryIO) -> list[int]:
    return [_number(file, "Q") for _ in range(_number(file, "I"))]


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        inner, count = _number(file, "I"), _number(file, "Q")
        return [_value(file, inner) for _ in range(count)]
    return _number(file, {0: "B", 1: "b", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}[kind])


@cache
def _bytes_of_letters() -> dict[str, int]:
    """GPT-2's letters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(rest)}


class TinyLlama:
    def __init__(self, weights: str = "f32", activations: str = "f32", cache: str = "f32") -> None:
        meta, values = read_model()
        self.tokens: list[str] = meta["tokenizer.ggml.tokens"]
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._merges = {tuple(pair.split(" ")): rank for rank, pair in enumerate(meta["tokenizer.ggml.merges"])}
        rounded = ROUND[weights]
        self.weights = {name: rounded(one) if one.ndim == 2 else one for name, one in values.items()}
        self._round, self._round_cache = ROUND[activations], ROUND[cache]
        self.theta, self.epsilon = 10_000.0, 1e-6
        self.zeroed_head: int | None = None
        self.change: Callable[[Array, Sequence[int]], Array] = lambda logits, _: logits  # before the softmax
        self.choose: Callable[[Array, Sequence[int]], int] = lambda logits, _: int(logits.argmax())

    def encode(self, text: str) -> list[int]:
        letters = {byte: letter for letter, byte in _bytes_of_letters().items()}
        found: list[int] = []
        for word in _WORDS.findall(text):
            parts = [letters[byte] for byte in word.encode()]
            while len(parts) > 1:
                ranks = [self._merges.get(pair, 1 << 30) for pair in pairwise(parts)]
                best = min(range(len(ranks)), key=ranks.__getitem__)
                if ranks[best] == 1 << 30:
                    break
                parts[best : best + 2] = [parts[best] + parts[best + 1]]
            found += [self._ids[part] for part in parts]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        letters = _bytes_of_letters()
        return b"".join(
            bytes(letters[letter] for letter in self.tokens[one]) if one > 4 else b"" for one in ids
        ).decode("utf-8", "replace")

    def answer(self, prompt: str, count: int = 24, first: Sequence[int] = ()) -> dict[str, Any]:
        """As OpenAI's completions have it. `first` are tokens before those of the prompt."""
        sequence = [*first, *self.encode(prompt)]
        memory: list[tuple[Array, Array]] = []
        fresh, made, logprobs, tops = list(sequence), list[int](), list[float](), list[dict[str, float]]()
        for _ in range(count):
            logits = self.change(self._logits(np.array(fresh), memory), sequence)
            likely = logits - logits.max()
            likely = likely - np.log(np.exp(likely).sum())
            chosen = self.choose(logits, sequence)
            made.append(chosen)
            sequence.append(chosen)
            logprobs.append(float(likely[chosen]))
            tops.append({self.decode([int(one)]): float(likely[one]) for one in np.argsort(-likely)[:5]})
            if chosen == END:
                break
            fresh = [chosen]
        texts = [self.decode([one]) for one in made]
        listed = {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops}
        finish = "stop" if made[-1] == END else "length"
        return {"prompt": prompt, "text": self.decode(made), "finish": finish, "lp": listed}

    def answers(self, prompts: Sequence[str] = PROMPTS, count: int = 24) -> list[dict[str, Any]]:
        return [self.answer(prompt, count) for prompt in prompts]

    def _logits(self, ids: np.ndarray[Any, Any], memory: list[tuple[Array, Array]]) -> Array:
        before = len(memory[0][0]) if memory else 0
        places = np.arange(before, before + len(ids))
        state = self._round(self.weights["token_embd.weight"][ids])
        for layer in range(LAYERS):
            attended = self._attention(layer, self._norm(state, f"blk.{layer}.attn_norm"), places, memory)
            state = self._round(state + self._times(attended, f"blk.{layer}.attn_output"))
            inner = self._norm(state, f"blk.{layer}.ffn_norm")
            gate, up = self._times(inner, f"blk.{layer}.ffn_gate"), self._times(inner, f"blk.{layer}.ffn_up")
            gated = self._round(self._round(gate / (1 + np.exp(-gate))) * up)
            state = self._round(state + self._times(gated, f"blk.{layer}.ffn_down"))
        logits: Array = self._times(self._norm(state[-1:], "output_norm"), "output")[0]
        return logits

    def _times(self, values: Array, name: str) -> Array:
        return self._round(values @ self.weights[f"{name}.weight"].T)

    def _norm(self, values: Array, name: str) -> Array:
        scaled = values / np.sqrt((values * values).mean(-1, keepdims=True) + self.epsilon)
        return self._round(self._round(scaled) * self.weights[f"{name}.weight"])

    def _attention(
        self, layer: int, values: Array, places: np.ndarray[Any, Any], memory: list[tuple[Array, Array]]
    ) -> Array:
        query = self._turn(self._times(values, f"blk.{layer}.attn_q").reshape(-1, HEADS, WIDTH), places)
        key = self._turn(self._times(values, f"blk.{layer}.attn_k").reshape(-1, 1, WIDTH), places)[:, 0]
        key, value = self._round_cache(key), self._round_cache(self._times(values, f"blk.{layer}.attn_v"))
        if layer < len(memory):
            key, value = np.concatenate([memory[layer][0], key]), np.concatenate([memory[layer][1], value])
            memory[layer] = key, value
        else:
            memory.append((key, value))
        scores = self._round(np.einsum("qhd,kd->hqk", query, key) * np.float32(WIDTH**-0.5))
        scores = np.where((np.arange(len(key))[None, :] > places[:, None])[None], -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = self._round(weights / weights.sum(-1, keepdims=True))
        attended = self._round(np.einsum("hqk,kd->qhd", weights, value))
        if self.zeroed_head is not None and layer == 1:
            attended[:, self.zeroed_head] = 0
        return attended.reshape(-1, HEADS * WIDTH)

    def _turn(self, values: Array, places: np.ndarray[Any, Any]) -> Array:
        """Rotary positions, of pairs side by side."""
        speed = self.theta ** (-np.arange(0, WIDTH, 2) / WIDTH)
        angle = (places[:, None] * speed)[:, None, :]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        turned = np.empty_like(values)
        turned[..., 0::2] = values[..., 0::2] * cos - values[..., 1::2] * sin
        turned[..., 1::2] = values[..., 0::2] * sin + values[..., 1::2] * cos
        return self._round(turned)
