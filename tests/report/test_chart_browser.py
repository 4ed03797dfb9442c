"""The chart component in a real browser: one page with a chart of each type, and a test for each interaction."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import CHROMIUM, chromium, new_page, until

from report.test_report_browser import violations, watched
from report.test_report_series import series, steps
from seatrial.job import Distribution, Series, Timeline
from seatrial.report.html.templates import asset, content_policy, macro
from seatrial.report.view.charts import distribution_plot, series_plots, share_plot, timeline_plot
from seatrial.report.view.over_runs import before_and_since, metric_plot
from seatrial.report.view.plot import Axis, Band, Mark, Plot, curve
from seatrial.report.view.series import view_series

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")]

WIDTH = 450
STAGES = {"seconds": "s"}


def plots() -> dict[str, Plot]:
    """One of each type, by a name."""
    load = [[n, 20 + n % 7, n % 3, 0.01 + n / 10_000, 0.5 if n == 50 else 0.02] for n in range(100)]
    units = {"time": "s", "p50": "s", "max": "s"}
    requests, latency = series_plots(Series("Load", ["time", "requests", "errors", "p50", "max"], load, units))
    compiled = [[n, 1.2 if n == 0 else 0.15 + n % 5 / 100] for n in range(30)]
    hosts = [f"step_time, host {number}" for number in range(8)]
    slow = [[n, *(2.0 if number == 5 else 1 + n % 9 / 10 for number in range(8))] for n in range(200)]
    curves = [[10**-4 * 2**n, n / 12] for n in range(13)]
    shares = [Series(f"Share by time to {one}", ["seconds", "share"], curves, STAGES) for one in ("created", "started")]
    quantiles = [["ttft", 0.001, 0.02, 0.3], ["a-very-long-name-of-a-latency-that-has-no-room", 0.2, 0.3, 4.0]]
    made = view_series(series(steps(2.0, 2.2), verdict={29: "slower"}))
    histogram = before_and_since(made)
    assert histogram is not None
    found = [
        *(requests, latency, share_plot(shares), metric_plot(made, lambda point: f"#{point.run}"), histogram),
        *series_plots(Series("Steps", ["step", "step_time"], compiled, {"step_time": "s"})),
        *series_plots(Series("Hosts", ["step", *hosts], slow, dict.fromkeys(hosts, "s"))),
        *series_plots(Series("Sweep", ["rate", "p99"], [[1, 0.1], [2, 0.12], [4, 0.9]], {"rate": "1/s", "p99": "s"})),
        distribution_plot(Distribution("Quantiles", ["of", "p50", "p99", "max"], quantiles, {"p50": "s"})),
        timeline_plot(Timeline("Phases", [], [["load", 0, 3], ["train", 3, 300.25]])),
        Plot(
            "Bounds",
            [curve("a", [(0, 1), (9, 4)])],
            bands=[Band(1, 2, label="usual")],
            marks=[Mark(3, "max", "y", "bound")],
        ),
        Plot(
            "Parts",
            [curve("b", [(0, 0), (9, 4e9)])],
            Axis("s"),
            Axis("B"),
            [Band(0, 5, "x", "load"), Band(5, 9, "x", "run")],
        ),
        Plot("Nothing", [curve("none", [])], Axis("s", "log")),
        Plot("One", [curve("one", [(0.0, 1e-9)])], Axis("s", "log"), Axis(kind="log")),
        Plot("Seven", [curve(str(n), [(0, n), (1e6, 1e15)], "step") for n in range(7)], Axis(kind="date")),
    ]
    return {plot.title: plot for plot in found}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All charts, the first half baked, under the policy of the report."""
    style, script = asset("page.css") + asset("chart.css"), asset("chart.js") + "charts.enhance(document);"
    figures = [macro("charts.html.j2", "figure")(plot, n % 2 == 0, WIDTH) for n, plot in enumerate(plots().values())]
    path = tmp_path_factory.mktemp("charts") / "charts.html"
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>charts</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style, script)}">'
        f"<style>{style}</style></head><body><main><h1>Charts</h1>{''.join(map(str, figures))}</main>"
        f"<script>{script}</script></body></html>"
    )
    return path


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser: "Browser", file: Path) -> "Iterator[Page]":
    for page in watched(browser, {"viewport": {"width": 900, "height": 700}}):
        page.goto(file.as_uri())
        until(
            page,
            "document.querySelectorAll('figure.chart .hover').length === document.querySelectorAll('figure').length",
        )
        yield page


