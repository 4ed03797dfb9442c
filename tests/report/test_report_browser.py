"""The report as a real browser shows it: what stands where, by keyboard, on a phone, on paper, without scripts."""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import msgspec
import pytest
import sample
import shapes
from browser import CHROMIUM, chromium, new_page, until

from seatrial.job import (
    AnyChart,
    Cause,
    CellResult,
    Distribution,
    Excluded,
    Finding,
    RunResults,
    Series,
    Table,
    Text,
    Tile,
    Timeline,
    TokenDiff,
    TokenDifference,
    Verdict,
    convert,
)
from seatrial.job.results import TextBody
from seatrial.report import write_reports
from seatrial.report.html.page import RunPage
from seatrial.report.view.run import RunView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")]

MOST_BYTES = 3_000_000
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
    page.wait_for_url(re.compile("find=newly"))
    page.wait_for_selector(".causes li[hidden]", state="attached")
    assert page.locator(".causes li:visible").count() == 1
    assert page.locator("#inspected .strip rect").count() == shapes.NIGHTS + 1
    assert "did not pass in 1 of its last 19 runs" in inspected(page)


def test_it_takes_few_tabs_to_the_first_cause(page: "Page", release: Path) -> None:
    opened(page, release)
    for _ in range(18):
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
    page.wait_for_url(re.compile("find=timeout"))
    page.wait_for_selector(".causes li[hidden]", state="attached")
    assert page.locator("#grids td.bad:not(.off)").count() == 5
    assert page.locator(".causes li:visible").count() == 1
    page.go_back()
    page.wait_for_url(re.compile(f"#cell/{cell}$"))
    opened(page, release, "#find=failed&rows=machine&show=time")
    assert page.locator("#grids .panel.first tbody tr").count() == len(shapes.MACHINES)
    assert page.locator(".grid").get_attribute("data-show") == "time"
    assert "s" in page.evaluate("getComputedStyle(document.querySelector('#grids td a'), '::after').content")


def test_the_layout_of_a_grid_is_chosen_and_a_cell_says_its_values_on_hover(page: "Page", release: Path) -> None:
    opened(page, release)
    page.locator(".choose select[name=rows]").select_option("machine")
    page.wait_for_url(re.compile("rows=machine"))
    page.wait_for_selector(f"#grids .panel.first tbody th:text-is('{shapes.MACHINES[-1]}')")
    assert page.locator("#grids .panel.first tbody tr").count() == len(shapes.MACHINES)
    page.locator(".choose select[name=show]").select_option("time")
    page.wait_for_selector(".grid[data-show=time]")
    cell = page.locator("#grids td.bad > a").first
    cell.hover()
    assert all(part in cell.get_attribute("title") for part in ("torch-2.8-cu128", "failed"))


def test_a_command_is_copied(browser: "Browser", release: Path) -> None:
    for page in watched(browser, {"viewport": {"width": 1400, "height": 900}}):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened(page, release)
        command = page.locator("#inspected .command code").last.inner_text()
        page.locator("#inspected button.copy").last.click()
        page.wait_for_selector("#inspected button.copy:text-is('copied')")
        assert page.evaluate("navigator.clipboard.readText()") == command
        assert command.startswith("seatrial run")


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


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with one of everything, executed notebooks and every kind of chart."""
    run = sample.small()
    cells = [msgspec.structs.replace(run.cells[0], charts=charts_with("a text")), *run.cells[1:]]
    folder = sample.write_run(
        tmp_path_factory.mktemp("runs") / "varied", msgspec.structs.replace(run, cells=cells), notebooks=True
    )
    write_reports(folder, msgspec.structs.replace(run, cells=cells))
    return folder


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = sample.write_run(tmp_path_factory.mktemp("runs") / "green", sample.green(9))
    write_reports(folder, sample.green(9))
    return folder


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_axe_finds_nothing_in_any_page(
    browser: "Browser", release: Path, varied: Path, green: Path, measured: Path, width: int
) -> None:
    run = shapes.release()
    cell = first_bad(run).hash
    failed = next(one.hash for one in sample.small().cells if any("notebook" in f.step for f in one.findings))
    pages = [
        *((release, fragment, "report.html") for fragment in ("", f"#cell/{cell}", f"#cause/{run.causes[0].id}")),
        (release, "", f"cells/{cell}/1/log.html"),
        (varied, f"#cell/{sample.small().cells[0].hash}", "report.html"),
        (varied, f"#cell/{failed}", "report.html"),
        (varied, "", f"cells/{failed}/1/files/notebooks/train.rerun.html"),
        (green, "", "report.html"),
        (measured, "", "report.html"),
    ]
    found = []
    page = new_page(browser, viewport={"width": width, "height": 900}, bypass_csp=True)
    for folder, fragment, name in pages:
        page.emulate_media(color_scheme="light")
        page.goto("about:blank")
        page.goto(f"{(folder / name).as_uri()}{fragment}")
        if "notebooks" not in name:
            page.wait_for_selector("html[data-shown]")
        page.evaluate("for (const view of document.querySelectorAll('details')) view.open = true")
        if name == "report.html" and not fragment:
            page.wait_for_selector("#time svg")
        found += [f"{folder.name}/{name}{fragment} {one}" for one in violations(page)]
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{folder.name}/{name}{fragment} is {wide} px wide"] if wide > width else []
    page.context.close()
    assert found == []


def violations(page: "Page") -> list[str]:
    """What axe finds, in the light and in the dark."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    page.emulate_media(color_scheme="dark")  # which changes colours, and nothing else
    found += Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')}" for one in found
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


