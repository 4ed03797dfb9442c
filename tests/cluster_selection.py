"""Which tests need a cluster, what is built for them before they start, and what the summary says of those not run.

A test that uses a fixture of a cluster gets the marker `cluster`, one that uses the cluster with addons also `addons`.
The harness's own tests (`tests/cluster`) get `cluster` and `harness`: they run when something of theirs has changed
since they last passed here, when they are named, and with `make test-all`."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.fixtures import build_addons, build_cluster
from cluster.places import cache_place

ROOT = Path(__file__).resolve().parent.parent
HARNESS = ROOT / "tests" / "cluster"
CLUSTERS = {"cluster", "real_cluster", "addons_cluster", "kubernetes"}


@dataclass
class Selection:
    """Of one process: with xdist each worker has one, and the controller adds what they found."""

    unselected: int = 0
    """Tests that need a cluster and were deselected."""
    unchanged: int = 0
    """Tests of the harness that are not run because they passed as they are."""
    harness: set[str] = field(default_factory=set)
    """Tests of the harness that must pass before it counts as unchanged."""
    passed: set[str] = field(default_factory=set)


SELECTION = pytest.StashKey[Selection]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SELECTION] = Selection()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection = config.stash[SELECTION]
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & CLUSTERS or HARNESS in item.path.parents:
            item.add_marker(pytest.mark.cluster)
        if "addons_cluster" in fixtures:
            item.add_marker(pytest.mark.addons)
        if HARNESS in item.path.parents:
            item.add_marker(pytest.mark.harness)
    harness = [item for item in items if item.get_closest_marker("harness")]
    selection.harness = {item.nodeid for item in harness if not item.get_closest_marker("every")}
    if harness and _stamp().exists() and not _asked_for(config):
        selection.unchanged = len(harness)
        items[:] = [item for item in items if not item.get_closest_marker("harness")]


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("cluster"):
            item.config.stash[SELECTION].unselected += 1


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the chosen tests need: a first build takes longer than a test may. One worker builds, the others wait
    for its lock; when it fails, the fixtures skip with the reason."""
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if any(item.get_closest_marker("cluster") for item in session.items):
            build_cluster(_say)
        if any(item.get_closest_marker("addons") for item in session.items):
            build_addons(_say)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" and report.passed:
        item.config.stash[SELECTION].passed.add(item.nodeid)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """A worker hands over what it found; who has a terminal says it below all the rest."""
    selection = session.config.stash[SELECTION]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        sets = map(sorted, (selection.harness, selection.passed))
        output["clusters"] = [selection.unselected, selection.unchanged, *sets]
    yield
    if output is None:
        _conclude(session.config, selection)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The controller of xdist hears what a worker found; all of them have collected the same."""
    if found := getattr(node, "workeroutput", {}).get("clusters"):
        selection = node.config.stash[SELECTION]
        selection.unselected, selection.unchanged, harness, passed = found
        selection.harness.update(harness)
        selection.passed.update(passed)


def _conclude(config: pytest.Config, selection: Selection) -> None:
    if selection.harness and selection.harness <= selection.passed:
        _stamp().parent.mkdir(parents=True, exist_ok=True)
        _stamp().touch()
    terminal = config.pluginmanager.getplugin("terminalreporter")
    without = "not cluster" in config.option.markexpr
    if selection.unchanged and not without:
        tests = f"{selection.unchanged} tests not run (pytest tests/cluster)"
        terminal.write_line(f"harness unchanged since its tests passed: {tests}")
    if selection.unselected and without:
        terminal.write_line(f"{selection.unselected} tests need a cluster and were not run: make test-cluster")


def _asked_for(config: pytest.Config) -> bool:
    named = [Path(str(arg).partition("::")[0]).resolve() for arg in config.args]
    return bool(os.environ.get("SEATRIAL_TEST_ALL")) or any(HARNESS in (path, *path.parents) for path in named)


def _stamp() -> Path:
    """Is there when the tests of the harness passed as they are now, here and with this Python and these rights."""
    digest = hashlib.sha256(f"{sys.version} {os.geteuid() == 0}".encode())
    for folder in (ROOT / "cluster", HARNESS):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return cache_place() / "harness-passed" / digest.hexdigest()[:16]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
