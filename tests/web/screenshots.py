"""Pictures of the pages of the dashboard, as a real browser shows them: `make screenshots`."""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from report.browser import CHROMIUM, chromium, new_page
from web.test_serve_browser import addresses, fill, served

OUT = Path(__file__).parents[2] / "runs" / "screenshots"
SIZES = {"": (1400, 900), "-phone": (390, 844)}


def main() -> None:
    if CHROMIUM is None:
        sys.exit("there is no Chromium here: on Debian, `apt-get install chromium`")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        asyncio.run(fill(runs))
        with served(runs) as address, chromium() as browser:
            for scheme in ("light", "dark"):
                for size, (width, height) in SIZES.items():
                    page = new_page(browser, viewport={"width": width, "height": height}, color_scheme=scheme)
                    for path in addresses():
                        page.goto(f"{address}{path}", wait_until="domcontentloaded")
                        name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:40] or "home"
                        page.screenshot(path=OUT / f"dashboard-{name}-{scheme}{size}.png")
                        print(OUT / f"dashboard-{name}-{scheme}{size}.png")
                    page.context.close()


if __name__ == "__main__":
    main()
