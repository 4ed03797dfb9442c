"""What can go wrong between this client and a cluster, whether the server can have acted on a request that failed, and
when to ask again. Each class stands for one way in which callers react.

`lasting` says whether asking the same again can help: a missing right stays missing, a server that starts does not.
"""

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from seatrial.http.http1 import BrokenConnection, NotHttp
from seatrial.kubernetes.objects import UNDECODABLE, ApiRequest, Status
from seatrial.kubernetes.rights import grant_yaml, missing_right

ERROR_CHARACTERS = 2000
STDERR_BYTES = 4000
OF_QUOTA = ("exceeded quota", "status unknown for quota")


class KubernetesError(Exception):
    """This client failed. Not a subclass: the answer is not one of an API server, or ended too early."""

    lasting = False

    def __init__(self, *parts: str, lasting: bool | None = None) -> None:
        """The text is all parts that are not empty, such as a file, a field and a problem."""
        super().__init__(": ".join(filter(None, parts)))
        if lasting is not None:
            self.lasting = lasting


class KubeconfigError(KubernetesError):
    """What says how to reach the cluster cannot be used."""

    lasting = True


class CredentialsError(KubernetesError):
    """There are no valid credentials: a plugin failed, a token file cannot be read, the server refuses them (401)."""


class Unreachable(KubernetesError):
    """No answer came. The text says so when the server may have done what was asked."""


class Closed(KubernetesError):
    """The client was closed under a request."""

    lasting = True


class TooLarge(KubernetesError):
    """What was to be fetched is larger than it may be."""

    lasting = True


class CommandFailed(KubernetesError):
    """A command inside a pod ended with another exit code than 0."""

    lasting = True

    def __init__(self, what: str, exit_code: int, stderr: bytes) -> None:
        text = stderr[-STDERR_BYTES:].decode(errors="replace").strip()
        super().__init__(f"{what} ended with exit code {exit_code}", text)


class ApiError(KubernetesError):
    """The server answered, and refused."""

    def __init__(self, request: ApiRequest, code: int, status: Status) -> None:
        self.request, self.code, self.reason = request, code, status.reason
        self.message = status.message[:ERROR_CHARACTERS]
        self.causes = {cause.reason for cause in status.details.causes} if status.details else set()
        self.uncertain = False  # an earlier try of the same request may have been done
        super().__init__(self._text(), lasting=400 <= code < 500 and code not in (408, 409, 429))

    @property
    def expired(self) -> bool:
        """The resourceVersion is too old for the server to go on from."""
        return self.code == 410 or self.reason == "Expired"

    def _text(self) -> str:
        reason = f"{self.code} {self.reason}".strip()
        return f"cannot {self.request}: {self.message or 'the server gave no reason'} ({reason})"


class NotFound(ApiError):
    """404: no such object, or no such kind on this cluster."""


class AlreadyExists(ApiError):
    """409: the name is taken."""


class Forbidden(ApiError):
    """403. `missing` is the right that RBAC wants; None when a quota or an admission check refused. `of_quota`: one
    that is full, or that was just made and is not counted yet."""

    def __init__(self, request: ApiRequest, code: int, status: Status) -> None:
        self.missing = missing_right(status.message[:ERROR_CHARACTERS])
        super().__init__(request, code, status)
        self.of_quota = self.missing is None and any(text in self.message for text in OF_QUOTA)
        self.lasting = not self.of_quota  # a quota frees itself when others end; a right does not come by waiting

    def _text(self) -> str:
        if self.missing is None:
            return super()._text()
        yaml = grant_yaml([self.missing.right], self.missing.user)
        return (
            f"cannot {self.request}: the right to {self.missing.right} is missing for user {self.missing.user!r}.\n"
            f"Who administers the cluster grants it with `kubectl apply -f -` and:\n{yaml}"
        )


class UnknownKind(KubernetesError):
    """The cluster serves no such kind."""

    lasting = True


