"""The suite that a user writes: its models, loading with file:line:column errors, and its JSON Schema."""

from seatrial.suite.axes import compile_rule
from seatrial.suite.conditions import settings_of
from seatrial.suite.load import from_data, load
from seatrial.suite.models import (
    Env,
    EnvValue,
    Machine,
    Model,
    Notebook,
    Notebooks,
    Runtime,
    SecretRef,
    SecretSource,
    Workspace,
)
from seatrial.suite.overrides import choose_target
from seatrial.suite.placeholders import Fill, has_placeholder
from seatrial.suite.schema import suite_schema
from seatrial.suite.suite import HERE, LOCAL, Axis, AxisValue, BaselineFile, Group, RunSuite, Suite, TargetEntry
from seatrial.suite.trial import Cell, DeclaredMetric, Gathered, TrialModel, Xfail
from seatrial.suite.values import Duration, Requirement, Text, find_notebooks, glob_matches, names_several
from seatrial.suite.yaml.problem import Problem, SourceMark, SuiteError, nearest
