"""The templates of pages. All that a job or a suite said is made harmless here, in one place: what would act goes, the
rest is escaped; a name that is not given is an error."""

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.job import value_text
from seatrial.job.units import count
from seatrial.report.view.words import (
    AGREEMENTS,
    SYMBOLS,
    axes_text,
    clock_text,
    commit_text,
    duration_text,
    one_line,
    size_text,
    stages_text,
    strip_controls,
)

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent


@cache
def report_templates() -> "jinja2.Environment":
    """One for all pages; a template is compiled once."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        auto_reload=False,
    )
    made.filters.update(one_line=one_line, seconds=duration_text, clock=clock_text, axes=axes_text, commit=commit_text)
    made.filters.update(size=size_text, metric=value_text, stages=stages_text)
    made.globals.update(symbols=SYMBOLS, agreements=AGREEMENTS, count=count)
    return made


def _harmless(value: Any) -> Any:
    """Before it is escaped. Markup is ours."""
    if type(value) is str and not value.isprintable():
        return strip_controls(value)
    return value


def render(name: str, **values: Any) -> str:
    made: str = report_templates().get_template(name).render(**values)
    return made


@cache
def macro(
    template: str, name: str, templates: "Callable[[], jinja2.Environment]" = report_templates
) -> Callable[..., str]:
    """One macro of a template, to be called for a piece of a page."""
    made: Callable[..., str] = getattr(templates().get_template(template).module, name)
    return made


@cache
def asset(name: str) -> str:
    """The text of a style or a script that lies here."""
    return (_HERE / "static" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str, fetches: bool = False) -> str:
    """What a page may do: our one style, our one script, and no request; where it is served, requests to its server."""
    connect = "; connect-src 'self'" if fetches else ""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'{connect}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
