"""The neutral job, its lifecycle and what was observed of it. Data only; imports nothing of Seatrial."""

from seatrial.job.lifecycle import Event, Exit, Outcome, Place, Stage, StageTime
from seatrial.job.mask import MASK, Mask
from seatrial.job.observation import Observation, Sample, StepSeen, read_records
from seatrial.job.results import VERSION, Attempt, CellResult, Hole, RunResults
from seatrial.job.spec import Environment, Gpu, Input, Job, Limits, Resources, Step
from seatrial.job.verdict import Finding, Verdict, worst

__all__ = [
    "MASK",
    "VERSION",
    "Attempt",
    "CellResult",
    "Environment",
    "Event",
    "Exit",
    "Finding",
    "Gpu",
    "Hole",
    "Input",
    "Job",
    "Limits",
    "Mask",
    "Observation",
    "Outcome",
    "Place",
    "Resources",
    "RunResults",
    "Sample",
    "Stage",
    "StageTime",
    "Step",
    "StepSeen",
    "Verdict",
    "read_records",
    "worst",
]
