"""Pages of the dashboard, with the templates and macros of the report: what a job said is escaped where that is."""

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
    packed: str = ""  # markup that is in it in another form


@cache
def web_templates() -> "jinja2.Environment":
    import jinja2

    base = report_templates()
    assert base.loader is not None
    own = jinja2.FileSystemLoader(_HERE / "templates")
    return base.overlay(loader=jinja2.ChoiceLoader([own, base.loader]))


@cache
def _assets() -> tuple[str, str]:
    style = (_HERE / "static" / "dashboard.css").read_text(encoding="utf-8")
    script = (_HERE / "static" / "dashboard.js").read_text(encoding="utf-8")
    return f"{asset('page.css')}\n{style}", script


def page(template: str, links: Links, status: int = 200, **values: Any) -> Page:
    style, script = _assets()
    policy = content_policy(style, script, fetches=links.live)
    made = web_templates().get_template(template)
    html = made.render(links=links, style=style, script=script, policy=policy, **values)
    return Page(html, policy, status)


def part(template: str, name: str, *values: Any) -> str:
    """One macro of a template of ours: a piece of a page that is kept up to date."""
    return str(macro(template, name, web_templates)(*values))


def error_page(status: int, message: str, links: Links | None = None) -> Page:
    """A plain one, for whoever asked for what is not there; without `links` at any depth of what is served."""
    home = links.home if links else "/"
    links = links or Links(0)
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    return page("error.html.j2", links, status, title=title, message=message, home=home)
