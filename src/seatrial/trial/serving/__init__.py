"""Does this model server, in this configuration, answer right, and fast? Its model, its parts and their judgement."""

from seatrial.trial.serving.kind import ServingKind, kind
