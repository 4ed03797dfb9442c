"""Templates are compiled once and kept; a damaged or unwritable cache is no obstacle."""

import shutil
from pathlib import Path

import pytest

from seatrial.report.html import templates


def rendered() -> str:
    return str(templates.report_templates.__wrapped__().get_template("style.html.j2").render())


def test_compiled_templates_are_kept_and_damaged_ones_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "style.html.j2").write_text("{% set x = 3 %}{{ x * 14 }}")
    monkeypatch.setattr(templates, "_HERE", tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    assert rendered() == "42"
    (kept,) = (tmp_path / "templates" / "__pycache__").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", b"garbage", whole[:20], whole[:-30], whole[:60] + b"\xff" * 200):
        kept.write_bytes(damaged)
        assert rendered() == "42"
    (tmp_path / "templates" / "style.html.j2").write_text("changed")
    assert rendered() == "changed"
    shutil.rmtree(kept.parent)
    kept.parent.write_text("a file in the way")
    assert rendered() == "changed"
