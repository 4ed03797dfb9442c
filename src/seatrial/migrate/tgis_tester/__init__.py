"""Reads and checks tgis-tester's configuration, and creates a suite from it."""

from seatrial.migrate.tgis_tester.config import TesterFile, read_tester_config
from seatrial.migrate.tgis_tester.suite import suite_from_tester
