"""Completion in bash. click's own completes nothing in a word with `=` or `:`, where bash splits words."""

import os
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string


class _Bash(BashComplete):
    """Gets the whole line from bash, and also the part of the last word that bash replaces."""

    source_template = BashComplete.source_template.replace(
        "env ", 'env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" ', 1
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)
        return words[1:] if line[-1:].isspace() else words[1:-1], "" if line[-1:].isspace() else words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        typed = self.get_completion_args()[1]
        value = typed.partition("=")[2] if typed.startswith("--") else typed
        kept = value.removesuffix(os.environ.get("COMP_WORD", value).lstrip("\"'"))
        return f"{item.type},{item.value.removeprefix(kept)}"


def enable() -> None:
    add_completion_class(_Bash)