def test_a_log_is_searched_and_walked_through(page: "Page", release: Path) -> None:
    opened(page, release, name=f"cells/{first_bad(shapes.release()).hash}/1/log.html")
    page.keyboard.press("/")
    page.keyboard.type("step 9999")
    page.wait_for_selector("#found:has-text('2 of 11')")
    first = page.locator(".line.hit.here").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector("#found:has-text('3 of 11')")
    assert page.locator(".line.hit.here").inner_text() != first
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector("#found:has-text('2 of 11')")
    assert page.locator(".line.hit.here").inner_text() == first
    page.get_by_role("button", name="↓ error").click()
    page.wait_for_url(re.compile("#L51163$"))
    page.locator("#rail").click(position={"x": 3, "y": 5})
    page.wait_for_url(re.compile(r"#L\d{1,4}$"))
    page.get_by_role("button", name="↑ error").click()
    page.wait_for_url(re.compile("#L51163$"))


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
    page.wait_for_selector("#inspected .plot svg")
    fetched = page.locator("#inspected").inner_text()
    page.context.close()
    for other in watched(browser, {}):
        opened(other, release, f"#cell/{cell}")
        other.wait_for_selector("#inspected .plot svg")
        assert inspected(other).removesuffix("copy").strip() == fetched.strip()


ATTACK = (
    "<img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">"
    "</script><script>document.title='owned'</script></style><style>body{display:none}</style>"
    "<link rel=stylesheet href=https://evil.test/x.css><a href=\"javascript:document.title='owned'\">x</a>"
    "\" onmouseover=\"document.title='owned'\" autofocus onfocus='x"
)


def charts_with(text: str) -> list[AnyChart]:
    """A chart of each kind, with this text wherever text may be."""
    token = {"text": text, "logprob": -1.0, "top": [{"text": text, "logprob": -1.0}]}
    difference = {"message": text, "position": 1, "expected": token, "got": token}
    return [
        TokenDiff(text, convert(difference, TokenDifference)),
        Table(text, [text], [[text]], {text: text}),
        Series(text, [text, text + "2"], [[0, 1], [1, 2]], {text: text}),
        Distribution(text, ["a", "p50"], [[text, 1.0]], {"p50": text}),
        Timeline(text, ["name", "begin", "end"], [[text, 0, 1]]),
        Text(text, TextBody(text)),
    ]


def attacked() -> RunResults:
    """Every field that a job, a server or a suite fills tries to run a script, to change the style or to fetch."""
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
        charts=charts_with(ATTACK),
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


def hits(page: "Page") -> int:
    return page.locator("#grids td:not(.off)>a").count()


def test_a_cause_marks_its_cells_in_the_grid_and_filters_the_list(page: "Page", release: Path) -> None:
    cause = shapes.release().causes[0]
    opened(page, release)
    page.get_by_role("link", name="Cells", exact=True).click()
    page.wait_for_selector("#cells tbody tr")
    page.locator(f".causes a[href='#cause/{cause.id}']").click()
    page.wait_for_selector(f"html[data-shown='cause/{cause.id}']")
    assert hits(page) == len(cause.cells) == page.locator("#cells tbody tr:visible").count()
    assert page.locator(".causes li:visible").count() == 4  # the other causes stay
    assert page.locator(".causes a.chosen").count() == 1
    page.keyboard.press("Escape")
    page.wait_for_selector("html[data-shown='home']")
    assert hits(page) == page.locator("#cells tbody tr:visible").count() == 299


def test_search_finds_causes_by_their_cells_and_updates_the_inspector(page: "Page", release: Path) -> None:
    run = shapes.release()
    cells = {one.hash: one for one in run.cells}
    wanted = [one for one in run.causes if any("whisper" in cells[hash_].id for hash_ in one.cells)]
    opened(page, release)
    page.locator("#find").fill("whisper")
    page.wait_for_selector("#inspected:has-text('whisper')")
    assert page.locator(".causes li:visible").count() == len(wanted) >= 2
    assert hits(page) == sum("whisper" in one.id for one in run.cells)
    assert not page.locator("aside.asked").count()
    page.locator("#find").fill("")
    page.wait_for_selector(".causes li >> nth=3")
    assert page.locator(".causes li:visible").count() == 4


