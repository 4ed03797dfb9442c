"""The one error of the history, and how its place is written where others can read it."""

from urllib.parse import parse_qsl, urlencode

HIDDEN = "***"


class HistoryError(Exception):
    """The history at `place` cannot be used; `reason` says why, `advice` what to do. No result is lost by it."""

    def __init__(self, place: str, reason: str, advice: str) -> None:
        super().__init__(f"history {place}: {reason.strip().rstrip('.')}. {advice}")
        self.place = place
        self.reason = reason
        self.advice = advice


def place_text(place: str) -> str:
    """The place as it may be shown: a URL without its password."""
    if "://" not in place:
        return place
    scheme, _, rest = place.partition("://")
    # Up to the last @: a password with a / or an @ in it that was not written as %2F or %40 is hidden, too.
    account, at, server = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    server, question, query = server.partition("?")
    try:
        pairs = [(name, HIDDEN if "pass" in name.lower() else value) for name, value in parse_qsl(query)]
    except ValueError:
        pairs = []
    shown = urlencode(pairs, safe="*/")
    return f"{scheme}://{user}{colon}{HIDDEN if colon else ''}{at}{server}{question}{shown}"
