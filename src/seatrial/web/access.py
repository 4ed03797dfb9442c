"""Who may ask the dashboard: the Host that a request names, and the token where one is needed.

1. On a loopback address no token is needed, but a page of another site must not reach us by a name that it lets point
   here (DNS rebinding): the Host of every request is one of ours.
2. On any other address a token is needed, in each request: `Authorization: Bearer TOKEN`, or as the password of
   `Authorization: Basic`, which browsers ask for by themselves. No cookie: what other sites send carries no token.
3. A token is compared in a time that does not depend on how much of it is right.
"""

import base64
import binascii
import errno
import hmac
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from seatrial.record import RunFolder

TOKEN_VARIABLE = "SEATRIAL_SERVE_TOKEN"
LEAST_TOKEN = 16  # characters
MOST_TOKEN_BYTES = 4096  # of a file


class CannotServe(Exception):
    """The dashboard cannot be served as it was asked for, and what to do about it."""


@dataclass(frozen=True)
class WebAccess:
    host: str  # that is listened on
    token: str = ""
    names: frozenset[str] = frozenset()  # further names that requests may use, of a proxy for one

    @classmethod
    def of(cls, host: str, token: str = "", names: Iterable[str] = ()) -> "WebAccess":
        """Raises CannotServe where everybody on a network could read what is served."""
        if token and len(token) < LEAST_TOKEN:
            raise CannotServe(f"the token has {len(token)} characters, and needs at least {LEAST_TOKEN}")
        if not token and not is_loopback(host):
            raise CannotServe(
                f"{host} can be reached from other machines, so a token is needed: set {TOKEN_VARIABLE}, or write one "
                "to a file and name it with --token-file (`openssl rand -hex 32 > token`)"
            )
        return cls(host, token, frozenset(name.lower() for name in names))

    def knows_host(self, header: str | None) -> bool:
        """Whether a request with this Host header means us."""
        name = host_name(header)
        if name is None:
            return False
        if name in self.names or is_loopback(name):
            return True
        if is_loopback(self.host):
            return False
        ours = (self.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower())
        return is_ip_address(name) or name in ours

    def lets_in(self, authorization: str | None) -> bool:
        if not self.token:
            return True
        given = _given_token(authorization or "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def read_token(environment: Mapping[str, str] = os.environ, file: Path | None = None) -> str:
    """The token of a file, else of the environment; empty where there is none. Raises CannotServe."""
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip()
    try:
        with file.open("rb") as opened:
            token = opened.read(MOST_TOKEN_BYTES).decode().strip()
    except OSError as error:
        raise CannotServe(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotServe(f"{file} is not text") from None
    if not token or len(token.split()) > 1:
        raise CannotServe(f"{file} holds no token: it should be one word, such as `openssl rand -hex 32` prints")
    return token


def host_name(header: str | None) -> str | None:
    """The name in a Host header, without port and brackets; None where it is no Host."""
    if not header or len(header) > 300 or any(char in header for char in "/@?#\\ "):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
        return (parts.hostname or "").rstrip(".").lower() or None
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _given_token(authorization: str) -> str:
    scheme, _, value = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


# What a request may name, and how it is opened: nothing outside the folder of runs, and no link inside a run.
#
# A job can write anything into its folder while it is served, links to other places too. So files are not looked up by
# their path and then opened: each folder on the way is opened from the one above it, and a link is refused where it is.


_RUN = re.compile(r"[^\W_][\w.-]{0,199}")
OWN_FILES = ("plan.json", "journal.jsonl", "results.json", "series.json")  # that are read by name


class NotThere(Exception):
    """There is no such page, and why, for people."""


def run_folder(runs: Path, name: str) -> RunFolder:
    """The folder of the run of this name. Raises NotThere."""
    if not _RUN.fullmatch(name) or ".." in name:
        raise NotThere("That is no name of a run.")
    folder = RunFolder(runs / name)
    try:
        if not stat.S_ISDIR(os.lstat(folder.path).st_mode):
            raise NotThere(f"{name} is not a folder of its own in the folder of runs.")
        for own in OWN_FILES:
            if (folder.path / own).is_symlink():
                raise NotThere(f"{own} of {name} is a link; only what is in the run's own folder is shown.")
    except FileNotFoundError:
        raise NotThere(f"There is no run {name} here. Its folder may have been removed.") from None
    except (OSError, ValueError):
        raise NotThere("That is no name of a run.") from None
    return folder


def check_attempt(hash_: str, number: str) -> None:
    """Raises NotThere unless a cell can have this hash, and an attempt this number."""
    if not re.fullmatch(r"[0-9a-f]{8}", hash_):
        raise NotThere("That is no hash of a cell: it has eight hex digits.")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", number):
        raise NotThere("That is no number of an attempt.")


@contextmanager
def opened_below(folder: Path, path: str) -> Iterator[int]:
    """A descriptor of the regular file at this path below the folder; no component of it is a link. Raises NotThere."""
    parts = path.split("/")
    if not path or len(parts) > 40 or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise NotThere("That is no path of a file of a run.")
    held: list[int] = []
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        held.append(os.open(folder, flags | os.O_DIRECTORY))
        for part in parts[:-1]:
            held.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=held[-1]))
        held.append(os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=held[-1]))
        if not stat.S_ISREG(os.fstat(held[-1]).st_mode):
            raise NotThere("That is not a regular file.")
        yield held[-1]
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotThere("There is a link on the way to that file; links are not followed.") from None
        raise NotThere("There is no such file in this run.") from None
    finally:
        for one in held:
            os.close(one)
