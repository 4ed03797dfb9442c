"""The docs are true: every suite in them loads, every command in them runs.

A ```yaml block with `trials:` is a suite, and one with only `targets:` is part of one. A block that begins with
`# file: NAME` is written under that name, and so is a ```json block that begins with "```json file=NAME": JSON has no
comments. The ```console blocks after it are run there, line by line. A line that ends with `# exit N` ends with that
code. Every ```python block that has a file name is run as a program.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from seatrial.baseline import read_for_trials
from seatrial.plugins import models
from seatrial.suite import load
from world import World

__all__ = ["real_cluster"]

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ANY_TRIAL = "trials: {any: {kind: runtime, run: ['true']}}\n"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")  # to a file of this repository
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, file name or "", and text of each block."""
    found = []
    for language, name, text in BLOCK.findall(page.read_text()):
        named = re.match(r"# file: (\S+)\n", text)
        found.append((language, named[1] if named else name, text))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_suite_of_the_page_loads(page: Path, tmp_path: Path) -> None:
    for language, name, text in blocks(page):
        if language == "yaml" and name:
            (tmp_path / name).write_text(text)  # such as the cases that suites of the page name
    for number, (language, _, text) in enumerate(blocks(page)):
        sections = re.findall(r"^(targets|trials):", text, re.MULTILINE)
        if language == "yaml" and sections:
            path = tmp_path / f"{number}.yaml"
            path.write_text(text if "trials" in sections else f"{text}{ANY_TRIAL}")
            load(path, *models(), read_for_trials)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    titles = HEADING.findall(BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_every_link_of_the_page_leads_somewhere(page: Path) -> None:
    for name, anchor in LINK.findall(BLOCK.sub("", page.read_text())):
        linked = page.parent / name if name else page
        assert linked.exists(), f"{name} does not exist"
        assert not anchor or anchor in anchors(linked), f"{linked.name} has no heading #{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "kubernetes"], ids=lambda page: page.stem)
def test_every_command_of_the_page_runs(page: Path, world: World) -> None:
    run_commands(page, world)


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_every_command_of_the_page_on_kubernetes_runs(world: World, real_cluster: Cluster) -> None:
    world.env["KUBECONFIG"] = str(real_cluster.kubeconfig)
    run_commands(ROOT / "docs" / "kubernetes.md", world, {"python:3.12": "localhost/python:3"})  # it cannot pull images


def run_commands(page: Path, world: World, replaced: Mapping[str, str] = {}) -> None:
    for name in ("git", "make"):
        if re.search(rf"^ +commands: \[.*\b{name}\b", page.read_text(), re.MULTILINE) and not shutil.which(name):
            pytest.skip(f"needs {name}: a suite of the page asks for it")
    for language, name, text in blocks(page):
        for old, new in replaced.items():
            text = text.replace(old, new)
        if language in ("yaml", "json", "python") and name:
            (world.folder / name).parent.mkdir(parents=True, exist_ok=True)
            path = world.suite(text, name)
            if language == "python":
                subprocess.run([sys.executable, path], cwd=world.folder, env=world.env, check=True, timeout=600)
        if language != "console":
            continue
        for line in text.splitlines():
            command, _, code = line.partition("  # exit ")
            if command.startswith("$ seatrial"):
                world.seatrial(*shlex.split(command)[2:], check=int(code or 0))
