"""Markdown: read back by a real parser, hostile text stays text, and the page stays small enough."""

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import sample
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from seatrial.job import Finding, RunResults, Verdict
from seatrial.report.html.page import RunPage
from seatrial.report.markdown import MARKDOWN_BYTES, code, escape_text, fenced, render_markdown
from seatrial.report.view.run import RunView

OURS = {"h2", "h3", "p", "code", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "b", "strong"}
OURS |= {"pre", "ul", "li", "em"}


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page(markdown: str) -> Page:
    return Page(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def shown(run: RunResults, folder: Path) -> Page:
    return page(render_markdown(RunView(run, sample.write_run(folder, run))))


def test_a_page_has_matrix_failures_evidence_and_the_way_to_run_them_again(tmp_path: Path) -> None:
    text = render_markdown(RunView(sample.small(), sample.write_run(tmp_path, sample.small())))
    assert "| runtime | small | large | tiny |\n| --- | :-: | :-: | :-: |\n| base | ✅ | ❌ |   |\n" in text
    assert "| pytorch | ☑️ | ✅ ↻ | · |" in text
    assert "```text\nImportError: libgfortran.so.5: cannot open" in text
    assert "Rerun: `seatrial run 'examples/my suite.yaml' --select /a1b2c3d4`" in text
    assert "gpu-node-17 (the node was drained while the job ran)" in text
    assert "- 2 × needs gpu.count &gt;=1, the machine has 0: runtime tensorflow, jax; machine tiny" in text


def test_an_interrupted_run_says_how_many_cells_did_not_finish(tmp_path: Path) -> None:
    cell = msgspec.structs.replace(sample.small().cells[0], verdict=Verdict.SKIPPED, attempts=[])
    run = msgspec.structs.replace(sample.small(), interrupted=True)
    run = msgspec.structs.replace(run, cells=[cell, *run.cells[1:2]])
    assert "The run was interrupted: 1 of 2 cells did not finish." in shown(run, tmp_path).text
    html = RunPage(RunView(run, tmp_path)).html()
    assert "The run was interrupted: 1 of 2 cells did not finish.</strong> To run them and the failed ones:" in html
    assert f"--failed {run.run}</code>" in html


def test_hostile_text_makes_no_tag_no_table_column_and_no_mention(tmp_path: Path) -> None:
    run = sample.small()
    text = render_markdown(RunView(run, sample.write_run(tmp_path, run)))
    read = page(text)
    assert read.tags <= OURS
    assert "<script>alert('x')</script>" in read.text
    row = next(line for line in text.splitlines() if line.startswith("| &lt;script"))
    assert row.replace("\\|", "").count("|") == 5
    outside = text.split("````text")[0] + text.split("````\n")[-1]
    assert "@everyone" not in outside


@sample.untimed
@given(st.text())
def test_any_text_shows_as_it_is(text: str) -> None:
    read = page(f"x {escape_text(text)} y")
    assert read.tags <= {"p"}
    assert read.text.split() == ["x", *plain_words(text), "y"]
    assert page(f"x {code(text)} y").tags <= {"p", "code"}
    assert page("\n".join(["before", "", *fenced(text), "", "after"])).tags <= {"p", "pre", "code"}


def plain_words(text: str) -> list[str]:
    from seatrial.report.view.words import one_line

    return one_line(text).replace("@", "@\u200b").split()


def test_a_page_stays_below_what_ci_systems_take_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    finding = Finding("run x", "run", Verdict.FAILED, message="漢" * 5_000, evidence="漢" * 50_000)
    cells = [sample.cell(f"{n:08x}", f"r{n}", "m", Verdict.FAILED, *[finding] * 15) for n in range(300)]
    text = render_markdown(RunView(sample.results("s", Verdict.FAILED, cells, []), tmp_path))
    assert len(text.encode()) <= MARKDOWN_BYTES + 1_000 < 1024 * 1024
    assert "more cells that did not pass in `report.html`" in text


def test_a_matrix_too_large_for_the_page_says_so(tmp_path: Path) -> None:
    cells = [sample.cell(f"{n:08x}", f"r{n // 60}", f"m{n % 60}", Verdict.PASSED) for n in range(3600)]
    assert "60 × 60: too large for this page" in render_markdown(
        RunView(sample.results("s", Verdict.PASSED, cells, []), tmp_path)
    )
