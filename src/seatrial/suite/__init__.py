"""The suite that a user writes: its models, its loading with every error at its place, its JSON Schema."""

from seatrial.suite.cell import Cell
from seatrial.suite.chosen_target import choose_target, restore_chosen_target
from seatrial.suite.conditions import settings_of
from seatrial.suite.glob import find_notebooks, glob_matches, names_several
from seatrial.suite.load import from_data, load
from seatrial.suite.models import (
    DeclaredFigure,
    Env,
    EnvValue,
    Exclude,
    GpuEntry,
    Machine,
    Model,
    Notebook,
    Notebooks,
    Requires,
    Runtime,
    SecretRef,
    SecretSource,
    Timeout,
    TrialModel,
    Workspace,
    Xfail,
)
from seatrial.suite.rule import compile_rule
from seatrial.suite.schema import suite_schema
from seatrial.suite.substitute import fill, has_placeholder, substitute
from seatrial.suite.suite import HERE, LOCAL, Axis, AxisValue, BaselineFile, ChosenTarget, Group, Suite, TargetEntry
from seatrial.suite.values import Duration, Money, Need, Requirement, Size, Text
from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError, nearest