def of(page: "Page", title: str) -> "Locator":
    return page.locator("figure.chart").filter(has=page.locator("figcaption", has_text=title)).first


def at(page: "Page", title: str, across: float, down: float = 0.5) -> tuple[float, float]:
    """A place inside a chart, by its share of the width and the height."""
    plot = of(page, title).locator(".plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    return box["x"] + 56 + across * (box["width"] - 70), box["y"] + down * box["height"]


def ticks(page: "Page", title: str) -> list[str]:
    return of(page, title).locator(".plot text[text-anchor=middle]").all_text_contents()


def shapes(markup: str) -> list[tuple[str, dict[str, str], str]]:
    """Elements of an SVG, without what differs between a page and a script."""
    root = ET.fromstring(markup)
    return [
        (one.tag, {k: v for k, v in one.attrib.items() if v}, one.text or "") for one in root.iter() if one.tag != "g"
    ]


@pytest.mark.parametrize("width", [WIDTH, 390, 1203])
def test_the_script_draws_what_the_server_draws(page: "Page", width: int) -> None:
    for title, plot in plots().items():
        baked = str(macro("charts.html.j2", "figure")(plot, True, width))
        root = ET.fromstring(baked)
        svg = root.find(".//svg")
        assert svg is not None
        alt = svg.attrib["aria-label"]
        drawn = page.evaluate(
            "([json, width, alt]) => charts.draw(charts.load(json), width, alt).html",
            [root.attrib["data-plot"], width, alt],
        )
        mine = sorted(map(str, shapes(ET.tostring(svg, encoding="unicode").replace("\n", ""))))
        assert sorted(map(str, shapes(unescape(drawn) if "&" not in alt else drawn))) == mine, title


def test_hovering_shows_values_and_the_crosshair_of_all_charts_with_that_axis(page: "Page") -> None:
    page.mouse.move(*at(page, "requests", 0.5))
    tip = page.locator(".tip")
    assert re.fullmatch(r"time\s+(49|50)[.\d]* s\s+requests\s+2\d\s+errors\s+\d", tip.inner_text())
    assert of(page, "requests").locator(".cross").count() == 1
    assert of(page, "p50, max").locator(".cross").count() == 1
    assert of(page, "p50, max").locator(".keys output").first.inner_text().endswith("ms")
    assert of(page, "Share by time").locator(".cross").count() == 0
    page.mouse.move(1, 1)
    assert not tip.is_visible()
    assert of(page, "p50, max").locator(".cross").count() == 0


def alert(page: "Page") -> tuple[float, float]:
    """Where the point of run r29 is, which is an alert."""
    area = of(page, "step_time").locator(".plot")
    area.scroll_into_view_if_needed()
    box = area.locator("path.big").evaluate(
        "(e) => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }"
    )
    return box[0], box[1]


def test_a_click_on_a_point_goes_to_its_run(page: "Page") -> None:
    place = alert(page)
    page.mouse.move(*place)
    assert "run r29" in page.locator(".tip").inner_text()
    page.mouse.click(*place)
    page.wait_for_url("**/charts.html#r29")


def test_the_first_tap_on_a_point_reads_it_and_the_second_opens_it(browser: "Browser", file: Path) -> None:
    for page in watched(browser, {"viewport": {"width": 390, "height": 844}, "has_touch": True}):
        page.goto(file.as_uri())
        of(page, "step_time").locator(".hover").wait_for(state="attached")
        page.touchscreen.tap(*alert(page))
        assert "run r29" in page.locator(".tip").inner_text()
        assert "#" not in page.url
        page.touchscreen.tap(*alert(page))
        page.wait_for_url("**/charts.html#r29")


def test_a_drag_zooms_every_chart_of_the_axis_and_a_double_click_resets(page: "Page") -> None:
    before = ticks(page, "requests")
    page.mouse.move(*at(page, "requests", 0.4))
    page.mouse.down()
    page.mouse.move(*at(page, "requests", 0.5), steps=3)
    assert of(page, "requests").locator(".drag").count() == 1
    page.mouse.up()
    zoomed = ticks(page, "requests")
    assert zoomed == ticks(page, "p50, max")
    assert all(38 <= float(text.removesuffix(" s")) <= 52 for text in zoomed)
    page.mouse.dblclick(*at(page, "p50, max", 0.5))
    assert ticks(page, "requests") == before
    page.mouse.move(*at(page, "requests", 0.4))
    page.mouse.down()
    page.mouse.move(*at(page, "requests", 0.6), steps=3)
    page.mouse.up()
    of(page, "requests").get_by_role("button", name="Reset zoom").click()
    assert ticks(page, "requests") == before
    assert not of(page, "requests").get_by_role("button", name="Reset zoom").is_visible()


def test_the_legend_hides_curves_but_not_the_last_one(page: "Page") -> None:
    figure = of(page, "p50, max")
    high = figure.locator(".plot text[text-anchor=end]").all_text_contents()
    figure.get_by_role("button", name="max").click()
    assert figure.get_by_role("button", name="max").get_attribute("aria-pressed") == "false"
    assert figure.locator("path.line").count() == 1
    assert figure.locator(".plot text[text-anchor=end]").all_text_contents() != high
    figure.get_by_role("button", name="p50").click()
    assert figure.locator("path.line").count() == 1
    figure.get_by_role("button", name="max").click()
    assert figure.locator("path.line").count() == 2


def test_an_axis_switches_between_log_and_linear(page: "Page") -> None:
    figure = of(page, "Share by time")
    button = figure.get_by_role("button", name="Log")
    assert (button.get_attribute("aria-pressed"), ticks(page, "Share by time")) == (
        "true",
        ["100 µs", "1 ms", "10 ms", "100 ms"],
    )
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert ticks(page, "Share by time")[:2] == ["50 ms", "100 ms"]


def test_the_keyboard_reads_points_zooms_and_opens(page: "Page") -> None:
    of(page, "step_time").locator(".plot").focus()
    page.keyboard.press("End")
    tip = page.locator(".tip")
    assert "run r59" in tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "run r58" in tip.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/charts.html#r58")
    before = ticks(page, "step_time")
    page.keyboard.press("+")
    assert ticks(page, "step_time") != before
    page.keyboard.press("Escape")
    assert ticks(page, "step_time") == before
    assert not tip.is_visible()
    of(page, "Quantiles").locator(".plot").focus()
    page.keyboard.press("ArrowDown")
    assert tip.inner_text().split() == ["ttft", "p50", "1", "ms"]


def test_bars_lanes_and_fields_are_read_where_the_pointer_is(page: "Page") -> None:
    for title, kind, text in (("Phases", "lane", "load"), ("Hosts", "lane", "host 0: ")):
        figure = of(page, title)
        figure.scroll_into_view_if_needed()
        box = figure.locator(f"rect.{kind}").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert text in page.locator(".tip").inner_text()


def test_every_chart_has_a_table_whether_it_was_baked_or_not(page: "Page") -> None:
    for title, plot in plots().items():
        figure = of(page, title)
        figure.locator("summary").click()
        figure.locator(".data table").wait_for(state="attached")
        assert figure.locator(".data tbody tr").count() == sum(min(len(one.points), 201) for one in plot.curves), title


def test_a_chart_follows_the_width_of_its_page_without_stretching(page: "Page") -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    until(page, "document.querySelector('.plot svg').clientWidth < 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sizes = "Array.from(document.querySelectorAll('.plot > svg'), e => [e.clientWidth, e.viewBox.baseVal.width])"
    assert all(abs(wide - own) <= 1 for wide, own in page.evaluate(sizes))
    assert "preserveAspectRatio" not in page.content()


def test_charts_are_there_without_scripts_and_on_paper(browser: "Browser", file: Path) -> None:
    page = new_page(browser, java_script_enabled=False, viewport={"width": 390, "height": 800})
    page.goto(file.as_uri())
    page.emulate_media(media="print")
    assert page.locator(".plot > svg").count() == (len(plots()) + 1) // 2
    assert "60 s" in ticks(page, "requests")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_axe_finds_nothing(browser: "Browser", file: Path, width: int) -> None:
    for page in watched(browser, {"viewport": {"width": width, "height": 700}, "bypass_csp": True}):
        page.goto(file.as_uri())
        page.wait_for_selector(".hover", state="attached")
        for title in ("requests", "p50, max", "step_time", "Quantiles"):
            of(page, title).locator("summary").click()
        page.mouse.move(*at(page, "requests", 0.5))
        assert violations(page) == []
