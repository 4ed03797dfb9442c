"""The HTML report: complete without anything else, safe whatever a job said, and as a real browser sees it."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample
from html_page import Page, unpacked

from seatrial.job import Excluded, Exit, Finding, Observation, ObservedStep, Outcome, Place, RunResults, Sample, Verdict
from seatrial.report import ReportError, write_reports
from seatrial.report.html.page import RunPage
from seatrial.report.view.charts import resource_plots
from seatrial.report.view.run import RunView


def shown(run: RunResults, folder: Path) -> Page:
    folder = sample.write_run(folder, run, notebooks=True)
    write_reports(folder, run)
    page = Page(unpacked(RunPage(RunView(run, folder)).html()))
    assert page.crossed == []
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with one of everything."""
    return tmp_path_factory.mktemp("runs") / "small"


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return shown(sample.small(), folder)


def test_it_needs_nothing_from_anywhere_and_runs_no_script_but_its_own(page: Page) -> None:
    assert [name for name, _ in page.elements if name in ("link", "img", "iframe", "object", "base")] == []
    assert len(page.of("script")) == 1
    policy = next(meta["content"] or "" for meta in page.of("meta") if meta.get("http-equiv"))
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; base-uri 'none'; form-action 'none'",
        policy,
    )
    assert [attributes for _, attributes in page.elements if "style" in attributes] == []
    handlers = [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert handlers == []
    assert all((link["href"] or "").startswith(("#", "cells/")) for link in page.of("a"))


def test_hostile_text_is_text(page: Page) -> None:
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert not set(page.text) & set("\x1b\x00\x08\u202e")


def test_every_link_inside_the_page_and_into_the_folder_leads_somewhere(page: Page, folder: Path) -> None:
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    ids |= {attributes["data-key"] for _, attributes in page.elements if "data-key" in attributes}
    for link in page.of("a"):
        href = link["href"] or ""
        assert href[1:] in ids if href.startswith("#") else (folder / href.partition("#")[0]).is_file(), href
    assert any((link["href"] or "").endswith("train.rerun.ipynb") for link in page.of("a"))


def test_a_page_of_a_log_is_linked_where_there_is_one(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    log = "cells/a1b2c3d4/1/log.html"
    assert log not in {link["href"] for link in Page(unpacked(RunPage(RunView(run, folder)).html())).of("a")}
    write_reports(folder, run)
    assert log in {link["href"] for link in Page(unpacked(RunPage(RunView(run, folder)).html())).of("a")}


def test_a_place_of_the_grid_tells_verdict_and_reason_and_leads_to_its_cell(page: Page) -> None:
    labels = {link["aria-label"]: link["href"] for link in page.of("a") if "aria-label" in link}
    assert labels["passed, flaky 12.4 s"] == "#cell/feedf00d"
    assert labels["timeout: job outcome: timeout"] == "#cell/7e577e57"
    assert {place.get("title") for place in page.of("td") if place.get("class") == "excluded"} == {
        "excluded: driver too old until 2026-12",
        "excluded: needs gpu.count >=1, the machine has 0",
    }
    assert "3 excluded" in page.text


def test_a_cell_tells_evidence_notebook_cells_resources_and_the_way_to_run_it_again(page: Page) -> None:
    assert "ImportError: libgfortran.so.5: cannot open shared object file" in page.text
    assert "NameError: name 'optimizer' is not defined" in page.text
    assert "not reached" in page.text
    assert "peak 410 MiB" in page.text
    assert "seatrial run 'examples/my suite.yaml' --select /a1b2c3d4" in page.text
    assert "the end of the log" in page.text
    assert len([one for one in page.of("figure") if "Memory" in (one["data-plot"] or "")]) >= 4


def test_parts_of_an_attempt_have_charts_of_their_own(tmp_path: Path) -> None:
    observed = {}
    for part, cores in (("server", 2.0), ("driver", 0.5)):
        samples = [Sample(float(at), int(cores * 100) << 20, cores * at) for at in range(10)]
        steps = [ObservedStep(part, "command", started_s=0.0, ended_s=9.0, samples=samples)]
        observed[part] = Observation(part, 1, Place("here", "here"), Exit(Outcome.EXITED), steps=steps)
    plots = [plot for part, one in observed.items() for plot in resource_plots(part, one)]
    assert [(plot.title, plot.note, plot.group) for plot in plots] == [
        ("Memory of the server", "peak 200 MiB", "part server"),
        ("CPU cores of the server", "peak 2", "part server"),
        ("Memory of the client", "peak 50 MiB", "part driver"),
        ("CPU cores of the client", "peak 0.5", "part driver"),
    ]


def test_findings_of_one_step_are_told_apart_by_their_check(tmp_path: Path) -> None:
    facts = [Finding("facts", check, Verdict.FAILED, message=f"{check} is wrong") for check in ("cpu", "memory")]
    run = sample.results("s", Verdict.FAILED, [sample.cell("00000000", "a", "m", Verdict.FAILED, *facts)], [])
    text = shown(run, tmp_path).text
    assert "facts (cpu)" in text
    assert "facts (memory)" in text


def test_a_thousand_cells_are_all_there(tmp_path: Path) -> None:
    run = sample.large()
    page = Page(unpacked(RunPage(RunView(run, sample.write_run(tmp_path, run))).html()))
    assert (page.crossed, page.open) == ([], [])
    assert sum((one.get("data-key") or "").startswith("cell/") for one in page.of("div")) == 1000
    assert sum((one.get("class") or "").startswith("v-") for one in page.of("td")) >= 1000


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
    page = Page(unpacked(RunPage(RunView(run, folder)).html()))
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
    text = Page(unpacked(RunPage(RunView(run, folder)).html())).text
    assert "c777" in text
    assert "880 more notebook cells not shown" in text


def test_reports_of_a_run_of_nothing(tmp_path: Path) -> None:
    run = sample.results("empty", Verdict.SKIPPED, [], [Excluded("t", {}, "nothing fits")])
    written = write_reports(sample.write_run(tmp_path, run), run)
    assert set(written) == {"junit", "markdown", "html"}
    assert "nothing fits" in written["html"].read_text()


def test_a_report_that_cannot_be_written_hides_no_other(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run)
    (folder / "report.md").mkdir()
    (folder / "report.md" / "in the way").write_text("")
    with pytest.raises(ReportError, match="cannot write markdown") as caught:
        write_reports(folder, run)
    assert str(caught.value).count("cannot write") == 1
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "junit.xml").is_file()
