"""The kind `runtime`: does this runtime work on this machine?"""

from seatrial.trial.runtime.kind import RuntimeKind, kind
from seatrial.trial.runtime.model import RuntimeTrial
