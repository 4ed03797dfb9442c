"""The neutral job, its lifecycle and what was observed of it. Data only; imports nothing of Seatrial."""

from seatrial.job.bound import Better, Bound, BoundState, Level
from seatrial.job.exhibit import Exhibit
from seatrial.job.figure import FIGURES, Figure, figure_text, figures
from seatrial.job.hosts import COUNTED, merged
from seatrial.job.lifecycle import Event, Exit, Outcome, Place, Stage, StageTime
from seatrial.job.observation import LogError, Observation, ObservedStep, Records, Sample, read_records
from seatrial.job.reading import Unreadable, convert, decode, lines, opened_regular, read_json, read_regular
from seatrial.job.results import (
    VERSION,
    AttemptResult,
    Cause,
    CellResult,
    Contents,
    Hole,
    PartResult,
    RunResults,
    SkippedItem,
)
from seatrial.job.settings import (
    FieldDifference,
    Settings,
    differences,
    differences_text,
    fields_digest,
    flat_fields,
    other_conditions,
)
from seatrial.job.spec import PEER, Environment, Gpu, Input, Job, Limits, Part, Peer, Port, Ready, Resources, Step
from seatrial.job.table import count, table_axes
from seatrial.job.units import unit_factor
from seatrial.job.verdict import CELLS_WORST_FIRST, EXIT_CODES, ExitCode, Finding, Verdict, worst, worst_cell

__all__ = [
    "CELLS_WORST_FIRST",
    "COUNTED",
    "EXIT_CODES",
    "FIGURES",
    "PEER",
    "VERSION",
    "AttemptResult",
    "Better",
    "Bound",
    "BoundState",
    "Cause",
    "CellResult",
    "Contents",
    "Environment",
    "Event",
    "Exhibit",
    "Exit",
    "ExitCode",
    "FieldDifference",
    "Figure",
    "Finding",
    "Gpu",
    "Hole",
    "Input",
    "Job",
    "Level",
    "Limits",
    "LogError",
    "Observation",
    "ObservedStep",
    "Outcome",
    "Part",
    "PartResult",
    "Peer",
    "Place",
    "Port",
    "Ready",
    "Records",
    "Resources",
    "RunResults",
    "Sample",
    "Settings",
    "SkippedItem",
    "Stage",
    "StageTime",
    "Step",
    "Unreadable",
    "Verdict",
    "convert",
    "count",
    "decode",
    "differences",
    "differences_text",
    "fields_digest",
    "figure_text",
    "figures",
    "flat_fields",
    "lines",
    "merged",
    "opened_regular",
    "other_conditions",
    "read_json",
    "read_records",
    "read_regular",
    "table_axes",
    "unit_factor",
    "worst",
    "worst_cell",
]
