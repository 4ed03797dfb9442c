"""What a broken connection means, whether the request can have reached the server, and when to ask again."""

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
from seatrial.kubernetes.errors import ApiError

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
    return RequestFailure(_connect(cause), sent=False)


def _connect(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name is not known to DNS ({error.strerror}); is the server's address right, is a VPN needed?"
    if isinstance(error, TimeoutError):
        return NO_CONNECTION
    # Several addresses of one name are reported in one error without a number.
    if isinstance(error, ConnectionRefusedError) or "Connection refused" in str(error) or "Connect call" in str(error):
        return "nothing listens there (connection refused); is the API server up, is the address right?"
    return f"cannot connect: {error.strerror or error}"


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
