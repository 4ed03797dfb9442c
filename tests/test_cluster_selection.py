"""Tests that need a cluster are told apart by their fixtures, what they need is built before they start, and the
harness's own run when it changed."""

from pathlib import Path

import pytest

import cluster_selection

pytest_plugins = ["pytester"]

FIXTURES = """
import pytest
pytest_plugins = ["cluster_selection"]

@pytest.fixture(scope="session")
def cluster(): return "cluster"

@pytest.fixture(scope="session")
def addons_cluster(): return "addons"

@pytest.fixture
def namespace(cluster): return "namespace"
"""
TESTS = """
def test_plain(): pass
def test_cluster(cluster): pass
def test_through_another(namespace): pass
def test_addons(addons_cluster): pass
"""
NOT_RUN = "3 tests need a cluster and were not run: make test-cluster"


@pytest.fixture
def built(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built for the tests of a project of its own."""
    names: list[str] = []
    monkeypatch.setenv("SEATRIAL_CACHE", str(pytester.path / "cache"))
    monkeypatch.delenv("SEATRIAL_TEST_ALL", raising=False)
    monkeypatch.setattr(cluster_selection, "ROOT", pytester.path)
    monkeypatch.setattr(cluster_selection, "HARNESS", pytester.path / "tests" / "cluster")
    monkeypatch.setattr(cluster_selection, "build_cluster", lambda say: names.append("cluster"))
    monkeypatch.setattr(cluster_selection, "build_addons", lambda say: names.append("addons"))
    pytester.makeini(
        "[pytest]\nmarkers =\n cluster\n addons\n harness\n every\nasyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makeconftest(FIXTURES)
    return names


@pytest.mark.parametrize("workers", ["0", "2"])
def test_those_that_need_a_cluster_are_left_out_and_counted(
    pytester: pytest.Pytester, built: list[str], workers: str
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-n", workers, "-m", "not cluster")
    result.assert_outcomes(passed=1, deselected=0 if int(workers) else 3)
    assert result.outlines[-1] == NOT_RUN
    assert built == []


@pytest.mark.parametrize(
    ("chosen", "passed", "expected"),
    [
        ("cluster", 3, ["cluster", "addons"]),
        ("cluster and not addons", 2, ["cluster"]),
        ("addons", 1, ["cluster", "addons"]),
    ],
)
def test_only_what_the_chosen_need_is_built(
    pytester: pytest.Pytester, built: list[str], chosen: str, passed: int, expected: list[str]
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-n", "0", "-m", chosen)
    result.assert_outcomes(passed=passed, deselected=4 - passed)
    assert built == expected


@pytest.mark.usefixtures("built")
def test_the_harness_is_tested_when_it_changed_since_its_tests_passed(pytester: pytest.Pytester) -> None:
    program, tests = pytester.path / "cluster" / "up.py", pytester.path / "tests" / "cluster"
    for folder in (program.parent, tests):
        folder.mkdir(parents=True)
    program.write_text("works = True\n")
    (tests / "test_up.py").write_text(harness("assert 'works = True' in PROGRAM.read_text()", program))

    def run(*args: str) -> tuple[int, int, bool]:
        result = pytester.runpytest_inprocess("-n", "0", "-m", "cluster", *args)
        outcomes = result.parseoutcomes()
        unchanged = "harness unchanged since its tests passed: 2 tests not run (pytest tests/cluster)"
        return outcomes.get("passed", 0), outcomes.get("failed", 0), unchanged in result.outlines

    assert run("-k", "first") == (1, 0, False)
    assert run() == (2, 0, False), "half of them is not all"
    assert run() == (0, 0, True)
    assert run("tests/cluster") == (2, 0, False), "named"
    program.write_text("works = False\n")
    assert run() == (1, 1, False), "changed"
    assert run() == (1, 1, False), "and it did not pass"
    program.write_text("works = True\n")
    assert run() == (0, 0, True), "as it was when it passed"


def harness(line: str, program: Path) -> str:
    head = f"from pathlib import Path\nPROGRAM = Path({str(program)!r})\n"
    return f"{head}def test_first():\n    {line}\ndef test_second(): pass\n"
