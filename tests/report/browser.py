"""A real Chromium for tests and pictures: Debian's, driven by Playwright, which downloads none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
PATIENCE_MS = 600_000  # for what must come; a machine that is busy may take its time


@contextmanager
def chromium() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: "Browser", **options: Any) -> "Page":
    """A page in a context of its own, which waits for what must come as long as it takes."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


def until(page: "Page", expression: str, arg: object = None) -> None:
    """Waits until the expression is true. Unlike `wait_for_function` it works under a policy that forbids `eval`."""
    while not page.evaluate(expression, arg):
        page.wait_for_timeout(50)
