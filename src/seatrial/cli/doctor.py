"""`seatrial doctor`: checks targets and shows how to fix problems."""

import asyncio
import os
from pathlib import Path

import click

from seatrial.cli.common import loaded, print_json
from seatrial.engine.verify import STORAGE, Examined, available_targets, chosen_targets, examine, examine_storage
from seatrial.job import ExitCode
from seatrial.report.view.words import one_line

_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.argument("suite", required=False, type=click.Path(path_type=Path))
@click.option("--target", metavar="T", help="Only this target: a name in the suite, kind, kind:key=value,… or file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(suite: Path | None, target: str | None, as_json: bool) -> None:
    """Check the targets of SUITE; without SUITE, this machine and kubectl's current cluster. Exits 3 on a problem."""
    nothing_named = suite is None and target is None
    read = loaded(suite) if suite else None
    wanted = available_targets() if nothing_named else chosen_targets(read, target)
    urls = [url for trial in (read.trials.values() if read else ()) for url in trial.storage()]
    found = asyncio.run(examine(wanted)) + examine_storage([*urls, os.environ.get("SEATRIAL_OUT", "")])
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
                # Keep the indent, because it may be YAML; replace control characters.
                kept = "".join(character if character.isprintable() else "?" for character in line)
                click.echo(f"           {' ' * bool(line)}{kept}")
        click.echo()
    targets = [one for one in found if one.target != STORAGE]
    problems = sum(not one.sound for one in targets)
    warnings = sum(diagnostic.level == "warning" for one in found for diagnostic in one.diagnostics)
    if problems:
        which = "the target" if len(targets) == 1 else f"{problems} of {len(targets)} targets"
        click.echo(f"{which} cannot run jobs; see the fixes above")
    elif not all(one.sound for one in found):
        click.echo("storage cannot be used; see the fixes above")
    else:
        each = "target" if len(targets) == 1 else f"{len(targets)} targets"
        click.echo(f"{each} ready" + (f" ({warnings} warning{'s' * (warnings > 1)})" if warnings else ""))
