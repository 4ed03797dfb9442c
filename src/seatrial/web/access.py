"""Access control of the dashboard: the Host header and the token of a request, and the files that it may read.

1. On a loopback address no token is needed, but the Host of every request must be one of ours: otherwise another site
   could reach the dashboard by DNS rebinding.
2. On any other address every request needs a token: `Authorization: Bearer TOKEN`, or the password of
   `Authorization: Basic`, for which browsers prompt. There are no cookies, so requests of other sites have no token.
3. Tokens are compared in constant time.
"""

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

from aiohttp import BasicAuth

from seatrial.record import RunFolder

TOKEN_VARIABLE = "SEATRIAL_SERVE_TOKEN"
LEAST_TOKEN = 16  # characters
MOST_TOKEN_BYTES = 4096  # read from a token file


class CannotServe(Exception):
    """The dashboard cannot be served with these options. The message says what to do."""


@dataclass(frozen=True)
class WebAccess:
    host: str  # to listen on
    token: str = ""
    names: frozenset[str] = frozenset()  # other accepted host names, for example of a proxy

    @classmethod
    def of(cls, host: str, token: str = "", names: Iterable[str] = ()) -> "WebAccess":
        """Raises CannotServe if a token is missing for a host that other machines can reach, or is too short."""
        if token and len(token) < LEAST_TOKEN:
            raise CannotServe(f"the token has {len(token)} characters (minimum {LEAST_TOKEN})")
        if not token and not is_loopback(host):
            raise CannotServe(
                f"{host} is reachable from other machines and needs a token: set {TOKEN_VARIABLE}, or run "
                "`openssl rand -hex 32 > token` and use --token-file token"
            )
        return cls(host, token, frozenset(name.lower() for name in names))

    def knows_host(self, header: str | None) -> bool:
        """Whether the Host header of a request is one of ours."""
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
    """The token from the file, or from the environment; may be empty. Raises CannotServe."""
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip()
    try:
        with file.open("rb") as opened:
            token = opened.read(MOST_TOKEN_BYTES).decode().strip()
    except OSError as error:
        raise CannotServe(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotServe(f"cannot read {file}: not text") from None
    if not token or len(token.split()) > 1:
        raise CannotServe(f"invalid token in {file}: expected one word, such as the output of `openssl rand -hex 32`")
    return token


def host_name(header: str | None) -> str | None:
    """The name in a Host header, without port and brackets; None if it is invalid."""
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
    try:
        password: str = BasicAuth.decode(authorization.strip(), "utf-8").password
        return password
    except ValueError:
        return ""


# Files that a request may read: nothing outside the runs folder, and no links.
#
# Jobs can create links in their folders at any time. So each folder of a path is opened relative to its parent, without
# following links, instead of checking the path before opening it.


_RUN = re.compile(r"[^\W_][\w.-]{0,199}")
OWN_FILES = ("plan.json", "journal.jsonl", "results.json", "series.json")  # read by path, so they must not be links


class NotThere(Exception):
    """The page does not exist. The message is shown to the user."""


def run_folder(runs: Path, name: str) -> RunFolder:
    """The folder of the run with this name. Raises NotThere."""
    if not _RUN.fullmatch(name) or ".." in name:
        raise NotThere("Invalid run name.")
    folder = RunFolder(runs / name)
    try:
        if not stat.S_ISDIR(os.lstat(folder.path).st_mode):
            raise NotThere(f"{name} is not a folder in the runs folder.")
        for own in OWN_FILES:
            if (folder.path / own).is_symlink():
                raise NotThere(f"{own} of {name} is a link. Only files in the run folder are shown.")
    except FileNotFoundError:
        raise NotThere(f"Run not found: {name}. Its folder may have been deleted.") from None
    except (OSError, ValueError):
        raise NotThere("Invalid run name.") from None
    return folder


def check_attempt(hash_: str, number: str) -> None:
    """Raises NotThere if the hash of the cell or the number of the attempt is malformed."""
    if not re.fullmatch(r"[0-9a-f]{8}", hash_):
        raise NotThere("Invalid cell hash: expected eight hex digits.")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", number):
        raise NotThere("Invalid attempt number.")


@contextmanager
def opened_below(folder: Path, path: str) -> Iterator[int]:
    """Opens the regular file at this path below the folder, without following links. Raises NotThere."""
    parts = path.split("/")
    if not path or len(parts) > 40 or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise NotThere("Not a file in this run.")
    held: list[int] = []
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        held.append(os.open(folder, flags | os.O_DIRECTORY))
        for part in parts[:-1]:
            held.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=held[-1]))
        held.append(os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=held[-1]))
        if not stat.S_ISREG(os.fstat(held[-1]).st_mode):
            raise NotThere("Not a regular file.")
        yield held[-1]
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotThere("The path contains a link. Links are not followed.") from None
        raise NotThere("File not found in this run.") from None
    finally:
        for one in held:
            os.close(one)
