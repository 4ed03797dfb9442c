"""The driver of scale trials: makes workloads on a cluster at the times that were asked for, follows every stage of
their life, and says what it saw of all of them."""

from seatrial.drive.scale.drive import drive
