"""tgis-tester's own configuration: read, checked by rules, and made into a suite."""

from seatrial.migrate.tgis_tester.config import TesterFile, read_tester_config
from seatrial.migrate.tgis_tester.suite import suite_from_tester