def api_error(request: ApiRequest, code: int, body: bytes, source: str = "") -> KubernetesError:
    """The error of an answer: from its Status where it is one, else from its text (a proxy, a load balancer). `source`
    is where our credentials come from."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        status = Status(message=body[:ERROR_CHARACTERS].decode(errors="replace").strip())
    return status_error(request, status, code, source)


def status_error(request: ApiRequest, status: Status, code: int = 0, source: str = "") -> KubernetesError:
    code = code or status.code or 500
    if code == 401:
        text = f"the server does not accept the credentials (401 {status.message[:ERROR_CHARACTERS]})."
        renew = f" The credentials come from {source}: renew them." if source else ""
        return CredentialsError(f"cannot {request}: {text}{renew}", lasting=True)
    if status.reason == "AlreadyExists":
        return AlreadyExists(request, code, status)
    return {403: Forbidden, 404: NotFound}.get(code, ApiError)(request, code, status)


# ---- broken connections


PATIENCE_S = 60.0  # how long one request goes on trying
FIRST_DELAY_S, MOST_DELAY_S = 0.1, 10.0
FAILED_TRIES = 4  # of a 5xx that does not say when to come back
STARTING_TRIES = 6
NO_CONNECTION = "no connection within the time allowed; a firewall, a VPN that is down, or a wrong address?"
_OTHER_AUTHORITY = "`certificate-authority` of the kubeconfig is not the one that signed it; get the cluster's own"
CERTIFICATE_ADVICE = (  # by a part of OpenSSL's message, the first that fits
    ("expired", "renew the server's certificate, or check this machine's clock"),
    ("mismatch", "its certificate is for another name: use that name in `server`, or set `tls-server-name`"),
    ("self-signed", _OTHER_AUTHORITY),
    ("self signed", _OTHER_AUTHORITY),
    ("local issuer", _OTHER_AUTHORITY),
    ("not yet valid", "check this machine's clock"),
    ("", "check `certificate-authority` in the kubeconfig"),
)


class RequestFailure(msgspec.Struct, frozen=True):
    text: str
    sent: bool  # the server may have acted on the request
    lasting: bool = False  # asking again cannot help


def failure(error: BaseException) -> RequestFailure:
    """What `error`, raised by a connection of ours or of aiohttp, means."""
    match error:
        case BrokenConnection():
            return _broken(error.sent, error.cause)
        case NotHttp():
            return RequestFailure(f"the answer is not HTTP: {error}; is this an API server?", sent=True, lasting=True)
        case aiohttp.ClientConnectorCertificateError():
            return RequestFailure(_certificate(error.certificate_error), sent=False, lasting=True)
        case aiohttp.ClientConnectorError():
            return _broken(False, error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return RequestFailure(NO_CONNECTION, sent=False)
        case aiohttp.ServerDisconnectedError():
            return _broken(True, None)
        case aiohttp.ClientPayloadError():
            return RequestFailure("the connection was cut in the middle of the answer", sent=True)
        case aiohttp.ClientOSError():
            return _broken(True, error.__cause__ if isinstance(error.__cause__, OSError) else error)
        case asyncio.TimeoutError():
            return RequestFailure("no answer within the time allowed", sent=True)
        case aiohttp.ClientResponseError():
            message = " ".join(error.message.split())
            return RequestFailure(f"the answer is not HTTP: {message}; is this an API server?", sent=True)
        case aiohttp.InvalidURL():
            return RequestFailure(f"not an address: {error}", sent=False, lasting=True)
    return RequestFailure(f"{type(error).__name__}: {error}", sent=True)


def _broken(sent: bool, cause: Exception | None) -> RequestFailure:
    if sent and (cause is None or isinstance(cause, ConnectionResetError)):
        return RequestFailure("the server closed the connection without an answer", sent=True)
    if isinstance(cause, ssl.SSLError):
        return _tls(cause)
    if sent or not isinstance(cause, OSError):
        return RequestFailure(f"the connection broke: {cause}", sent=sent)
    text = f"cannot connect: {cause.strerror or cause}"
    if isinstance(cause, socket.gaierror):
        text = f"the name is not known to DNS ({cause.strerror}); is the server's address right, is a VPN needed?"
    elif isinstance(cause, TimeoutError):
        text = NO_CONNECTION
    # Several addresses of one name are reported in one error without a number.
    elif (
        isinstance(cause, ConnectionRefusedError) or "Connection refused" in str(cause) or "Connect call" in str(cause)
    ):
        text = "nothing listens there (connection refused); is the API server up, is the address right?"
    return RequestFailure(text, sent=False)


def _certificate(error: Exception) -> str:
    """OpenSSL's finding with what to do about it."""
    message = str(getattr(error, "verify_message", "") or error)
    advice = next((advice for part, advice in CERTIFICATE_ADVICE if part in message))
    return f"the server's certificate is not trusted: {message}; {advice}"


def _tls(error: OSError) -> RequestFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return RequestFailure(_certificate(error), sent=False, lasting=True)
    reason = str(getattr(error, "reason", "") or error)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return RequestFailure(
            "the server does not speak TLS on this port; http:// instead of https://?", False, lasting=True
        )
    if "ALERT" in reason.upper() and "CERTIFICATE" in reason.upper():
        text = f"the server does not accept our client certificate ({reason.lower().replace('_', ' ')})"
        return RequestFailure(text, sent=False, lasting=True)
    return RequestFailure(f"TLS failed: {reason}", sent=False)


# ---- asking again: pure but for the clock


def delay_after_refusal_s(
    refused: ApiError, headers: Mapping[str, str], attempt: int, until: float, repeatable: bool
) -> float:
    """How long to wait before asking again; raises when that would not help."""
    asked_s = _retry_after_s(headers)
    # A server that has not read all its roles yet refuses, and names roles that it cannot find.
    starting = refused.code == 403 and "RBAC:" in refused.message and "not found" in refused.message
    comes_back = (
        refused.code == 429
        or (refused.code >= 500 and (asked_s is not None or (repeatable and attempt < FAILED_TRIES)))
        or (starting and attempt < STARTING_TRIES)
    )
    delay = backoff_s(attempt) if asked_s is None else asked_s + random.uniform(0, FIRST_DELAY_S)
    if not comes_back or time.monotonic() + delay > until:
        raise refused
    return delay


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
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
