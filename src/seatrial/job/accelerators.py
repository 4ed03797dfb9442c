"""The GPUs that names mean: those that a suite declares, those of nvidia-smi and those in node labels. The table is
`accelerators.toml`."""

import re
from functools import cache
from typing import Any

import msgspec

# Tolerance for memory: a 24 GiB GPU shows 22.5 with error correction on; the system reserves some main memory.
NEAR = 0.10


class GpuProduct(msgspec.Struct, frozen=True):
    """One value of a node label that names a GPU."""

    model: str
    memory_gib: int  # 0: the value does not tell
    label: str
    value: str
    memory_label: str = ""  # has the memory of one GPU in MiB


@cache
def _table() -> dict[str, Any]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads((files(__package__) / "accelerators.toml").read_text(encoding="utf-8"))


@cache
def all_products() -> tuple[GpuProduct, ...]:
    table = _table()
    return tuple(
        GpuProduct(model, int(gib), label, prefix + value, memory_label)
        for model, by_memory in table["models"].items()
        for gib, by_source in by_memory.items()
        for source, values in by_source.items()
        for label, memory_label in table["labels"][source].items()
        for value in values
        for prefix in (("", "NVIDIA-") if source == "product" else ("",))  # newer drivers add it
    )


@cache
def products_of(declared: str) -> tuple[GpuProduct, ...]:
    """The products of a model (A100), else those with all words of the name (A100-SXM4, A100 80GB); else none."""
    known, plain, words = all_products(), _plain(declared), _words(declared)
    exact = tuple(one for one in known if _plain(one.model) == plain)
    return exact or tuple(one for one in known if words and words <= _words(one.value))


def is_gpu_model(declared: str, observed: str) -> bool:
    """Whether nvidia-smi's name is the declared model: `A100` matches `NVIDIA A100-SXM4-40GB`, `A10` does not. The
    table decides if it has both names, because a name may be part of another one: RTX 4000 Ada, GH200, L40S."""
    meant, words = products_of(declared), _words(observed)
    if meant and any(_words(one.value) == words for one in all_products()):
        return any(_words(one.value) == words for one in meant)
    return re.search(re.escape(_plain(declared)) + r"(?!\d)", _plain(observed)) is not None


def tpu_labels() -> dict[str, str]:
    """The accelerator label of each TPU type on GKE."""
    return dict(_table()["tpus"])


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return frozenset(re.sub(r"^(\d+)g$", r"\1gb", word) for word in words if word != "nvidia")
