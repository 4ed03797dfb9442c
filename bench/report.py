"""The report of a run of 5,000 cells, and a log of 100,000 lines: how large they are, what they cost to make, and how
long a browser needs until they can be used.

python bench/report.py
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "report"), str(ROOT)]

import sample  # noqa: E402
import shapes  # noqa: E402
from _measure import left_out, sized, table  # noqa: E402
from browser import CHROMIUM, chromium  # noqa: E402

from seatrial.report.html.log_page import render_log  # noqa: E402
from seatrial.report.html.page import RunPage  # noqa: E402
from seatrial.report.view.run import RunView  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TRIES = sized(5, 1)
CELLS = sized(5_000, 300)
LINES, ERROR = sized((100_000, 51_163), (2_000, 1_163))
# When our script has shown what the address asks for, since the navigation began.
READY = """new MutationObserver((_, self) => {
  if (document.documentElement?.dataset.shown) { window.readyMs = performance.now(); self.disconnect(); }
}).observe(document, {attributes: true, subtree: true, childList: true})"""


def usable_ms(browser: "Browser", page: Path, fragment: str = "") -> float:
    found = []
    for _ in range(TRIES):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.add_init_script(READY)
        shown = context.new_page()
        shown.goto(f"{page.as_uri()}{fragment}")
        shown.wait_for_selector("html[data-shown]")
        found.append(float(shown.evaluate("window.readyMs")))
        context.close()
    return statistics.median(found)


def main() -> None:
    if CHROMIUM is None:
        left_out("there is no Chromium here")
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        rows: list[tuple[str, str]] = []
        for title, run in (("299 cells", shapes.release()), (f"{CELLS:,} cells", shapes.many(CELLS))):
            folder = sample.write_run(Path(name) / title, run)
            begun = time.process_time()
            text = RunPage(RunView(run, folder)).html()
            cpu = time.process_time() - begun
            page = folder / "report.html"
            page.write_text(text)
            cell = f"#cell/{run.cells[-1].hash}"
            whole = usable_ms(browser, page)
            rows.append((title, f"{len(text.encode()) / 1e6:.2f} MB, {cpu:.2f} s of CPU, usable in {whole:.0f} ms"))
            rows.append((f"{title}, one open", f"usable in {usable_ms(browser, page, cell):.0f} ms"))
        log = Path(name) / "log.txt"
        log.write_text(shapes.long_log(LINES, ERROR))
        begun = time.process_time()
        with log.open("rb") as file:
            text = render_log(file.fileno(), "a cell")
        cpu = time.process_time() - begun
        page = log.with_name("log.html")
        page.write_text(text)
        opened = usable_ms(browser, page, f"#L{ERROR}")
        rows.append(
            (f"log of {LINES:,} lines", f"{len(text) / 1e6:.2f} MB, {cpu:.2f} s of CPU, usable in {opened:.0f} ms")
        )
    table(f"pages of a report (median of {TRIES})", rows)


if __name__ == "__main__":
    main()
