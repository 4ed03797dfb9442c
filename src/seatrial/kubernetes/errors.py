"""Errors of the client, whether the server may have acted on a failed request, and when to retry.

One class per way in which callers react. `lasting`: a retry cannot help, as for a missing permission.
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
    """Base of all errors. Raised itself if the answer is not that of an API server, or ended too early."""

    lasting = False

    def __init__(self, *parts: str, lasting: bool | None = None) -> None:
        """The message joins the non-empty parts, such as a file, a field and a problem."""
        super().__init__(": ".join(filter(None, parts)))
        if lasting is not None:
            self.lasting = lasting


class KubeconfigError(KubernetesError):
    """The kubeconfig is missing or invalid."""

    lasting = True


class CredentialsError(KubernetesError):
    """No valid credentials: a plugin failed, a token file is unreadable, or the server rejects them (401)."""


class Unreachable(KubernetesError):
    """No answer. The message says so if the server may have acted on the request."""


class Closed(KubernetesError):
    """The client was closed during a request."""

    lasting = True


class TooLarge(KubernetesError):
    """The data to fetch exceed the limit."""

    lasting = True


class CommandFailed(KubernetesError):
    """A command in a pod exited with a code other than 0."""

    lasting = True

    def __init__(self, what: str, exit_code: int, stderr: bytes) -> None:
        text = stderr[-STDERR_BYTES:].decode(errors="replace").strip()
        super().__init__(f"{what} exited {exit_code}", text)


class ApiError(KubernetesError):
    """The server answered with an error."""

    def __init__(self, request: ApiRequest, code: int, status: Status) -> None:
        self.request, self.code, self.reason = request, code, status.reason
        self.message = status.message[:ERROR_CHARACTERS]
        self.causes = {cause.reason for cause in status.details.causes} if status.details else set()
        self.uncertain = False  # an earlier attempt at the same request may have succeeded
        super().__init__(self._text(), lasting=400 <= code < 500 and code not in (408, 409, 429))

    @property
    def expired(self) -> bool:
        """The resourceVersion is too old to continue from."""
        return self.code == 410 or self.reason == "Expired"

    def _text(self) -> str:
        reason = f"{self.code} {self.reason}".strip()
        return f"cannot {self.request}: {self.message or 'the server gave no reason'} ({reason})"


class NotFound(ApiError):
    """404: the object does not exist, or its kind on this cluster."""


class AlreadyExists(ApiError):
    """409: the name is taken."""


class Forbidden(ApiError):
    """403. `missing` is the permission that RBAC requires; None if a quota or an admission check refused. `of_quota`:
    the quota is full, or was just created and has no status yet."""

    def __init__(self, request: ApiRequest, code: int, status: Status) -> None:
        self.missing = missing_right(status.message[:ERROR_CHARACTERS])
        super().__init__(request, code, status)
        self.of_quota = self.missing is None and any(text in self.message for text in OF_QUOTA)
        self.lasting = not self.of_quota  # a full quota is temporary, a missing permission is not

    def _text(self) -> str:
        if self.missing is None:
            return super()._text()
        yaml = grant_yaml([self.missing.right], self.missing.user)
        return (
            f"cannot {self.request}: user {self.missing.user!r} lacks permission to {self.missing.right}\n"
            f"a cluster administrator can grant it: kubectl apply -f -\n{yaml}"
        )


class UnknownKind(KubernetesError):
    """The cluster does not serve this kind."""

    lasting = True


def api_error(request: ApiRequest, code: int, body: bytes, source: str = "") -> KubernetesError:
    """The error for an answer, from its Status or else its text (of a proxy or load balancer). `source`: the origin of
    our credentials."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        status = Status(message=body[:ERROR_CHARACTERS].decode(errors="replace").strip())
    return status_error(request, status, code, source)


def status_error(request: ApiRequest, status: Status, code: int = 0, source: str = "") -> KubernetesError:
    code = code or status.code or 500
    if code == 401:
        text = f"the server rejected the credentials (401 {status.message[:ERROR_CHARACTERS]})"
        origin = f"; they come from {source}" if source else ""
        return CredentialsError(f"cannot {request}: {text}{origin}", lasting=True)
    if status.reason == "AlreadyExists":
        return AlreadyExists(request, code, status)
    return {403: Forbidden, 404: NotFound}.get(code, ApiError)(request, code, status)


# ---- broken connections


