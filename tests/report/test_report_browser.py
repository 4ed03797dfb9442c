"""The report as a real browser shows it: what stands where, by keyboard, on a phone, on paper, without scripts."""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import pytest
import sample
import shapes
from browser import CHROMIUM, chromium, new_page

from seatrial.job import (
    Cause,
    CellResult,
    Distribution,
    Excluded,
    Finding,
    RunResults,
    Series,
    Table,
    Text,
    Timeline,
    TokenDiff,
    TokenDifference,
    Verdict,
    convert,
)
from seatrial.job.charts import TextBody
from seatrial.report import write_reports
from seatrial.report.html.page import RunPage
from seatrial.report.view.run import RunView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")]

MOST_BYTES = 3_000_000
SERIOUS = {"serious", "critical"}
BAD_CELL = "#cell/"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 299 cells, with its reports and one log of 100,000 lines."""
    run = shapes.release()
    folder = sample.write_run(tmp_path_factory.mktemp("runs") / "release", run)
    log = folder / "cells" / first_bad(run).hash / "1" / "log.txt"
    log.write_text(shapes.long_log())
    write_reports(folder, run)
    return folder


def first_bad(run: RunResults) -> CellResult:
    return next(cell for cell in run.cells if cell.hash == run.causes[0].cells[0])


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    """Wide, and light; a script of ours that fails, or a request that leaves the page, fails the test."""
    yield from watched(browser, {"viewport": {"width": 1400, "height": 900}})


def watched(browser: "Browser", options: dict[str, Any]) -> "Iterator[Page]":
    page = new_page(browser, **options)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.is_navigation_request() else wrong.append(request.url))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    yield page
    page.context.close()
    assert wrong == []


def opened(page: "Page", folder: Path, fragment: str = "", name: str = "report.html") -> "Page":
    """Loaded anew, with what its address asks for."""
    page.goto("about:blank")
    page.goto(f"{(folder / name).as_uri()}{fragment}")
    page.wait_for_selector("html[data-shown]")
    return page


def top(page: "Page", selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def inspected(page: "Page") -> str:
    return page.locator("#inspected").inner_text()


def test_causes_and_the_first_bad_cell_are_on_the_first_screen(page: "Page", release: Path) -> None:
    opened(page, release)
    run = shapes.release()
    assert page.locator("h1").inner_text().endswith("35 of 299 cells need attention: 4 causes")
    assert page.locator(".causes li").count() == len(run.causes) == 4
    assert top(page, ".causes li >> nth=-1") <= 900
    assert top(page, "#grids td.bad") <= 900
    assert page.evaluate("document.documentElement.scrollHeight") <= 2000
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert shapes.DRIVER in inspected(page)  # the evidence of the first cause is there before anything is clicked


def test_what_is_new_stands_out(page: "Page", release: Path) -> None:
    opened(page, release)
    assert "13 newly failing, 22 already known since each cell's previous run" in page.locator("main").inner_text()
    assert page.locator(".causes .news").all_inner_texts() == ["13 new", *["since 29 Oct 2026"] * 3]
    assert page.locator("#grids td.newly").count() == 13
    page.get_by_role("button", name="13 new").click()
    page.wait_for_url(re.compile("verdict=newly"))
    assert page.locator(".causes li:visible").count() == 1
    assert page.locator("#inspected .strip rect").count() == shapes.NIGHTS + 1
    assert "did not pass in 1 of its last 19 runs" in inspected(page)


def test_it_takes_few_tabs_to_the_first_cause(page: "Page", release: Path) -> None:
    opened(page, release)
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.causes') !== null"):
            break
    assert page.evaluate("document.activeElement.closest('.causes') !== null")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-shown^='cause/']")
    assert "13 cells failed" in inspected(page)
    assert "--select runtime=torch-2.9-cu130,machine=A100-40x1" in inspected(page)


def test_the_keyboard_reaches_every_bad_cell_and_the_grid_is_one_stop(page: "Page", release: Path) -> None:
    opened(page, release)
    assert page.locator("#grids a[tabindex='0']").count() == 1
    hashes = []
    for _ in range(3):
        before = page.evaluate("document.documentElement.dataset.shown")
        page.keyboard.press("n")
        page.wait_for_selector(f"html:not([data-shown='{before}'])")
        hashes.append(page.evaluate("document.documentElement.dataset.shown"))
    assert len(set(hashes)) == 3
    page.keyboard.press("p")
    page.wait_for_selector(f"html[data-shown='{hashes[1]}']")
    page.keyboard.press("Escape")
    page.wait_for_selector("html[data-shown='home']")
    page.locator("#grids a[tabindex='0']").focus()
    place = "document.activeElement.parentElement.cellIndex"
    first = page.evaluate(place)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(place) == first - 1
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.matches('#grids td > a')")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-shown^='cell/']")
    page.keyboard.press("Escape")
    page.wait_for_selector("html[data-shown='home']")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("mixtral-8x7b h100")
    page.wait_for_url(re.compile("find=mixtral-8x7b%20h100"))
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()


def test_what_is_shown_is_in_the_address(page: "Page", release: Path) -> None:
    run = shapes.release()
    cell = run.causes[1].cells[0]
    opened(page, release, f"#cell/{cell}")
    assert shapes.DIVERGED in inspected(page)
    assert page.locator("#grids a.chosen").get_attribute("href") == f"#cell/{cell}"
    page.locator("#counts button[data-verdict=timeout]").click()
    page.wait_for_url(re.compile("verdict=timeout"))
    assert page.locator("#grids td.bad:not(.off)").count() == 5
    assert page.locator(".causes li:visible").count() == 1
    page.go_back()
    page.wait_for_url(re.compile(f"#cell/{cell}$"))
    opened(page, release, "#verdict=failed&rows=machine&show=time")
    assert page.locator("#grids .panel.first tbody tr").count() == len(shapes.MACHINES)
    assert page.locator(".grid").get_attribute("data-show") == "time"
    assert "s" in page.evaluate("getComputedStyle(document.querySelector('#grids td a'), '::after').content")


def test_cells_time_and_what_was_not_run_are_a_click_away(page: "Page", release: Path) -> None:
    opened(page, release)
    page.get_by_role("link", name="Cells", exact=True).click()
    page.wait_for_selector("#cells tbody tr")
    assert page.locator("#cells tbody tr").count() == 299
    page.get_by_role("link", name="Time", exact=True).click()
    page.wait_for_selector("#time svg")
    assert page.locator("#time .plot text", has_text="vm (").count() == len(shapes.MACHINES)
    page.get_by_role("link", name="Not run 151").click()
    assert "weights do not fit into the GPU memory" in page.locator("#not-run").inner_text()


def test_the_overview_needs_no_script(browser: "Browser", release: Path) -> None:
    page = new_page(browser, java_script_enabled=False, viewport={"width": 1400, "height": 900})
    page.goto((release / "report.html").as_uri())
    text = page.locator("main").inner_text()
    assert "35 of 299 cells need attention" in text
    assert shapes.DRIVER in text
    assert page.locator("#grids td.bad").count() == 35
    assert "need JavaScript" in text
    page.context.close()


def test_nothing_serious_stands_in_the_way_of_a_screen_reader(browser: "Browser", release: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    cell = first_bad(shapes.release()).hash
    for page in watched(browser, {"viewport": {"width": 1400, "height": 900}, "bypass_csp": True}):
        for fragment, name in ((f"#cell/{cell}", "report.html"), ("", f"cells/{cell}/1/log.html")):
            page.emulate_media(color_scheme="light")
            opened(page, release, fragment, name)
            page.evaluate("for (const view of document.querySelectorAll('details')) view.open = true")
            if fragment:
                page.wait_for_selector("#time svg")
            assert violations(Axe().run(page).response) == []
            page.emulate_media(color_scheme="dark")  # which changes colours, and nothing else
            assert violations(Axe().run(page, options={"runOnly": ["color-contrast"]}).response) == []


def violations(found: dict[str, Any]) -> list[str]:
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


def test_paper_has_every_cause_and_every_column(page: "Page", release: Path) -> None:
    from pypdf import PdfReader

    opened(page, release)
    pages = PdfReader(BytesIO(page.pdf(prefer_css_page_size=True))).pages
    text = re.sub(r"\s+", "", normalize("NFKC", "".join(one.extract_text() for one in pages)))
    for cause in shapes.release().causes:
        assert re.sub(r"\s+", "", cause.text) in text
    for name in (*shapes.RUNTIMES, *shapes.MODELS):
        assert name in text
    page.set_viewport_size({"width": 703, "height": 1000})  # what A4 has between its margins
    page.emulate_media(media="print")
    assert (
        page.evaluate(
            "Math.max(...Array.from(document.querySelectorAll('.panel'), e => e.getBoundingClientRect().right))"
        )
        <= 703
    )


def test_a_phone_shows_the_overview_and_one_cell(browser: "Browser", release: Path) -> None:
    for page in watched(browser, {"viewport": {"width": 390, "height": 844}, "has_touch": True}):
        opened(page, release)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not page.locator("#inspector").is_visible()
        page.locator(".causes a").first.click()
        page.wait_for_selector("html[data-shown^='cause/']")
        box = page.locator("#inspector").bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, 390)
        page.get_by_role("button", name="Close the inspector").click()
        page.wait_for_selector("html[data-shown='home']")
        assert not page.locator("#inspector").is_visible()


def test_a_long_log_opens_at_its_error_and_draws_only_what_is_in_sight(page: "Page", release: Path) -> None:
    name = f"cells/{first_bad(shapes.release()).hash}/1/log.html"
    opened(page, release, name=name)
    error = page.locator(".line.error")
    assert error.inner_text().startswith("51163")
    assert "CUDA out of memory" in error.inner_text()
    assert error.locator("span.fg1").count() == 1
    assert page.locator(".line").count() < 200
    assert page.locator("#rail i.gap").count() == 1
    page.locator("#find").fill("step 99999")
    page.wait_for_selector(".line.hit.here")
    assert page.locator(".line.hit.here").inner_text().startswith("100000")
    opened(page, release, "#L40001", name=name)
    assert "bytes left out here" in page.locator(".line.gap").inner_text()


def test_five_thousand_cells_stay_small_and_any_of_them_opens(page: "Page", tmp_path: Path) -> None:
    run = shapes.many()
    folder = sample.write_run(tmp_path / "many", run)
    whole = RunPage(RunView(run, folder)).html()
    assert len(whole.encode()) <= MOST_BYTES
    (folder / "report.html").write_text(whole)
    opened(page, folder, f"#cell/{run.cells[-1].hash}")
    assert page.locator("#grids td>a").count() == len(run.cells)
    assert run.cells[-1].axes["machine"] in inspected(page)


def test_pieces_that_are_fetched_are_the_same(browser: "Browser", release: Path) -> None:
    run = shapes.release()
    made = RunPage(RunView(run, release), fetched_from="/r/run/")
    cell = first_bad(run).hash
    page = new_page(browser)
    asked: list[str] = []

    def answer(route: Any) -> None:
        key = route.request.url.partition("/r/run/")[2]
        asked.append(key)
        route.fulfill(content_type="text/html; charset=utf-8", body=made.fragment(key) if key else made.html())

    page.route("http://report.test/**", answer)
    page.goto(f"http://report.test/#cell/{cell}")
    page.wait_for_selector(f"html[data-shown='cell/{cell}']")
    assert asked == ["", f"cell/{cell}"]
    fetched = page.locator("#inspected").inner_text()
    page.context.close()
    for other in watched(browser, {}):
        opened(other, release, f"#cell/{cell}")
        assert inspected(other).removesuffix("copy").strip() == fetched.strip()


ATTACK = (
    "<img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script></style><style>body{display:none}</style>"
    "<link rel=stylesheet href=https://evil.test/x.css><a href=\"javascript:document.title='owned'\">x</a>"
    "\" onmouseover=\"document.title='owned'\" autofocus onfocus='x"
)


def attacked() -> RunResults:
    """Every field that a job, a server or a suite fills tries to run a script, to change the style or to fetch."""
    token = {"text": ATTACK, "logprob": -1.0, "top": [{"text": ATTACK, "logprob": -1.0}]}
    difference = {"message": ATTACK, "position": 1, "expected": token, "got": token}
    charts = [
        TokenDiff(ATTACK, convert(difference, TokenDifference)),
        Table(ATTACK, [ATTACK], [[ATTACK]], {ATTACK: ATTACK}),
        Series(ATTACK, [ATTACK, ATTACK + "2"], [[0, 1], [1, 2]], {ATTACK: ATTACK}),
        Distribution(ATTACK, ["a", "p50"], [[ATTACK, 1.0]], {"p50": ATTACK}),
        Timeline(ATTACK, ["name", "begin", "end"], [[ATTACK, 0, 1]]),
        Text(ATTACK, TextBody(ATTACK)),
    ]
    found = Finding(ATTACK, ATTACK, Verdict.FAILED, ATTACK, ATTACK, ATTACK, {"packages": {ATTACK: ATTACK}})
    tried = sample.attempt(verdict=Verdict.FAILED, headline=ATTACK, why=ATTACK)
    bad = sample.cell(
        "00000000",
        ATTACK,
        ATTACK,
        Verdict.FAILED,
        found,
        Finding("notebook train.ipynb rerun", "notebook", Verdict.FAILED, "error", ATTACK, ATTACK),
        attempts=[tried],
        charts=charts,
        metrics={ATTACK: {"value": 1.0, "unit": ATTACK, "source": ATTACK, "better": "lower"}},
    )
    run = sample.results(ATTACK, Verdict.FAILED, [bad, *sample.small().cells], [Excluded("generic", bad.axes, ATTACK)])
    cause = Cause("abc123", Verdict.FAILED, ATTACK, ["00000000"], {ATTACK: ATTACK}, 1, 1)
    return RunResults(
        **{name: getattr(run, name) for name in run.__struct_fields__} | {"causes": [cause], "commit": ATTACK}
    )


def test_what_names_logs_notebooks_and_answers_say_does_nothing(page: "Page", tmp_path: Path) -> None:
    run = attacked()
    folder = sample.write_run(tmp_path / "run", run, notebooks=True)
    (folder / "cells/00000000/1/log.txt").write_text(f"Error: {ATTACK}\n" * 5)
    notebook = sample.notebook({"output_type": "stream", "name": "stdout", "text": ATTACK}, source=ATTACK)
    (folder / "cells/00000000/1/files/notebooks/train.fresh.ipynb").write_bytes(sample.json.dumps(notebook).encode())
    write_reports(folder, run)
    made = RunPage(RunView(run, folder))
    for key in ("", *(f"#{key}" for key in list(made.keys()) if key.startswith(("cell/", "cause/")))):
        opened(page, folder, key)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        untouched(page)
        assert page.title().startswith("failed: <img")
    for name in ("log.html", "files/notebooks/train.fresh.html"):
        page.goto((folder / "cells/00000000/1" / name).as_uri())
        untouched(page)
        assert ATTACK[:20] in page.locator("body").inner_text()


def untouched(page: "Page") -> None:
    assert page.title() != "owned"
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    assert page.evaluate("document.querySelectorAll('style').length") == 1
    planted = "link, img[src=x], [onerror], [onmouseover], [onload], a[href^=javascript]"
    assert page.locator(planted).count() == 0
