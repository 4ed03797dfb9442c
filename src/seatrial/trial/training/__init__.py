"""The kind `training`: does this training job finish, and as fast as before?"""

from seatrial.trial.training.kind import TrainingKind, kind
from seatrial.trial.training.model import TrainingTrial
