"""Executed notebooks as pages: all outputs shown, none of them trusted, broken ones said to be broken."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sample

from seatrial.report import executed_notebooks, write_reports
from seatrial.report.html.notebook import render_file, render_notebook


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def output(**data: Any) -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {key.replace("__", "/"): v for key, v in data.items()},
    }


def test_every_kind_of_output_is_shown() -> None:
    html = render_notebook(sample.notebook(*sample.RICH_OUTPUTS), "train.fresh.ipynb")
    assert "<h1>Train</h1>" in html
    assert "epoch 1: loss 0.52\nepoch 2: loss 0.47" in html
    assert '<pre class="stderr">warning: <span class="ansi-yellow">slow</span> data' in html
    assert f'src="data:image/png;base64,{sample.PNG}"' in html
    assert '<pre class="error"><span class="ansi-red">NameError</span>' in html


def test_html_of_a_job_is_shown_only_in_a_frame_without_rights() -> None:
    tags = Tags(render_notebook(sample.notebook(*sample.RICH_OUTPUTS), "n"))
    assert tags.of("script") == []
    (frame,) = tags.of("iframe")
    assert frame["sandbox"] == ""
    assert "<script>alert(1)</script>" in (frame["srcdoc"] or "")


def test_hostile_text_anywhere_in_a_notebook_makes_no_tag() -> None:
    hostile = sample.HOSTILE
    notebook = sample.notebook(
        {"output_type": "stream", "name": hostile, "text": hostile},
        {"output_type": "error", "ename": hostile, "evalue": hostile, "traceback": [hostile]},
        {"output_type": "display_data", "data": {hostile: hostile}},
        output(text__plain=hostile),
        output(image__png=hostile),
        output(text__markdown=f"[x](javascript:alert(1)) {hostile}"),
        source=hostile,
    )
    notebook["cells"][0]["source"] = f"{hostile}\n\n[x](javascript:alert(1)) ![y](http://example.com/y.png)"
    notebook["cells"][1]["metadata"] = {"tags": [hostile]}
    tags = Tags(render_notebook(notebook, hostile))
    assert tags.of("script") == []
    assert [image for image in tags.of("img") if image.get("onerror")] == []
    assert [link for link in tags.of("a") if (link["href"] or "").startswith("javascript")] == []
    (policy,) = [meta["content"] for meta in tags.of("meta") if meta.get("http-equiv")]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_a_vector_image_is_an_image_and_no_markup() -> None:
    tags = Tags(
        render_notebook(sample.notebook(output(**{"image__svg+xml": "<svg onload='alert(1)'><script/></svg>"})), "n")
    )
    assert (tags.of("img")[0]["src"] or "").startswith("data:image/svg+xml;base64,")
    assert tags.of("svg") == []


def test_an_attached_image_is_shown() -> None:
    notebook = sample.notebook()
    notebook["cells"][0] |= {"source": "![a](attachment:a.png)", "attachments": {"a.png": {"image/png": sample.PNG}}}
    assert f'src="data:image/png;base64,{sample.PNG}"' in render_notebook(notebook, "n")


@pytest.mark.parametrize(
    "cells",
    [
        [1, None, "x"],
        [{}],
        [{"cell_type": "code"}],
        [{"cell_type": "code", "source": 7, "outputs": 7, "metadata": 7, "execution_count": "<b>"}],
        [{"cell_type": "code", "source": ["a", 7], "outputs": [7, {}, {"output_type": "display_data", "data": 7}]}],
        [{"cell_type": "markdown", "source": None, "attachments": {"a": 7}}],
    ],
)
def test_what_is_nearly_a_notebook_is_shown_as_far_as_it_goes(cells: list[Any]) -> None:
    assert "<b>" not in render_notebook({"cells": cells}, "n")


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage \xff\x00", b"[]", b'{"cells": 1}', b"[" * 100_000, json.dumps(sample.notebook()).encode()[:100]],
)
def test_a_broken_notebook_gets_a_page_that_says_so_and_hides_nothing_else(tmp_path: Path, content: bytes) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path, run, notebooks=True)
    broken = folder / "cells/a1b2c3d4/1/files/notebooks/train.rerun.ipynb"
    broken.write_bytes(content)
    assert "Cannot show this notebook" in render_file(broken)
    written = write_reports(folder, run)
    assert "Cannot show this notebook" in broken.with_suffix(".html").read_text()
    assert "epoch 1" in broken.with_name("train.fresh.html").read_text()
    assert set(written) >= {"junit", "markdown", "html"}


def test_what_a_job_left_in_our_way_leads_nowhere_else(tmp_path: Path) -> None:
    run = sample.small()
    folder = sample.write_run(tmp_path / "run", run, notebooks=True)
    kept = folder / "cells/a1b2c3d4/1/files/notebooks"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.ipynb").write_text(json.dumps(sample.notebook()))
    (outside / "file").write_text("mine")
    (kept / "link.ipynb").symlink_to(outside / "secret.ipynb")
    (kept / "folder").symlink_to(outside)
    (kept / "train.fresh.html").symlink_to(outside / "file")
    (kept / "train.rerun.html.part").symlink_to(outside / "file")
    assert [path.name for path in executed_notebooks(folder)] == [
        "train.fresh.ipynb",
        "train.rerun.ipynb",
        "train.restart.ipynb",
    ]
    write_reports(folder, run)
    assert (outside / "file").read_text() == "mine"
    assert sorted(path.name for path in outside.iterdir()) == ["file", "secret.ipynb"]