def test_a_filter_for_other_cells_closes_the_open_cause(page: "Page", release: Path) -> None:
    cause = next(one for one in shapes.release().causes if one.text.startswith("Segmentation"))
    opened(page, release)
    page.locator(f".causes a[href='#cause/{cause.id}']").click()
    page.wait_for_selector(f"html[data-shown='cause/{cause.id}']")
    page.locator("#counts button[data-verdict=newly]").click()
    page.wait_for_function("!location.hash.includes('cause/')")
    until(page, "document.querySelectorAll('#grids td:not(.off)>a').length === 13")
    assert page.locator(".causes li:visible").count() == 1


def test_a_search_without_a_match_says_so_and_names_the_axes(page: "Page", release: Path) -> None:
    opened(page, release)
    assert page.locator("#nothing").is_hidden()
    page.locator("#find").fill("machne:A100")
    page.wait_for_selector("#nothing:has-text('No cells match machne:A100. Axes are trial, runtime, model, machine.')")
    page.locator("#find").fill("machine:A100-40x1")
    page.wait_for_selector("#nothing", state="hidden")


def test_verdicts_and_axis_values_become_chips_of_the_search(page: "Page", release: Path) -> None:
    run = shapes.release()
    matching = [one for one in run.cells if one.axes["machine"] == "A100-40x1" and one.verdict is Verdict.FAILED]
    opened(page, release)
    page.locator("#find").focus()
    page.keyboard.type("failed machine:A100-40x1 ")
    page.wait_for_selector("#chips button >> nth=1")
    assert [one.get_attribute("aria-label") for one in page.locator("#chips button").all()] == [
        "Remove failed",
        "Remove machine:A100-40x1",
    ]
    page.wait_for_selector("#counts button[data-verdict=failed][aria-pressed=true]")
    until(page, f"document.querySelectorAll('#grids td:not(.off)>a').length === {len(matching)}")
    page.keyboard.press("Backspace")
    page.wait_for_selector("#chips button >> nth=1", state="detached")
    page.get_by_role("button", name="Remove failed").click()
    page.wait_for_selector("#chips button", state="detached")
    until(page, "document.querySelectorAll('#grids td.off').length === 0")


def test_the_verdict_filters_are_reached_by_the_keyboard(page: "Page", release: Path) -> None:
    opened(page, release)
    assert page.locator("#counts button[tabindex='-1']").count() == 0
    page.locator("#counts button[data-verdict=timeout]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#counts button[data-verdict=timeout][aria-pressed=true]")
    until(page, "document.querySelectorAll('#grids td:not(.off)>a').length === 5")
    assert page.locator("#inspected h2 a.log").inner_text() == "Log"  # at the top of the inspector


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells with tiles and charts for the first screen: one passes, one breaks its bound."""
    cells = []
    for number, (verdict, value) in enumerate(((Verdict.PASSED, 0.2), (Verdict.FAILED, 3.5))):
        tiles = [Tile("offered", 20.0, "/s"), Tile("p99", value, "s", "scheduled", "<= 1s", 1.0, verdict)]
        curve = [[value / 10 * place, place / 10] for place in range(1, 11)]
        share = Series("Share by time to scheduled", ["seconds", "share"], curve, {"seconds": "s"}, first=True)
        loads = [[at, 10 + number] for at in range(20)]
        load = Series("Load, workloads", ["seconds", "offered"], loads, {"seconds": "s"}, first=True)
        finding = Finding("driver", "bound scheduled.p99", verdict, "", f"scheduled.p99: {value} s")
        cells.append(sample.cell(f"{number:08x}", "a", f"m{number}", verdict, finding, charts=[*tiles, share, load]))
    run = sample.results("measured", Verdict.FAILED, cells, [])
    folder = sample.write_run(tmp_path_factory.mktemp("runs") / "measured", run)
    write_reports(folder, run)
    return folder


def test_a_row_of_the_first_screen_selects_its_charts(page: "Page", measured: Path) -> None:
    opened(page, measured)
    assert page.locator(".board tbody tr").count() == 2
    assert "3.5 s" in page.locator(".board tr.chosen").inner_text()  # bad ones first
    assert top(page, "#shown figure") <= 900
    before = page.locator("#shown figure").first.get_attribute("data-plot")
    page.locator(".board tbody tr >> nth=1 >> a >> nth=0").click()
    page.wait_for_url(re.compile("board=00000000"))
    until(page, "document.querySelector('.board tr.chosen').dataset.cell === '00000000'")
    assert page.locator("#shown figure").first.get_attribute("data-plot") != before
    page.wait_for_selector("#shown figure svg")
    page.go_back()
    until(page, "document.querySelector('.board tr.chosen').dataset.cell === '00000001'")
    assert page.locator("#shown figure").first.get_attribute("data-plot") == before


def test_the_first_screen_needs_no_script_and_fits_every_width(browser: "Browser", measured: Path) -> None:
    plain = new_page(browser, java_script_enabled=False, viewport={"width": 1400, "height": 900})
    plain.goto((measured / "report.html").as_uri())
    assert plain.locator("#shown figure svg path.line").count() >= 2
    plain.context.close()
    for width in (390, 768, 1440):
        for page in watched(browser, {"viewport": {"width": width, "height": 900}, "bypass_csp": True}):
            opened(page, measured)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
