"""The neutral job, its lifecycle, observations and results. Data only; imports no other package of Seatrial."""

from seatrial.job.accelerators import NEAR, GpuProduct, all_products, is_gpu_model, products_of, tpu_labels
from seatrial.job.causes import HEADLINE_CHARACTERS, cause_id, causes_by_cell, headline_of_cell, normalised
from seatrial.job.conditions import FieldDifference, Settings, differences, differences_text, fields_digest, flat_fields
from seatrial.job.hosts import COUNTED, merged
from seatrial.job.lifecycle import Event, Exit, Outcome, Place, Stage, StageTime
from seatrial.job.metric import (
    IN_SHORT,
    METRICS,
    Better,
    Bound,
    BoundState,
    Level,
    Metric,
    RecentRun,
    flatten_metrics,
    pair_text,
    value_text,
)
from seatrial.job.observation import (
    ERROR_PATTERN,
    LogError,
    Observation,
    ObservedStep,
    Recorded,
    Records,
    Sample,
    Unkept,
    read_records,
)
from seatrial.job.reading import Unreadable, convert, decode, lines, opened_regular, read_json, read_regular
from seatrial.job.results import (
    VERSION,
    AnyChart,
    AttemptResult,
    Cause,
    CauseNews,
    CellNews,
    CellResult,
    Change,
    Chart,
    Contents,
    DiffToken,
    Distribution,
    Excluded,
    History,
    Moment,
    PartResult,
    RunResults,
    Series,
    SkippedItem,
    Table,
    Text,
    Tile,
    Timeline,
    TokenDiff,
    TokenDifference,
)
from seatrial.job.spec import (
    PEER,
    SECRET_FILE,
    Accelerator,
    Environment,
    Gpu,
    Input,
    Job,
    JobSpec,
    Limits,
    Part,
    PartSpec,
    Peer,
    Port,
    Ready,
    Resources,
    Step,
    Tpu,
)
from seatrial.job.units import count, table_axes, unit_factor
from seatrial.job.verdict import CELLS_WORST_FIRST, EXIT_CODES, ExitCode, Finding, Verdict, worst, worst_cell
