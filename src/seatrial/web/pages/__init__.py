"""The pages, each a function of the site and what an address names; they read files and the history."""

from seatrial.web.pages.cell import cell
from seatrial.web.pages.difference import difference
from seatrial.web.pages.figure import figure
from seatrial.web.pages.home import home, home_parts
from seatrial.web.pages.log import beside_log, log
from seatrial.web.pages.run import live_parts, piece, run
from seatrial.web.pages.suite import suite
