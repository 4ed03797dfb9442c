"""The dashboard in a real browser: pages for everybody in both schemes, live ones, and nothing that runs but ours."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from report.browser import CHROMIUM, chromium, new_page, until
from seatrial.job import CellResult, Verdict
from seatrial.record import Ownership, RunFolder
from seatrial.record.history import open_history
from seatrial.web.files import slug
from web.conftest import cell_result, finished_run, results, write_journal, write_plan, write_results
from web.test_serve_security import hostile_cell

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")]

SEATRIAL = Path(sys.executable).with_name("seatrial")
LIVE = [cell_result("train", n, Verdict.FAILED if n == 2 else Verdict.PASSED) for n in range(4)]


async def fill(runs: Path) -> list[bytes]:
    """Eight nights that are over, the last three slower; one run that goes on. The lines that are to come of it."""
    history = open_history(runs / "history.db")
    for night in range(8):
        at_s = 1_700_000_000.0 + 86_400 * night
        verdict = Verdict.SLOWER if night > 4 else Verdict.PASSED
        cells = [cell_result("train", n, value=2.0 + n % 3 / 100, at_s=at_s) for n in range(1, 6)]
        cells.append(cell_result("train", 0, verdict, value=3.0 if night > 4 else 2.0 + night / 100, at_s=at_s))
        cells.append(cell_result("train", 12, Verdict.FAILED if night % 2 else Verdict.PASSED, at_s=at_s))
        await finished_run(runs, f"nightly-{night}", cells, at_s)
        history.add(results(f"imported-ab12-row{night}", [cell_result("train", 0, at_s=at_s)], at_s, "imported"))
    folder = await finished_run(runs, "hostile-1", [hostile_cell()])
    write_results(folder, results("hostile-1", [hostile_cell()], suite="<img src=x onerror=alert(1)>"), log="<script>")
    open_history(runs / "history.db").add(results("hostile-1", [hostile_cell()], suite="<img src=x onerror=alert(1)>"))
    return await going_on(runs, "nightly-9", LIVE)


async def going_on(runs: Path, run: str, cells: list[CellResult]) -> list[bytes]:
    """The first five lines of its journal are there; these are the others."""
    folder = write_plan(runs, run, cells)
    await write_journal(folder, cells)
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join(lines[:5]))
    Ownership.take(folder.path)
    return lines[5:]


class Site:
    def __init__(self, runs: Path, address: str, lines: list[bytes]) -> None:
        self.runs, self.address, self.lines = runs, address, lines

    def append(self, data: bytes) -> None:
        with RunFolder(self.runs / "nightly-9").journal.open("ab") as file:
            file.write(data)


@contextmanager
def served(runs: Path, *options: str) -> Iterator[str]:
    """The address of a dashboard in a process of its own."""
    argv = [SEATRIAL, "serve", "--port", "0", "--runs", runs, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"(http://127\.0\.0\.1:\d+)/", process.stdout.readline())
            assert found
            yield found[1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    runs = tmp_path_factory.mktemp("served") / "runs"
    runs.mkdir()
    lines = asyncio.run(fill(runs))
    with served(runs, "--allow-review") as address:
        yield Site(runs, address, lines)


@pytest.fixture(scope="module")
def browser(site: Site) -> "Iterator[Browser]":
    """After the site: its loop would be in the way of what fills that."""
    with chromium() as started:
        yield started


def watched(browser: "Browser", site: Site, **options: Any) -> "Iterator[Page]":
    """A script that fails, a dialog, or a request to anybody else fails the test."""
    page = new_page(browser, viewport={"width": 1400, "height": 900}, **options)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(site.address) else wrong.append(asked.url))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    yield page
    page.context.close()
    assert wrong == []


@pytest.fixture
def page(browser: "Browser", site: Site) -> "Iterator[Page]":
    yield from watched(browser, site)


def addresses() -> list[str]:
    metric = f"/f/{slug('train[mode=a,n=0]')}/step_time"
    hostile = slug("<img src=x onerror=alert(1)>")
    paths = ["/?range=all", "/search?q=n", "/s/nightly"]
    paths += ["/c/nightly/00000000", metric, "/d/nightly-4..nightly-7", "/r/nightly-9"]
    paths += ["/r/imported-2023-11-14", f"/c/{hostile}/00000001", "/nothing"]
    return [
        *paths,
        "/s/imported",
        "/r/nightly-7",
        "/log/nightly-7/0000000c/1",
        f"/s/{hostile}",
        "/r/hostile-1#cell/00000001",
    ]


OURS = 10  # the first so many: of templates of our own


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_no_page_keeps_anybody_out(browser: "Browser", site: Site, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = []
    page = new_page(browser, viewport={"width": width, "height": 900}, bypass_csp=True)
    for path in [*addresses(), "/?before=nightly-7"]:
        page.emulate_media(color_scheme="light")
        page.goto(f"{site.address}{path}", wait_until="domcontentloaded")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        seen = Axe().run(page).response["violations"]
        page.emulate_media(color_scheme="dark")
        seen += Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
        for one in seen:
            node = one["nodes"][0]
            found.append(f"{path} {one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path} is {wide} px wide"] if wide > width else []
    page.context.close()
    assert found == []


def test_pages_fit_a_phone_and_nothing_foreign_runs(browser: "Browser", site: Site) -> None:
    for page in watched(browser, site, is_mobile=True, device_scale_factor=2):
        page.set_viewport_size({"width": 390, "height": 844})
        for path in addresses():
            if path != "/nothing":
                page.goto(f"{site.address}{path}", wait_until="domcontentloaded")
                if path in addresses()[:OURS]:
                    assert page.evaluate("document.documentElement.scrollWidth") <= 400, path


def test_what_runs_is_kept_up_to_date_and_ends_as_its_report(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}/r/nightly-9", wait_until="domcontentloaded")
    page.wait_for_selector("h1:text('0 of 4 cells done')")
    for number, line in enumerate(site.lines[:-1]):
        site.append(line)
        if number % 7 == 0:  # as a browser does that lost the connection, from what it saw last
            page.wait_for_selector(f"body[data-line='{number + 5}']")
            page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("h1:text('4 of 4 cells done: 1 failed')")
    page.wait_for_selector("#why li:has-text('RuntimeError: CUDA out of memory')")
    page.wait_for_selector(f"body[data-line='{len(site.lines) + 3}']")
    live = shown_parts(page)
    page.reload(wait_until="domcontentloaded")
    assert shown_parts(page) == live
    write_results(RunFolder(site.runs / "nightly-9"), results("nightly-9", LIVE))
    site.append(site.lines[-1])
    page.wait_for_selector("h1:text('1 of 4 cells needs attention')")


def shown_parts(page: "Page") -> list[str]:
    """The live parts, without times."""
    return [re.sub(r"\d+ (s|min|h)\b", "", one) for one in page.locator("[data-part]").all_inner_texts()]


SUITE = """
name: live
trials:
  smoke:
    kind: runtime
    matrix: {model: [a, "<img src=x onerror=alert(1)>"], size: ["1", "2", "3"]}
    run: ["sh -c 'echo \\"<script>alert(1)</script> ${model}\\"; test ${size} != 1 || { echo RuntimeError: no driver >&2; exit 1; }; for n in $(seq 600); do test -e FLAG && exit 0; echo step $n; sleep 0.3; done'"]
