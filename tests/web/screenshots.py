"""Pictures of the pages of the dashboard, as a real browser shows them, of a month of invented history: `make
screenshots`."""

import re
import sys
import tempfile
import urllib.request
from pathlib import Path

from report.browser import CHROMIUM, chromium, new_page
from seatrial.web.files import slug
from web.month import Month
from web.test_serve_browser import served

OUT = Path(__file__).parents[2] / "runs" / "screenshots"
WIDTHS = (1440, 768, 390)


def addresses(runs: Path, address: str) -> dict[str, str]:
    nightly = sorted(path.name for path in runs.glob("nightly-*"))
    found = urllib.request.urlopen(f"{address}/search?q=whisper,machine=L4", timeout=60).read().decode()
    cell = re.search(r'href="(c/nightly/[0-9a-f]+)"', found)
    assert cell
    return {
        "home": "/",
        "live": "/r/release-2026.11-live",
        "live-cell": "/r/release-2026.11-live#why",
        "suite": "/s/nightly",
        "cell": f"/{cell[1]}",
        "metric": f"/f/{slug('fsdp[model=llama-3-8b,machine=H100x8]')}/step_time",
        "compare": f"/d/{nightly[-4]}..{nightly[-1]}",
        "search": "/search?q=driver",
    }


def main() -> None:
    if CHROMIUM is None:
        sys.exit("there is no Chromium here: on Debian, `apt-get install chromium`")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        month = Month(runs)
        month.write()
        month.in_progress()
        with served(runs, "--allow-review") as address, chromium() as browser:
            paths = addresses(runs, address)
            for scheme in ("light", "dark"):
                for width in WIDTHS:
                    page = new_page(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
                    for name, path in paths.items():
                        page.goto(f"{address}{path}", wait_until="domcontentloaded")
                        if name == "live-cell":
                            page.locator("#why a").first.click()
                            page.wait_for_selector("html[data-shown^='cause/']")
                        page.screenshot(path=OUT / f"dashboard-{name}-{width}-{scheme}.png")
                        print(OUT / f"dashboard-{name}-{width}-{scheme}.png")
                    page.context.close()


if __name__ == "__main__":
    main()
