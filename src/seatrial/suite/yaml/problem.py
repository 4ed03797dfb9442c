"""What is wrong with a suite: every problem at once, each with its place, its line and the nearest known name."""

import difflib
from collections.abc import Iterable

import msgspec

_SHOWN = 50
_WIDTH = 120


class SourceMark(msgspec.Struct, frozen=True):
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str = ""  # of that line


class Problem(msgspec.Struct, frozen=True):
    message: str
    mark: SourceMark | None = None
    path: str = ""  # trials.generic.commands[0]; says where when there is no file
    chain: tuple[str, ...] = ()  # of includes, outermost first

    @property
    def where(self) -> str:
        if self.mark is None:
            return self.path or "suite"
        return f"{printable(self.mark.file)}:{self.mark.line}:{self.mark.column}"

    def __str__(self) -> str:
        lines = [f"{self.where}: {printable(self.message)}"]
        if self.mark is not None and self.mark.text.strip():
            lines += _excerpt(self.mark)
        lines += [f"  included by {printable(file)}" for file in reversed(self.chain)]
        return "\n".join(lines)


class SuiteError(Exception):
    """A suite that cannot be used, with all that is wrong with it, in the order of the files' lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=_order))
        super().__init__(self.problems)

    def __str__(self) -> str:
        shown = [str(problem) for problem in self.problems[:_SHOWN]]
        rest = len(self.problems) - len(shown)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n".join([*shown, f"and {rest} more"] if rest else shown) + f"\n{count}"


def _order(problem: Problem) -> tuple[bool, str, int, int]:
    mark = problem.mark
    return (mark is not None, mark.file, mark.line, mark.column) if mark else (False, problem.path, 0, 0)


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean 'x'?`, else what there is."""
    names = list(dict.fromkeys(known))
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(str(name).lower()[:100], list(folded), n=1, cutoff=0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    if not names:
        return "; there are none"
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"; known: {shown}"


def printable(text: str) -> str:
    """`text` with whatever could move a terminal's cursor written out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _excerpt(mark: SourceMark) -> list[str]:
    start = max(0, mark.column - 1 - _WIDTH // 2) if len(mark.text) > _WIDTH else 0
    text = mark.text[start : start + _WIDTH]
    split = max(0, mark.column - 1 - start)
    before, after = (printable(part.replace("\t", " ")) for part in (text[:split], text[split:]))
    return [f"{mark.line:>5} | {before}{after}", f"{'':>5} | {' ' * len(before)}^"]
