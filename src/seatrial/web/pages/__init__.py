"""The pages, each a function of the site and the parts of its URL. They read files and the history."""

from collections.abc import Callable

from seatrial.web.pages.home import home, home_parts, search
from seatrial.web.pages.metric import difference, metric_page, review
from seatrial.web.pages.run import beside_log, live_parts, log, piece, run
from seatrial.web.pages.suite import cell, suite
from seatrial.web.render import Page

ROUTES: dict[str, Callable[..., Page]] = {
    "/": home,
    "/search": search,
    "/r/{name}": run,
    "/r/{name}/piece/{key:.+}": piece,
    "/s/{name}": suite,
    "/c/{suite}/{name}": cell,
    "/f/{benchmark}/{metric}": metric_page,
    "/d/{names}": difference,
    "/log/{run}/{hash_}/{attempt}": log,
}
