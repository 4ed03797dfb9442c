"""tgis-tester's own configuration: read, checked by rules, and made into a suite."""

from seatrial.suite.tgis_tester.config import TesterFile, read_tester_config
from seatrial.suite.tgis_tester.write import suite_from_tester
