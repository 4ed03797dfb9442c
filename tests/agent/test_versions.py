"""A version of Python is asked for as people write it: a number alone, or as PEP 440 has it."""

import pytest
from packaging.specifiers import SpecifierSet

from seatrial.agent.job_file import JobError
from seatrial.agent.pod.environment import allows, requirement

HAVE = [(3, 8, 0), (3, 9, 18), (3, 10, 0), (3, 11, 0), (3, 11, 7), (3, 12, 1), (3, 13, 0), (4, 0, 0)]
SPECIFIERS = [
    ">=3.9", ">3.9", "<3.12", "<=3.11", "==3.11", "==3.11.*", "!=3.11.*", "!=3.11", "~=3.10", "~=3.11.0", ">=3.9,<3.12",
    ">= 3.9 , != 3.10.*", "==3.11.7", "<4", "==3.*", "~=3.11.5",
]  # fmt: skip


@pytest.mark.parametrize("specifier", SPECIFIERS)
def test_a_specifier_means_what_packaging_says(specifier: str) -> None:
    asked = SpecifierSet(specifier)
    for have in HAVE:
        assert allows(specifier, have) == asked.contains(".".join(map(str, have))), have


@pytest.mark.parametrize(("version", "fits"), [("3.11", True), ("3", True), ("3.11.7", True), ("3.1", False),
                                               ("3.11.8", False), ("3.12", False)])  # fmt: skip
def test_a_number_alone_is_all_that_begins_so(version: str, fits: bool) -> None:
    assert allows(version, (3, 11, 7)) is fits


@pytest.mark.parametrize("garbage", ["", "three", "3.", ">=", "~=3", ">=3.*", "3.11; rm -rf", "==3.11,,", "pypy3.10"])
def test_what_is_neither_is_an_error(garbage: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        allows(garbage, (3, 11, 7))


@pytest.mark.parametrize("text", ["", " ", "-r x", " --index-url=x", "a\n-r b", "a\0"])
def test_an_option_is_no_package(text: str) -> None:
    with pytest.raises(JobError, match="invalid package requirement"):
        requirement(text)
