"""When a server is asked again, and how long to wait before: pure but for the clock."""

import random
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

from seatrial.kubernetes.errors import ApiError

PATIENCE_S = 60.0  # how long one request goes on trying
FIRST_DELAY_S, MOST_DELAY_S = 0.1, 10.0
FAILED_TRIES = 4  # of a 5xx that does not say when to come back
STARTING_TRIES = 6


def delay_after_refusal_s(
    refused: ApiError, headers: Mapping[str, str], attempt: int, until: float, repeatable: bool
) -> float:
    """How long to wait before asking again; raises when that would not help."""
    said = retry_after_s(headers)
    comes_back = (
        refused.code == 429
        or (refused.code >= 500 and (said is not None or (repeatable and attempt < FAILED_TRIES)))
        or (_is_starting(refused) and attempt < STARTING_TRIES)
    )
    delay = backoff_s(attempt) if said is None else said + random.uniform(0, FIRST_DELAY_S)
    if not comes_back or time.monotonic() + delay > until:
        raise refused
    return delay


def _is_starting(refused: ApiError) -> bool:
    """A server that has not read all its roles yet refuses, and names roles that it cannot find."""
    return refused.code == 403 and "RBAC:" in refused.message and "not found" in refused.message


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds or as a date."""
    value = headers.get("retry-after")
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), PATIENCE_S)
    with suppress(ValueError, TypeError):
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - time.time()), PATIENCE_S)
    return None


def backoff_s(attempt: int) -> float:
    """Doubling, with jitter, so that many clients do not come back as one."""
    most = min(MOST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempt - 1, 20))
    return random.uniform(most / 2, most)
