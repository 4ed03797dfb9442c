"""`seatrial doctor`: what of the targets is reachable and allowed, and what to do about the rest."""

import asyncio
from pathlib import Path

import click

from seatrial.cli.common import loaded, print_json
from seatrial.engine.verify import Examined, available_targets, chosen_targets, examine
from seatrial.job import ExitCode
from seatrial.report.view.words import one_line

_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("suite", required=False, type=click.Path(path_type=Path))
@click.option("--target", metavar="T", help="Only this one: of the suite, a kind, kind:key=value,… or a YAML file.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(suite: Path | None, target: str | None, as_json: bool) -> None:
    """Examine the targets of SUITE, or this machine and the cluster that kubectl would use. Exit code 3: a problem."""
    nothing_named = suite is None and target is None
    wanted = available_targets() if nothing_named else chosen_targets(loaded(suite) if suite else None, target)
    found = asyncio.run(examine(wanted))
    sound = all(one.sound for one in found)
    print_json({"sound": sound, "targets": found}) if as_json else _print(found)
    if not sound:
        raise SystemExit(ExitCode.INFRA)


def _print(found: list[Examined]) -> None:
    for one in found:
        click.secho(f"{one_line(one.target)} ({one.kind})", bold=True)
        width = max((len(one_line(diagnostic.what)) for diagnostic in one.diagnostics), default=0)
        for diagnostic in one.diagnostics:
            level = click.style(f"{diagnostic.level:<7}", fg=_COLORS[diagnostic.level])
            click.echo(f"  {level}  {one_line(diagnostic.what):<{width}}  {one_line(diagnostic.why)}".rstrip())
            for line in diagnostic.fix.splitlines():
                # With its indent, for it may be YAML; without what moves a cursor.
                kept = "".join(character if character.isprintable() else "?" for character in line)
                click.echo(f"           {' ' * bool(line)}{kept}")
        click.echo()
    problems = sum(not one.sound for one in found)
    warnings = sum(diagnostic.level == "warning" for one in found for diagnostic in one.diagnostics)
    if problems:
        which = "the target" if len(found) == 1 else f"{problems} of {len(found)} targets"
        click.echo(f"{which} cannot run jobs now; what to do is listed above")
    else:
        each = "the target is" if len(found) == 1 else f"all {len(found)} targets are"
        click.echo(f"{each} fit for jobs" + (f", with {warnings} warning{'s' * (warnings > 1)}" if warnings else ""))