"""  # noqa: E501


def test_a_real_run_shows_causes_and_the_log_of_a_running_cell(page: "Page", site: Site, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    (tmp_path / "suite.yaml").write_text(SUITE.replace("FLAG", str(flag)))
    argv = [SEATRIAL, "run", tmp_path / "suite.yaml", "--runs", site.runs, "--parallel", "4"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as run:
        try:
            page.goto(f"{site.address}/", wait_until="domcontentloaded")
            page.locator("[data-part=now] a:text-matches('^live')").first.click()
            page.wait_for_selector("#why li:has-text('RuntimeError: no driver'):has-text('2')")
            page.wait_for_selector("#connection:text('connected')")
            page.locator(".running a").first.click()
            page.wait_for_selector("pre[data-log]:has-text('step 5')")
            assert "<script>alert(1)</script>" in page.locator("pre[data-log]").inner_text()
            page.locator("#counts button[data-verdict=failed]").click()
            page.wait_for_selector("#grids td.v-running.off")
            assert page.locator("#grids td:not(.off):has(>a)").count() == 2
            page.locator("#counts button[data-verdict=failed]").click()
            page.locator("#counts button[data-verdict=running]").click()
            page.wait_for_selector("#grids td.v-failed.off")
            assert page.locator("#grids td.v-running.off").count() == 0
            page.locator("#counts button[data-verdict=running]").click()
            page.locator("#why a").first.click()
            page.wait_for_selector("html[data-shown^='cause/']")
            before = page.locator(".elapsed b").first.inner_text()
            until(page, "text => document.querySelector('.elapsed b').textContent !== text", before)
        finally:
            flag.touch()
            assert run.wait() == 1
    page.wait_for_selector("h1:text('2 of 6 cells need attention')")


def test_the_report_fetches_what_is_looked_at(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}/r/nightly-7", wait_until="domcontentloaded")
    page.locator("#grids td.bad a, #grids .rows td.bad a").first.click()
    page.wait_for_selector("html[data-shown^='cell/']")
    assert "CUDA out of memory" in page.locator("#inspected").inner_text()


def test_a_mark_of_a_strip_leads_to_that_cell_in_that_run(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}/s/nightly", wait_until="domcontentloaded")
    page.locator("tr[data-hash='0000000c'] .strip i").nth(5).click()
    page.wait_for_url("**/r/nightly-5#cell/0000000c")
    page.wait_for_selector("html[data-shown='cell/0000000c']")


def test_a_point_of_a_metric_leads_to_its_run(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}{addresses()[4]}", wait_until="domcontentloaded")
    page.locator("figure.chart .hover").first.wait_for(state="attached")
    page.locator(".plot").first.focus()
    page.keyboard.press("End")
    assert "run nightly-7" in page.locator(".tip").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/r/nightly-7")


def test_search_and_filters_work_by_keyboard_and_are_in_the_url(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}/", wait_until="domcontentloaded")
    page.keyboard.press("/")
    page.keyboard.type("out of MEMORY")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=out+of+MEMORY")
    page.goto(f"{site.address}/?range=30d", wait_until="domcontentloaded")
    page.locator(".ranges a:text-is('all')").click()
    page.wait_for_url("**/?range=all&*")
    page.locator("select[name=suite]").select_option("nightly")
    page.wait_for_url("**/?range=all&suite=nightly&verdict=&target=")
    assert page.locator(".suites tbody tr").count() == 1
    when = page.locator(".suites time").first
    assert when.inner_text().endswith("d ago")
    assert when.get_attribute("title").endswith("UTC")
    page.locator(".bars a").last.click()
    page.wait_for_url("**/r/nightly-7")


def test_an_alert_is_reviewed_with_a_reason(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}{addresses()[4]}", wait_until="domcontentloaded")
    form = page.locator("form.review").first
    run = form.locator("[name=run]").get_attribute("value")
    number = page.locator("form.review").count()
    form.get_by_label("Known regression").check()
    form.get_by_label("Reason").fill("<b>driver</b> 570")
    form.get_by_label("Your name").fill("ann")
    form.get_by_role("button").click()
    page.wait_for_selector("td:text-is('regression: <b>driver</b> 570')")
    assert page.locator("form.review").count() == number - 1
    history = open_history(site.runs / "history.db")
    assert [(one.run, one.label) for one in history.marks()] == [(run, "regression")]


def test_a_comparison_leads_to_cells_and_causes(page: "Page", site: Site) -> None:
    page.goto(f"{site.address}/d/nightly-4..nightly-7", wait_until="domcontentloaded")
    assert "2 newly failing, 0 still failing, 0 fixed" in page.locator("h1").inner_text()
    page.locator("#newly-failing + .causes .cell").first.click()
    page.wait_for_url("**/r/nightly-7#cell/*")
    page.goto(f"{site.address}/d/nightly-4..nightly-7", wait_until="domcontentloaded")
    page.get_by_text("Compare with another run").click()
    page.get_by_role("link", name="nightly-3", exact=True).click()
    page.wait_for_url("**/d/nightly-3..nightly-7")


def test_pages_as_files_work_without_a_server(browser: "Browser", site: Site, tmp_path: Path) -> None:
    argv = [SEATRIAL, "serve", "--runs", site.runs, "--public", tmp_path / "site"]
    subprocess.run(argv, check=True, capture_output=True)
    page = new_page(browser)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.locator("a:text-is('nightly')").first.click()
    page.locator("tr[data-hash='0000000c'] a").first.click()
    page.locator("a:text-is('nightly-7')").first.click()
    page.wait_for_selector("html[data-shown='cell/0000000c']")
    assert "CUDA out of memory" in page.locator("#inspected").inner_text()
    page.context.close()
    assert wrong == []
