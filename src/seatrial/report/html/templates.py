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
from seatrial.report.view import words

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
    made.filters.update(one_line=words.one_line, seconds=words.duration_text, clock=words.clock_text)
    made.filters.update(axes=words.axes_text, commit=words.commit_text, size=words.size_text, stages=words.stages_text)
    made.filters.update(metric=value_text)
    made.globals.update(symbols=words.SYMBOLS, agreements=words.AGREEMENTS, count=count)
    return made


def _harmless(value: Any) -> Any:
    """Before it is escaped. Markup is ours."""
    if type(value) is str and not value.isprintable():
        return words.strip_controls(value)
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
