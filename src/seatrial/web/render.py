"""Renders dashboard pages with the report's template environment, which escapes all values."""

from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.report.html.templates import asset, content_policy, macro, report_templates
from seatrial.web.files import Links

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    html: str
    policy: str
    status: int = 200
    packed: str = ""  # markup of the compressed fragments in the page


@cache
def web_templates() -> "jinja2.Environment":
    import jinja2

    base = report_templates()
    assert base.loader is not None
    own = jinja2.FileSystemLoader(_HERE / "templates")
    return base.overlay(loader=jinja2.ChoiceLoader([own, base.loader]))


@cache
def _own(name: str) -> str:
    return (_HERE / "static" / name).read_text(encoding="utf-8")


@cache
def _assets() -> tuple[str, str]:
    style = asset("page.css") + asset("chart.css") + _own("dashboard.css")
    return style, asset("chart.js") + _own("live.js") + _own("dashboard.js")


def live_assets() -> tuple[str, str]:
    """Style and script of the page of a run in progress: those of the report, and what keeps it up to date."""
    return _assets()[0], asset("chart.js") + asset("page.js") + _own("live.js")


def page(template: str, links: Links, status: int = 200, **values: Any) -> Page:
    style, script = _assets()
    policy = content_policy(style, script, fetches=links.live, forms=links.live)
    made = web_templates().get_template(template)
    html = made.render(links=links, style=style, script=script, policy=policy, **values)
    return Page(html, policy, status)


def part(template: str, name: str, *values: Any) -> str:
    """Renders a macro of a template: a live part of a page."""
    return str(macro(template, name, web_templates)(*values))


def error_page(status: int, message: str, links: Links | None = None) -> Page:
    """An error page. Without `links` it works at any depth of the served site."""
    home = links.home if links else "/"
    title = HTTPStatus(status).phrase
    return page("error.html.j2", links or Links(0), status, title=title, message=message, home=home)
