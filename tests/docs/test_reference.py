"""The tables of suite fields in the docs are those of the models; `make reference` writes them."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
assert spec is not None
assert spec.loader is not None
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)
PAGES = [page for page in sorted(DOCS.glob("*.md")) if "<!-- fields:" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tables_of_the_page_are_those_of_the_models(page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- fields:") == text.count("<!-- end -->") == len(reference.TABLE.findall(text))
    assert reference.updated(text, reference.schemas()) == text, "run `make reference`"


def test_every_model_has_a_table() -> None:
    """Except one with a single field: that is explained where it is used."""
    tables = {found[2] for page in PAGES for found in reference.TABLE.finditer(page.read_text())}
    models = {name for name, one in reference.schemas().items() if len(one.get("properties", ())) > 1}
    assert models - tables == set()


def test_a_page_with_an_old_table_is_found() -> None:
    text = "<!-- fields: Machine -->\nold\n<!-- end -->\n"
    assert "| `price` | number |" in reference.updated(text, reference.schemas())
