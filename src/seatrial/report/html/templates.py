"""The templates of pages. All values are escaped, without control characters; undefined variables are errors."""

import contextlib
import pickle
import sys
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.job import value_text
from seatrial.job.units import count
from seatrial.report.html import plot
from seatrial.report.view import words
from seatrial.report.view.plot import Axis, label_of

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent
_UNREADABLE = contextlib.suppress(OSError, EOFError, ValueError, pickle.UnpicklingError)


@cache
def report_templates() -> "jinja2.Environment":
    """One for all pages. Compiling templates takes a third of the CPU time of a small run, so the result is kept in
    `__pycache__`, as for modules; where that is not writable, they are compiled each time."""
    import jinja2

    class Compiled(jinja2.FileSystemBytecodeCache):
        """A damaged file is compiled again; a folder that is not writable is left alone."""

        def load_bytecode(self, bucket: Any) -> None:
            with _UNREADABLE:
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: Any) -> None:
            if not sys.dont_write_bytecode:
                with contextlib.suppress(OSError):
                    Path(self.directory).mkdir(exist_ok=True)
                    super().dump_bytecode(bucket)

    version = f"{jinja2.__version__}-{sys.implementation.cache_tag}"
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        auto_reload=False,
        bytecode_cache=Compiled(str(_HERE / "templates" / "__pycache__"), f"%s.{version}"),
    )
    made.filters.update(one_line=words.one_line, seconds=words.duration_text, clock=words.clock_text)
    made.filters.update(axes=words.axes_text, commit=words.commit_text, size=words.size_text, stages=words.stages_text)
    made.filters.update(metric=value_text, px=plot.pixels, rough=words.rough_duration_text)
    made.globals.update(frame=plot.Frame, plot_data=plot.data, label_of=label_of, in_seconds=Axis("s"))
    made.globals.update(few_cells=words.FEW_CELLS, symbols=words.SYMBOLS, agreements=words.AGREEMENTS, count=count)
    return made


def _harmless(value: Any) -> Any:
    """Removes control characters before escaping. Markup is ours and stays."""
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
    """A macro of a template, for rendering a fragment."""
    made: Callable[..., str] = getattr(templates().get_template(template).module, name)
    return made


@cache
def asset(name: str) -> str:
    """The text of a stylesheet or script in `static`."""
    return (_HERE / "static" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str, fetches: bool = False, forms: bool = False) -> str:
    """The content security policy: our style and script only; only if `fetches` and `forms`, requests and forms to the
    own server."""
    connect = "; connect-src 'self'" if fetches else ""
    to = "'self'" if forms else "'none'"
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'{connect}; "
        f"base-uri 'none'; form-action {to}"
    )


@cache
def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
