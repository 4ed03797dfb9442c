"""Reports of a run: terminal, JUnit, JSON, Markdown, HTML, each made from its results and its folder alone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.job import RunResults, opened_regular

if TYPE_CHECKING:
    from seatrial.report.view.run import RunView


class ReportError(Exception):
    """A report, or a piece of one, could not be made, written or sent."""


def write_reports(folder: Path, results: RunResults) -> dict[str, Path]:
    """Write junit.xml, report.md, report.html, a page beside every executed notebook and beside every log of a cell
    that is not good; where each of them is.

    A notebook that cannot be shown gets a page that says so. What cannot be written hides nothing else: ReportError
    comes last.
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
            # The folder of a notebook was the job's: whatever lies where we write must not lead elsewhere.
            path.with_name(f"{path.name}.part").unlink(missing_ok=True)
            write_whole(path, page.encode("utf-8", "replace") if isinstance(page, str) else page)
        except Exception as error:  # noqa: BLE001 - one report that breaks, by a bug of ours, hides no other
            failed.append(f"{name} could not be written: {error}")
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
    """Those that jobs kept. Links are not followed: a job could point them anywhere."""
    cells = folder / "cells"
    for place, folders, files in os.walk(cells):
        here = Path(place)
        depth = len(here.relative_to(cells).parts)
        if depth == 2:  # cells/<hash>/<attempt>/files/notebooks and nothing beside it
            folders[:] = ["files"] if "files" in folders else []
        elif depth == 3:
            folders[:] = ["notebooks"] if "notebooks" in folders else []
        elif depth > 3:
            yield from (
                here / name for name in sorted(files) if name.endswith(".ipynb") and not (here / name).is_symlink()
            )


def logs_of_bad_cells(run: "RunView") -> Iterator[tuple[Path, str]]:
    """Those of all attempts and parts, with the id of the cell."""
    for cell in run.failures:
        below = run.folder / "cells" / cell.hash
        for log in sorted(below.glob("*/log.txt")) + sorted(below.glob("*/*/log.txt")):
            if log.is_file() and not log.is_symlink():
                yield log, cell.id


def _log_page(log: Path, cell: str, folder: Path) -> str:
    from seatrial.report.html.log_page import render_log

    below = log.relative_to(folder).parts[2:-1]  # attempt, and part where there are several
    back = "/".join([".."] * (len(below) + 2)) + "/report.html"
    with opened_regular(log) as found:
        return render_log(found, cell, f"attempt {' '.join(below)}", back=back)
