"""Checks targets: before a run, whether they would accept its jobs; for `seatrial doctor`, whether they work."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from seatrial import SeatrialError, plugins
from seatrial.agent.masking.mask import Mask
from seatrial.engine.follow import Follower
from seatrial.job import Outcome, Part, PartSpec
from seatrial.record import RecordError
from seatrial.record.remote import check_backend, is_address
from seatrial.suite import HERE, LOCAL, Cell, Suite, TargetEntry, choose_target
from seatrial.targets import Diagnostic, DiagnosticLevel, TargetError
from seatrial.targets.protocol import ok, problem

_AT_ONCE = 8
_MOST_SHOWN = 5


class RunRefused(SeatrialError):
    """The run cannot start: a target would never accept some of its jobs, or a secret is missing or would be stored.
    Nothing was run; trying again cannot help."""


def shapes(cells: Iterable[tuple[Cell, PartSpec]]) -> list[tuple[Cell, PartSpec]]:
    """The first part for each target, machine, environment, part name and number of hosts; the others are alike."""
    first: dict[tuple[object, ...], tuple[Cell, PartSpec]] = {}
    for cell, part in cells:
        shape = part.target, cell.machine_name, part.name, part.job.environment, part.job.hosts
        first.setdefault(shape, (cell, part))
    return list(first.values())


async def verify(
    wanted: Iterable[tuple[Cell, Part]], follower: Callable[[str], Awaitable[Follower]], mask: Mask
) -> None:
    """Raises RunRefused with all refused jobs, TargetError if a target could not be reached."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def asked(cell: Cell, part: Part) -> tuple[str, TargetError] | None:
        what = f"target {part.target} rejects {cell.id}"
        async with turn:
            try:
                await (await follower(part.target)).target.verify(part.job)
                if part.uses:
                    what = f"{cell.id} needs target {part.uses}"
                    await follower(part.uses)  # only that it can be reached is known in advance
            except TargetError as error:
                return what, error
        return None

    problems = [one for one in await asyncio.gather(*(asked(*one) for one in wanted)) if one is not None]
    refused = [f"{what}: {mask.text(str(error))}" for what, error in problems if error.outcome is Outcome.REFUSED]
    if refused:
        more = [f"and {len(refused) - _MOST_SHOWN} more"] if len(refused) > _MOST_SHOWN else []
        raise RunRefused("\n".join([*refused[:_MOST_SHOWN], *more, "nothing was run"]))
    if problems:
        raise problems[0][1]


_PATIENCE_S = 120.0  # limit for one target; each has shorter limits of its own


class Examined(msgspec.Struct, frozen=True):
    """One target, in the form of `seatrial doctor --json`."""

    target: str
    kind: str
    diagnostics: list[Diagnostic] = msgspec.field(name="remarks")

    @property
    def sound(self) -> bool:
        return all(diagnostic.level is not DiagnosticLevel.PROBLEM for diagnostic in self.diagnostics)


def chosen_targets(suite: Suite | None, chosen: str | None) -> dict[str, TargetEntry]:
    """Targets by name: the `chosen` one (raises SuiteError), else those of the suite, else this machine."""
    known = suite.targets if suite is not None else {HERE: _entry(LOCAL)}
    if chosen is None:
        return dict(known)
    moved = choose_target(chosen, known, plugins.models()[1])
    return {moved.name: moved.entry}


def available_targets() -> dict[str, TargetEntry]:
    """The targets to check without a suite: this machine, and kubectl's current cluster."""
    others = [name for name, kind in plugins.targets().items() if name != LOCAL and kind.is_available()]
    return {HERE: _entry(LOCAL)} | {name: _entry(name) for name in others}


def _entry(kind: str) -> TargetEntry:
    return TargetEntry(kind, plugins.targets()[kind].options())


STORAGE = "storage"


def examine_storage(urls: Iterable[str]) -> list[Examined]:
    """Whether this machine has the packages for the URLs, as one entry; nothing if there is no URL. Contacts none."""
    found = []
    for url in dict.fromkeys(url for url in urls if is_address(url) and "${" not in url.partition("://")[0]):
        try:
            check_backend(url)
            found.append(ok(url, "its package is installed"))
        except RecordError as error:
            found.append(problem(url, str(error)))
    return [Examined(STORAGE, "fsspec", found)] if found else []


async def examine(targets: dict[str, TargetEntry]) -> list[Examined]:
    return list(await asyncio.gather(*(_examined(name, entry) for name, entry in targets.items())))


async def _examined(name: str, entry: TargetEntry) -> Examined:
    """Never raises: a target that cannot be examined is a diagnostic, too."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            diagnostics = await plugins.targets()[entry.kind].open(name, entry.options).examine()
    except TimeoutError:
        why = "reachable", f"no answer within {_PATIENCE_S:g} s", "check that the target is up and reachable"
        diagnostics = [Diagnostic(DiagnosticLevel.PROBLEM, *why)]
    except Exception as error:  # noqa: BLE001
        text = f"check failed: {type(error).__name__}: {error}"
        diagnostics = [Diagnostic(DiagnosticLevel.PROBLEM, "examined", text)]
    return Examined(name, entry.kind, diagnostics)
