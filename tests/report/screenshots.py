"""Pictures of the pages, as a real browser shows them: `make screenshots`.

Those of a run of 299 cells are always there; of a run of each kind when it was run here before (`make demo`,
`make demo-training`, `make demo-serving`, `make demo-scale`)."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import sample
import shapes
from browser import CHROMIUM, chromium, new_page

from seatrial.record.folder import read_results
from seatrial.report import write_reports

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
OUT = ROOT / "runs" / "screenshots"
PICTURE = ROOT / "docs" / "report.png"  # of README
WIDE, PHONE = (1400, 900), (390, 844)
MOST_OF_A_KIND = 3  # runs, the newest


def release(folder: Path) -> Path:
    """The run of 299 cells, written anew."""
    run = shapes.release()
    if not folder.exists():
        sample.write_run(folder, run)
        (folder / "cells" / run.causes[0].cells[0] / "1" / "log.txt").write_text(shapes.long_log())
    write_reports(folder, run)
    return folder


def demos() -> dict[str, list[Path]]:
    """Runs that are here, by kind, the newest first."""
    found: dict[str, list[Path]] = {}
    for results in sorted((ROOT / "runs").rglob("results.json"), key=lambda path: -path.stat().st_mtime):
        if OUT not in results.parents:
            cells = json.loads(results.read_bytes()).get("cells") or [{}]
            found.setdefault(cells[0].get("kind") or "unknown", []).append(results.parent)
    return found


def take(
    browser: "Browser", name: str, page: Path, fragment: str = "", size: tuple[int, int] = WIDE, **options: str
) -> None:
    whole = options.pop("whole", "") == "yes"
    media = options.pop("media", "screen")
    shown = new_page(browser, viewport={"width": size[0], "height": size[1]}, **options)  # type: ignore[arg-type]
    shown.goto(f"{page.as_uri()}{fragment}")
    shown.wait_for_selector("html[data-shown]")
    shown.emulate_media(media=media)  # type: ignore[arg-type]
    shown.screenshot(path=OUT / f"{name}.png", full_page=whole)
    shown.context.close()
    print(OUT / f"{name}.png")


def main() -> None:
    if CHROMIUM is None:
        sys.exit("there is no Chromium here: on Debian, `apt-get install chromium`")
    OUT.mkdir(parents=True, exist_ok=True)
    folder = release(OUT / "release")
    bad = shapes.release().causes[0].cells[0]
    page, log = folder / "report.html", folder / "cells" / bad / "1" / "log.html"
    with chromium() as browser:
        take(browser, "overview-light", page, whole="yes")
        take(browser, "overview-dark", page, whole="yes", color_scheme="dark")
        take(browser, "cell", page, f"#cell/{bad}")
        take(browser, "cause-dark", page, f"#cause/{shapes.release().causes[0].id}", color_scheme="dark")
        take(browser, "layout", page, "#rows=machine&show=time&find=timeout", whole="yes")
        take(browser, "time", page, "#time", whole="yes")
        take(browser, "phone", page, size=PHONE, whole="yes")
        take(browser, "phone-cell", page, f"#cell/{bad}", size=PHONE)
        take(browser, "print", page, size=(703, 1000), media="print", whole="yes")
        take(browser, "log", log)
        take(browser, "log-dark", log, "#L40001", color_scheme="dark")
        take(browser, "picture", page, size=(1280, 860))
        PICTURE.write_bytes((OUT / "picture.png").read_bytes())
        for kind, folders in demos().items():
            for number, run in enumerate(folders[:MOST_OF_A_KIND], 1):
                results = read_results(run)
                write_reports(run, results)
                page, name = run / "report.html", f"{kind}-{number}-{results.verdict.value}"
                take(browser, name, page)
                take(browser, f"{name}-dark", page, color_scheme="dark", whole="yes")
                take(browser, f"{name}-phone", page, size=PHONE, whole="yes")
                take(browser, f"{name}-print", page, size=(703, 1000), media="print", whole="yes")
                take(browser, f"{kind}-{number}-cell", run / "report.html", f"#cell/{results.cells[0].hash}")


if __name__ == "__main__":
    main()
