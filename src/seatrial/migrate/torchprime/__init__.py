"""Creates suites from torchprime's files: the bounds of its benchmarks, and the workflows that run and check them."""

from seatrial.migrate.torchprime.suite import suite_from_torchprime
from seatrial.migrate.torchprime.workflow import read_workflow
