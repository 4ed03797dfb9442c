"""`seatrial scale`: the three commands of Run:ai's scale test tool, with its flags and its files, one that removes what
they made, and one that merges trials that ran side by side."""

import click

from seatrial.cli.scale.merge import merge
from seatrial.cli.scale.sample import plot, sample
from seatrial.cli.scale.submit import clean, submit


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Submit many workloads of Run:ai, sample how far they are, plot how long it took.

    They take the flags of submitter.py, sampler.py and plotter.py, and read and write their files. A trial of kind
    `scale` measures more exactly, judges by bounds and cleans up by itself: docs/scale.md. `merge` is for such trials.
    """


for one in (submit, sample, plot, clean, merge):
    command.add_command(one)
