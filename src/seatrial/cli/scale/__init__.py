"""`seatrial scale`: Run:ai's scale test tool with its flags and files, and commands to clean up and to merge trials."""

import click

from seatrial.cli import CommandGroup
from seatrial.cli.scale.merge import merge
from seatrial.cli.scale.sample import plot, sample
from seatrial.cli.scale.submit import clean, submit


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Submit many Run:ai workloads, sample their progress and plot their times.

    `submit`, `sample` and `plot` use the flags and files of submitter.py, sampler.py and plotter.py. Trials of kind
    `scale` measure more precisely, check bounds and clean up by themselves (docs/scale.md); `merge` is for them.
    """


for one in (submit, sample, plot, clean, merge):
    command.add_command(one)
