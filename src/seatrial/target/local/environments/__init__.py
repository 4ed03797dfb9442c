"""The environments of runtimes on this machine: built once, kept, compared and healed."""

from seatrial.target.local.environments.prepare import Environments, PreparedEnvironment, lay_over, layered
