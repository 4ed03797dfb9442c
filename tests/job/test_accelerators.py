"""The table of GPU products: what names mean, and that the table itself is sound."""

import re

import pytest

from seatrial.job import all_products, products_of

LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def values(declared: str, label: str = "nvidia.com/gpu.product", gib: int | None = None) -> set[str]:
    found = [one for one in products_of(declared) if one.label == label and gib in (None, one.memory_gib)]
    return {one.value for one in found}


def test_every_value_of_the_table_can_be_a_label_and_means_one_model() -> None:
    meant: dict[tuple[str, str], tuple[str, int]] = {}
    for one in all_products():
        assert LABEL_VALUE.fullmatch(one.value), one
        assert meant.setdefault((one.label, one.value), (one.model, one.memory_gib)) == (one.model, one.memory_gib)
        assert one in products_of(one.model)


@pytest.mark.parametrize(
    ("declared", "some", "not_one"),
    [
        ("A100", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A10"),
        ("A100", "A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),  # of older drivers; a MIG slice is another
        ("a100 80gb", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A100-SXM4-40GB"),
        ("A100-SXM4", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
        ("RTX4000", "Quadro-RTX-4000", "NVIDIA-RTX-4000-Ada-Generation"),
        ("RTX A6000", "NVIDIA-RTX-A6000", "Quadro-RTX-6000"),
        ("Tesla V100", "Tesla-V100-SXM2-32GB", "Tesla-V100S-PCIE-32GB"),
        ("H200", "NVIDIA-H200", "NVIDIA-GH200-480GB"),
    ],
)
def test_a_model_and_a_part_of_a_product_name_are_found(declared: str, some: str, not_one: str) -> None:
    assert some in values(declared)
    assert not_one not in values(declared)


def test_the_same_model_has_the_names_of_every_cloud() -> None:
    assert values("A100", "cloud.google.com/gke-accelerator", 40) == {"nvidia-tesla-a100"}
    assert values("A100", "cloud.google.com/gke-accelerator", 80) == {"nvidia-a100-80gb"}
    assert "A100_NVLINK_80GB" in values("A100", "gpu.nvidia.com/model", 80)
    assert values("A100", "karpenter.k8s.aws/instance-gpu-name", 0) == {"a100"}  # its memory is another label
    assert "AMD_Instinct_MI300X_OAM" in values("MI300X", "amd.com/gpu.product-name")


@pytest.mark.parametrize("declared", ["", "-", "gpu 7", "A100-1g.10gb", "\N{SNOWMAN}"])
def test_a_name_that_is_not_in_the_table_means_nothing(declared: str) -> None:
    assert products_of(declared) == ()
