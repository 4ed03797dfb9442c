"""Names and texts in the form in which every database can keep them."""

import hashlib

MOST_KEY_BYTES = 600  # an index of PostgreSQL takes rows of up to 2,700
_MOST_TEXT = 100_000


def text(value: str, most: int = _MOST_TEXT) -> str:
    """What every database can keep: no NUL, no half of a surrogate pair, not without end."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    value = value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value
    return value if len(value) <= most else f"{value[:most]}… ({len(value) - most:,} characters left out)"


def key(value: str) -> str:
    """A text that an index is over: a very long one is cut, with a digest of the whole so that two never meet."""
    value = text(value, len(value))
    whole = value.encode()
    if len(whole) <= MOST_KEY_BYTES:
        return value
    digest = hashlib.blake2b(whole, digest_size=8).hexdigest()
    return f"{whole[: MOST_KEY_BYTES - 32].decode(errors='ignore')}…{digest}"


def series_id(benchmark: str, fingerprint: str, metric: str, unit: str) -> int:
    """The number of a series, the same in every database: nobody has to ask for it before adding to it."""
    return _number(benchmark, fingerprint, metric, unit)


def cell_number(suite: str, name: str) -> int:
    """The number of a cell of a suite, whatever its content is; `name` is its id without the axis `repeat`."""
    return _number(key(suite), key(name))


def _number(*parts: str) -> int:
    lengths = ",".join(str(len(part)) for part in parts)
    digest = hashlib.blake2b("\0".join((lengths, *parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
