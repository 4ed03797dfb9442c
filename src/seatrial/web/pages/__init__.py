"""The pages, each a function of the site and the parts of its URL. They read files and the history."""

from seatrial.web.pages.home import home, home_parts
from seatrial.web.pages.metric import difference, metric_page
from seatrial.web.pages.run import beside_log, live_parts, log, piece, run
from seatrial.web.pages.suite import cell, suite
