"""The command line. Each command's module is imported only when called, to keep `seatrial --help` fast."""

import importlib
import keyword
import os
from typing import Any

import click

from seatrial import SeatrialError, __version__

GROUPS = {
    "Write and run a suite": {
        "init": "Create a starter suite for this machine.",
        "plan": "Show what would run, what is excluded and why, and the cost.",
        "run": "Run a suite.",
        "doctor": "Check targets and show how to fix problems.",
    },
    "Runs": {
        "runs": "List runs.",
        "logs": "Show a run's logs, even while it is in progress.",
        "attach": "Watch a run in progress, or resume an interrupted one.",
        "cancel": "Stop a run started on this machine.",
        "reap": "Delete leftover jobs of runs.",
    },
    "Results": {
        "report": "Show a run: terminal, HTML, JUnit, JSON, Markdown.",
        "compare": "Compare two runs: what changed, by how much, how certain.",
        "history": "Show past results: verdicts, metrics with bounds and level changes, alerts.",
        "serve": "Serve the dashboard: live runs, suites and metrics over time.",
    },
    "Expected values": {
        "baseline": "Show and change the bounds of metrics.",
        "record": "Record a trusted model server's answers as expected answers.",
        "calibrate": "Measure the normal variation of a trusted model server's answers.",
    },
    "Other tools": {
        "check": "Check a training job or a load that ran elsewhere by its files.",
        "import": "Create a suite from another tool's file.",
        "scale": "Submit, sample and plot workloads with the flags and files of Run:ai's scale test tool.",
        "schema": "Print the JSON Schema of suites, for editors.",
    },
}
COMMANDS = {name: help_text for commands in GROUPS.values() for name, help_text in commands.items()}

# Commands defined in another command's module.
BESIDE = {
    "calibrate": ("record", "calibrate_command"),
    "cancel": ("attach", "cancel_command"),
    "reap": ("runs", "reap_command"),
    "schema": ("init", "schema_command"),
}


class CommandGroup(click.Group):
    """A group that suggests the nearest command for an unknown one."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(context)
        if args and args[0] not in known and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
            raise click.UsageError(f"unknown command '{args[0]}'; {hint}", context)
        return super().resolve_command(context, args)


class LazyGroup(CommandGroup):
    """Knows its commands by name and one line each; imports a command's module when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = BESIDE.get(name, (f"{name}_" if keyword.iskeyword(name) else name, "command"))
        command: click.Command = getattr(importlib.import_module(f"seatrial.cli.{module}"), attribute)
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        """Like click's own, but Ctrl-C always exits 130, and bash can complete `axis=value`."""
        if "_SEATRIAL_COMPLETE" in os.environ:
            from seatrial.cli import completion

            completion.enable()
        try:
            return super().main(*args, **{**options, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            raise SystemExit(error.exit_code) from None
        except click.Abort:
            click.echo("seatrial: interrupted", err=True)
            raise SystemExit(130) from None
        except SeatrialError as error:
            from seatrial.cli.common import fail_with

            fail_with(error)
        except OSError as error:  # for example a full disk
            click.echo(f"seatrial: {error}", err=True)
            raise SystemExit(3) from None
        except RuntimeError as error:
            from seatrial.engine import thread_limit

            if not thread_limit(error):
                raise
            click.echo(f"seatrial: {thread_limit(error)}", err=True)
            raise SystemExit(3) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=12)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seatrial")
def main() -> None:
    """Seatrial tests AI compute: it runs the same checks on every valid combination of runtime, machine, model and
    configuration, and gives a verdict for each.

    \b
    seatrial init             create a suite for this machine
    seatrial plan SUITE       show what would run, what is excluded and why
    seatrial run SUITE        run it
    """