PATIENCE_S = 60.0  # how long one request is retried
FIRST_DELAY_S, MOST_DELAY_S = 0.1, 10.0
FAILED_TRIES = 4  # attempts for a 5xx without Retry-After
STARTING_TRIES = 6
NO_CONNECTION = "connection timed out; check the address, the firewall and the VPN"
_OTHER_AUTHORITY = "it is not signed by `certificate-authority` in the kubeconfig; put the cluster's CA there"
CERTIFICATE_ADVICE = (  # by a part of OpenSSL's message, the first match
    ("expired", "renew the server's certificate, or check this machine's clock"),
    ("mismatch", "the certificate is for another name: use that name in `server`, or set `tls-server-name`"),
    ("self-signed", _OTHER_AUTHORITY),
    ("self signed", _OTHER_AUTHORITY),
    ("local issuer", _OTHER_AUTHORITY),
    ("not yet valid", "check this machine's clock"),
    ("", "check `certificate-authority` in the kubeconfig"),
)


class RequestFailure(msgspec.Struct, frozen=True):
    text: str
    sent: bool  # the server may have acted on the request
    lasting: bool = False  # a retry cannot help


def failure(error: BaseException) -> RequestFailure:
    """Interprets an error of our own connections or of aiohttp."""
    match error:
        case BrokenConnection():
            return _broken(error.sent, error.cause)
        case NotHttp():
            return RequestFailure(f"the answer is not HTTP: {error}; is this an API server?", sent=True, lasting=True)
        case aiohttp.ClientConnectorCertificateError():
            return _broken(False, error.certificate_error)
        case aiohttp.ClientConnectorError():
            return _broken(False, error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return RequestFailure(NO_CONNECTION, sent=False)
        case aiohttp.ServerDisconnectedError():
            return _broken(True, None)
        case aiohttp.ClientPayloadError():
            return RequestFailure("the connection broke during the answer", sent=True)
        case aiohttp.ClientOSError():
            return _broken(True, error.__cause__ if isinstance(error.__cause__, OSError) else error)
        case asyncio.TimeoutError():
            return RequestFailure("no answer within the time limit", sent=True)
        case aiohttp.ClientResponseError():
            message = " ".join(error.message.split())
            return RequestFailure(f"the answer is not HTTP: {message}; is this an API server?", sent=True)
        case aiohttp.InvalidURL():
            return RequestFailure(f"invalid address: {error}", sent=False, lasting=True)
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
        text = f"unknown host name ({cause.strerror}); check the server's address and the VPN"
    elif isinstance(cause, TimeoutError):
        text = NO_CONNECTION
    # The error for several addresses of one name has no errno.
    elif "Connection refused" in str(cause) or "Connect call" in str(cause):
        text = "connection refused; check the address and that the API server is up"
    return RequestFailure(text, sent=False)


def _tls(error: ssl.SSLError) -> RequestFailure:
    if isinstance(error, ssl.SSLCertVerificationError):
        message = str(getattr(error, "verify_message", "") or error)
        advice = next((advice for part, advice in CERTIFICATE_ADVICE if part in message))
        text = f"the server's certificate is not trusted: {message}; {advice}"
        return RequestFailure(text, sent=False, lasting=True)
    reason = str(getattr(error, "reason", "") or error)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return RequestFailure(
            "the server does not use TLS on this port; check the port, or use http://", False, lasting=True
        )
    if "ALERT" in reason.upper() and "CERTIFICATE" in reason.upper():
        text = f"the server rejected our client certificate ({reason.lower().replace('_', ' ')})"
        return RequestFailure(text, sent=False, lasting=True)
    return RequestFailure(f"TLS failed: {reason}", sent=False)


# ---- retries: pure except for the clock


def delay_after_refusal_s(
    refused: ApiError, headers: Mapping[str, str], attempt: int, until: float, repeatable: bool
) -> float:
    """How long to wait before a retry; raises `refused` if a retry would not help."""
    asked_s = _retry_after_s(headers)
    # A server that is starting refuses until it has loaded all roles, and names those it cannot find.
    starting = refused.code == 403 and "RBAC:" in refused.message and "not found" in refused.message
    # Other requests changed the same quota at this time. Nothing was created.
    collided = refused.request.verb == "create" and refused.reason == "Conflict"
    comes_back = (
        refused.code == 429
        or (refused.code >= 500 and (asked_s is not None or (repeatable and attempt < FAILED_TRIES)))
        or ((starting or collided) and attempt < STARTING_TRIES)
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
    """Exponential backoff with jitter, so that clients do not retry at the same time."""
    most = min(MOST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(attempt - 1, 20))
    return random.uniform(most / 2, most)
