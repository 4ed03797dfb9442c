"""`seatrial schema`: prints the JSON Schema of suites, for editors."""

import json

import click

from seatrial import plugins
from seatrial.suite import suite_schema


@click.command()
def command() -> None:
    """Print the JSON Schema of suites, including installed kinds and targets.

    \b
    seatrial schema > suite.schema.json
    and at the top of a suite:   # yaml-language-server: $schema=suite.schema.json
    """
    click.echo(json.dumps(suite_schema(*plugins.models()), indent=2, ensure_ascii=False))
