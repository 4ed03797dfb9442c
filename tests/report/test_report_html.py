"""The HTML report: complete without anything else, safe whatever a job said, and as a real browser sees it."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample

from seatrial.job import CellResult, Finding, Hole, Observation, ObservedStep, RunResults, Verdict
from seatrial.report import ReportError, write_reports
from seatrial.report.html.page import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """All elements of a page; raises nothing, but notes what was never closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.crossed: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        last = self.open.pop()
        if last != tag:
            self.crossed.append((last, tag))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def shown(run: RunResults, folder: Path) -> Page:
    page = Page(render_html(run, sample.write_run(folder, run, notebooks=True)))
    assert page.crossed == []
    assert page.open == []
    return page


def test_it_needs_nothing_from_anywhere_and_runs_no_script_but_its_own(tmp_path: Path) -> None:
    page = shown(sample.small(), tmp_path)
    assert [name for name, _ in page.elements if name in ("link", "img", "iframe", "object", "base")] == []
    assert len(page.of("script")) == 1
    policy = next(meta["content"] or "" for meta in page.of("meta") if meta.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    handlers = [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert handlers == []
    assert all((link["href"] or "").startswith(("#", "cells/")) for link in page.of("a"))


def test_hostile_text_is_text(tmp_path: Path) -> None:
    page = shown(sample.small(), tmp_path)
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert not set(page.text) & set("\x1b\x00\x08\u202e")


def test_every_link_inside_the_page_and_into_the_folder_leads_somewhere(tmp_path: Path) -> None:
    run = sample.small()
    page = shown(run, tmp_path)
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for link in page.of("a"):
        href = link["href"] or ""
        assert href[1:] in ids if href.startswith("#") else (tmp_path / href).is_file()
    assert len([link for link in page.of("a") if (link["href"] or "").endswith("train.rerun.ipynb")]) == 1


def test_a_place_of_the_matrix_tells_verdict_and_reason_and_leads_to_its_cell(tmp_path: Path) -> None:
    titles = {link.get("title"): link["href"] for link in shown(sample.small(), tmp_path).of("a")}
    assert titles["failed: command cmake: cmake is not on the PATH of this runtime"] == "#c-a1b2c3d4"
    assert titles["passed, flaky 12.4 s"] == "#c-feedf00d"
    assert titles["not run: driver too old until 2026-12"] == "#hole-1"


def test_a_cell_tells_evidence_notebook_cells_resources_and_the_way_to_run_it_again(tmp_path: Path) -> None:
    page = shown(sample.small(), tmp_path)
    assert "ImportError: libgfortran.so.5: cannot open shared object file" in page.text
    assert "NameError: name 'optimizer' is not defined" in page.text
    assert "not reached" in page.text
    assert "Memory, at most 410 MiB" in page.text
    assert "seatrial run 'examples/my suite.yaml' --select /a1b2c3d4" in page.text
    assert "the end of the log" in page.text
    assert len(page.of("polyline")) >= 8


def test_findings_of_one_step_are_told_apart_by_their_check(tmp_path: Path) -> None:
    facts = [Finding("facts", check, Verdict.FAILED, message=f"{check} is wrong") for check in ("cpu", "memory")]
    run = sample.results("s", Verdict.FAILED, [sample.cell("00000000", "a", "m", Verdict.FAILED, *facts)], [])
    text = shown(run, tmp_path).text
    assert "facts (cpu)" in text
    assert "facts (memory)" in text


def test_a_thousand_cells_are_all_there(tmp_path: Path) -> None:
    page = shown(sample.large(), tmp_path)
    assert len([one for one in page.of("details") if (one.get("class") or "").startswith("cell")]) == 1000
    assert len(page.of("td")) >= 1000


def test_garbage_in_an_observation_is_survived(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    notes: list[dict[str, Any]] = [
        {"note": "cell", "pass": 7, "cell": 1},
        {"note": "cell", "pass": "fresh", "cell": "x"},
        {
            "note": "cell",
            "pass": "fresh",
            "cell": 1,
            "seconds": "long",
            "peak_memory_bytes": -3,
            "state": "<b>",
            "error": 7,
        },
        {"note": "passed-over", "pass": "fresh", "state": ["x"], "seconds": float("1e300")},
        {},
    ]
    step = ObservedStep("notebook a.ipynb", "notebook", {"path": 7}, 0.0, 1.0, notes=notes)
    seen = sample.observation(run.cells[1])
    broken = Observation(seen.job, seen.attempt, seen.place, seen.exit, steps=[step])
    (folder / "cells/a1b2c3d4/1/observation.json").write_bytes(msgspec.json.encode(broken))
    (folder / "cells/69b56f04/1/observation.json").write_bytes(b"\xff\xfe")
    page = Page(render_html(run, folder))
    assert page.crossed == []
    assert "generic[runtime=base,machine=large]" in page.text


def test_a_notebook_of_very_many_cells_shows_those_that_matter(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    notes: list[dict[str, Any]] = [
        {
            "note": "cell",
            "pass": "fresh",
            "cell": n,
            "state": "failed" if n == 777 else "passed",
            "seconds": 0.1,
            "source": f"c{n}",
        }
        for n in range(1000)
    ]
    step = ObservedStep("notebook a.ipynb", "notebook", {"path": "a.ipynb"}, 0.0, 1.0, notes=notes)
    seen = sample.observation(run.cells[1])
    huge = Observation(seen.job, seen.attempt, seen.place, seen.exit, steps=[step])
    (folder / "cells/a1b2c3d4/1/observation.json").write_bytes(msgspec.json.encode(huge))
    text = Page(render_html(run, folder)).text
    assert "c777" in text
    assert "880 more cells that passed quickly" in text


def test_reports_of_a_run_of_nothing(tmp_path: Path) -> None:
    run = sample.results("empty", Verdict.SKIPPED, [], [Hole("t", {}, "nothing fits")])
    written = write_reports(sample.write_run(tmp_path, run), run)
    assert set(written) == {"junit", "markdown", "html"}
    assert "nothing fits" in written["html"].read_text()


def test_a_report_that_cannot_be_written_hides_no_other(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    (folder / "report.md").mkdir()
    (folder / "report.md" / "in the way").write_text("")
    with pytest.raises(ReportError, match="markdown could not be written") as caught:
        write_reports(folder, run)
    assert set(caught.value.failed) == {"markdown"}
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "junit.xml").is_file()


def owned() -> RunResults:
    """Every field that a job or a suite fills tries to change the page's title."""
    try_all = (
        "<img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">"
        "</script><script>document.title='owned'</script>\" onmouseover=\"document.title='owned'\" autofocus onfocus='x"
    )
    bad: CellResult = sample.cell(
        "00000000",
        try_all,
        try_all,
        Verdict.FAILED,
        Finding(try_all, try_all, Verdict.FAILED, try_all, try_all, try_all),
    )
    return sample.results(
        try_all, Verdict.FAILED, [bad, *sample.small().cells], [Hole(try_all, {try_all: try_all}, try_all)]
    )


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
def test_a_real_browser_runs_our_script_and_no_other(tmp_path: Path) -> None:
    run = owned()
    written = write_reports(sample.write_run(tmp_path / "run", run), run)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'browser'}",
    ]
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", f"{written['html'].as_uri()}#c-a1b2c3d4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    dom = done.stdout.decode()
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    assert title[1].startswith("failed: &lt;img")  # nobody changed it
    assert '<span id="shown" class="dim" role="status">10 of 10 shown</span>' in dom  # our own script ran
