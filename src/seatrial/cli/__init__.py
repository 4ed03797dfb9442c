"""The command line: one module a command, imported only when it is called, so that `seatrial --help` stays quick."""

import importlib
import keyword
from typing import Any

import click

from seatrial import SeatrialError, __version__

COMMANDS = {
    "init": "Write a suite that runs here as it is.",
    "plan": "Show what would run, what would not and why, and what it costs.",
    "run": "Run a suite.",
    "runs": "List the runs that are there.",
    "logs": "Show the logs of a run, live.",
    "attach": "Watch a run that goes on, or take up one whose process is gone and finish it.",
    "cancel": "Stop a run, wherever it was started on this machine.",
    "reap": "Remove what runs left behind, by its label alone.",
    "doctor": "Examine targets: what is reachable and allowed, and what to do about the rest.",
    "check": "Judge the log and the files of a training job that ran elsewhere.",
    "report": "Show a run: terminal, HTML, JUnit, JSON, Markdown.",
    "history": "Show past runs: what cells came to, metrics with their bounds and changes, alarms.",
    "serve": "Serve the dashboard: runs live, suites and metrics over time.",
    "compare": "Say what moved between two runs, by how much and how sure.",
    "baseline": "Show bounds, make them from the history, move or widen them, each change with its reason.",
    "record": "Write what a trusted model server answers as what is expected of others.",
    "calibrate": "Measure how far the answers of a trusted model server are apart when nothing is wrong.",
    "scale": "Submit, sample and plot workloads with the flags and files of Run:ai's scale test tool.",
    "import": "Make a suite from a file of another tool.",
    "schema": "Print the JSON Schema of suites, for editors.",
}


# The commands that share a module with another one.
BESIDE = {"cancel": ("attach", "cancel_command"), "reap": ("runs", "reap_command")}


class LazyGroup(click.Group):
    """Knows its commands by name and one line each; the module of a command is imported when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = BESIDE.get(name, (f"{name}_" if keyword.iskeyword(name) else name, "command"))
        command: click.Command = getattr(importlib.import_module(f"seatrial.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", context)
        return super().resolve_command(context, args)

    def main(self, *args: Any, **options: Any) -> Any:
        """As click's own, but Ctrl-C ends with 130 wherever it comes."""
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
        except OSError as error:  # a folder that cannot be made, a disk that is full
            click.echo(f"seatrial: {error}", err=True)
            raise SystemExit(3) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seatrial")
def main() -> None:
    """Seatrial proves AI compute before its users do: the same checks on every valid combination of runtime, machine,
    model and configuration, and a verdict for each.

    \b
    seatrial init             a suite that runs here as it is
    seatrial plan SUITE       what would run, and what would not and why
    seatrial run SUITE        run it
    """
