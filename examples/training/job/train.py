"""A tiny language model that learns which letter follows which, trained with JAX: a real training job, in seconds.

It tells of each step in its log, writes a profile of some steps and a file of metrics, as large jobs do. Its batches
come from an input pipeline with a pace of its own, slower than the model: a step takes as long on every machine, busy
or not.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

BATCH_S = 0.100  # what the input pipeline takes for a batch
LETTERS, WIDTH, HIDDEN = 64, 32, 128
PROFILED = range(5, 11)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("SEATRIAL_FILES", ".")))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--diverge-at", type=int, default=-1, help="from here, a learning rate with a slip in it: 1e39")
    parser.add_argument("--hang-at", type=int, default=-1, help="wait forever in this step, as for a host that is gone")
    return parser.parse_args()


def new_model(seed: int) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.PRNGKey(seed), 3)
    return {
        "letters": 0.3 * jax.random.normal(keys[0], (LETTERS, WIDTH)),
        "hidden": 0.3 * jax.random.normal(keys[1], (WIDTH, HIDDEN)),
        "out": 0.3 * jax.random.normal(keys[2], (HIDDEN, LETTERS)),
    }


def loss_of(model: dict[str, jax.Array], now: jax.Array, following: jax.Array) -> jax.Array:
    hidden = jnp.tanh(model["letters"][now] @ model["hidden"])
    scores = jax.nn.log_softmax(hidden @ model["out"])
    return -jnp.mean(jnp.take_along_axis(scores, following[:, None], axis=-1))


@jax.jit
def improve(model, now, following, rate):
    loss, slopes = jax.value_and_grad(loss_of)(model, now, following)
    return jax.tree.map(lambda weight, slope: weight - rate * slope, model, slopes), loss


class Text:
    """Letters of which each has one that mostly follows it. The next batch is made while the last one is learned."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._next = self._random.permutation(LETTERS)
        self._ready = time.monotonic() + BATCH_S

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(max(0.0, self._ready - time.monotonic()))
        self._ready = time.monotonic() + BATCH_S
        now = self._random.integers(0, LETTERS, 512)
        strays = self._random.random(512) < 0.1
        return now, np.where(strays, self._random.integers(0, LETTERS, 512), self._next[now])


def main() -> None:
    asked = options()
    model, text, times = new_model(0), Text(0), []
    asked.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    for step in range(asked.steps):
        if step == PROFILED.start:
            jax.profiler.start_trace(str(asked.out / "profile"))
        if step == asked.hang_at:
            threading.Event().wait()
        step_began = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            rate = 1e39 if 0 <= asked.diverge_at <= step else 1.0
            model, loss = improve(model, *text.batch(), rate)
            loss = float(loss)
        times.append(time.perf_counter() - step_began)
        print(f"step: {step} loss: {loss:.4f} step_time: {times[-1]:.6f}s", flush=True)
        if step == PROFILED.stop - 1:
            jax.profiler.stop_trace()
    metrics = {
        "train_runtime": time.perf_counter() - began,
        "step_execution_time": float(np.median(times[2:])),
        "num_steps": asked.steps,
    }
    (asked.out / "train_metrics.json").write_text(json.dumps(metrics))
    print("Finished training run", flush=True)


if __name__ == "__main__":
    main()
