"""Reports of a run: terminal, JUnit, JSON, Markdown, HTML, made from its results and folder alone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.job import RunResults, opened_regular

if TYPE_CHECKING:
    from seatrial.report.view.run import RunView


class ReportError(Exception):
    """A report, or a part of one, could not be rendered, written or sent."""


def write_reports(folder: Path, results: RunResults) -> dict[str, Path]:
    """Writes junit.xml, report.md, report.html, a page next to each executed notebook and next to each log of a bad
    cell. Returns their paths.

    A notebook that cannot be rendered gets a page with the reason. Raises ReportError after all other reports are
    written.
    """
    from seatrial.record import write_whole
    from seatrial.report.html.notebook import render_file
    from seatrial.report.html.page import RunPage
    from seatrial.report.junit import render_junit
    from seatrial.report.markdown import render_markdown
    from seatrial.report.view.run import RunView

    run = RunView(results, folder)
    written: dict[str, Path] = {}
    failed: list[str] = []

    def write(name: str, path: Path, make: Callable[..., str | bytes], *args: object) -> None:
        try:
            page = make(*args)
            # Jobs can write to the folders of notebooks: remove a link that they may have put here.
            path.with_name(f"{path.name}.part").unlink(missing_ok=True)
            write_whole(path, page.encode("utf-8", "replace") if isinstance(page, str) else page)
        except Exception as error:  # noqa: BLE001 - a bug in one report must not prevent the others
            failed.append(f"cannot write {name}: {error}")
        else:
            written[name] = path

    for notebook in executed_notebooks(folder):
        write(f"notebook {notebook.relative_to(folder)}", notebook.with_suffix(".html"), render_file, notebook)
    for log, cell in logs_of_bad_cells(run):
        write(f"log {log.relative_to(folder)}", log.with_name("log.html"), _log_page, log, cell, folder)
    write("junit", folder / "junit.xml", render_junit, run)
    write("markdown", folder / "report.md", render_markdown, run)
    write("html", folder / "report.html", lambda: RunPage(run).html())
    if failed:
        raise ReportError("; ".join(failed))
    return written


def executed_notebooks(folder: Path) -> Iterator[Path]:
    """Notebooks that jobs kept. Links are not followed: a job could point them anywhere."""
    cells = folder / "cells"
    for place, folders, files in os.walk(cells):
        here = Path(place)
        depth = len(here.relative_to(cells).parts)
        if depth == 2:  # cells/<hash>/<attempt>/files/notebooks only
            folders[:] = ["files"] if "files" in folders else []
        elif depth == 3:
            folders[:] = ["notebooks"] if "notebooks" in folders else []
        elif depth > 3:
            yield from (
                here / name for name in sorted(files) if name.endswith(".ipynb") and not (here / name).is_symlink()
            )


def logs_of_bad_cells(run: "RunView") -> Iterator[tuple[Path, str]]:
    """Logs of all attempts and parts of bad cells, each with the cell id."""
    for cell in run.failures:
        below = run.folder / "cells" / cell.hash
        for log in sorted(below.glob("*/log.txt")) + sorted(below.glob("*/*/log.txt")):
            if log.is_file() and not log.is_symlink():
                yield log, cell.id


def _log_page(log: Path, cell: str, folder: Path) -> str:
    from seatrial.report.html.log_page import render_log

    below = log.relative_to(folder).parts[2:-1]  # attempt, and part if there are several
    back = "/".join([".."] * (len(below) + 2)) + "/report.html"
    with opened_regular(log) as found:
        return render_log(found, cell, f"attempt {' '.join(below)}", back=back)
