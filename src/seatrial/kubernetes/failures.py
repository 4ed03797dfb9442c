"""What a broken connection means, in plain words, and whether the request can have reached the server."""

import asyncio
import socket
import ssl

import aiohttp
import msgspec

from seatrial.kubernetes.http1 import Broken, NotHttp


class Failure(msgspec.Struct, frozen=True):
    words: str
    sent: bool  # the server may have acted on the request
    lasting: bool = False  # asking again cannot help


def failure(error: BaseException) -> Failure:
    """What `error`, raised by aiohttp, means."""
    match error:
        case Broken():
            return _broken(error)
        case NotHttp():
            return Failure(f"the answer is not HTTP: {error}; is this an API server?", sent=True)
        case aiohttp.ClientConnectorCertificateError():
            return Failure(_certificate(error.certificate_error), sent=False, lasting=True)
        case aiohttp.ClientConnectorSSLError():
            return _tls(error.os_error)
        case aiohttp.ClientConnectorError():
            return Failure(_connect(error.os_error), sent=False)
        case aiohttp.ConnectionTimeoutError():
            words = "no connection within the time allowed; a firewall, a VPN that is down, or a wrong address?"
            return Failure(words, sent=False)
        case aiohttp.ServerDisconnectedError():
            return Failure("the server closed the connection without an answer", sent=True)
        case aiohttp.ClientPayloadError():
            return Failure("the connection was cut in the middle of the answer", sent=True)
        case aiohttp.ClientOSError():
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            if isinstance(cause, ssl.SSLError):
                return _tls(cause)
            return Failure(f"the connection broke: {error.strerror or error}", sent=True)
        case asyncio.TimeoutError():
            return Failure("no answer within the time allowed", sent=True)
        case aiohttp.ClientResponseError():
            words = " ".join(error.message.split())
            return Failure(f"the answer is not HTTP: {words}; is this an API server?", sent=True)
        case aiohttp.InvalidURL():
            return Failure(f"not an address: {error}", sent=False, lasting=True)
    return Failure(f"{type(error).__name__}: {error}", sent=True)


def _broken(error: Broken) -> Failure:
    cause = error.cause
    if error.sent and (cause is None or isinstance(cause, ConnectionResetError)):
        return Failure("the server closed the connection without an answer", sent=True)
    if isinstance(cause, ssl.SSLError):
        return _tls(cause)
    if error.sent or not isinstance(cause, OSError):
        return Failure(f"the connection broke: {cause}", sent=error.sent)
    return Failure(_connect(cause), sent=False)


def _connect(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name is not known to DNS ({error.strerror}); is the server's address right, is a VPN needed?"
    if isinstance(error, TimeoutError):
        return "no connection within the time allowed; a firewall, a VPN that is down, or a wrong address?"
    # Several addresses of one name are told in one error without a number.
    if isinstance(error, ConnectionRefusedError) or "Connection refused" in str(error) or "Connect call" in str(error):
        return "nothing listens there (connection refused); is the API server up, is the address right?"
    return f"cannot connect: {error.strerror or error}"


def _certificate(error: Exception) -> str:
    """OpenSSL's finding with what to do about it."""
    message = str(getattr(error, "verify_message", "") or error)
    if "expired" in message:
        advice = "renew the server's certificate, or look at this machine's clock"
    elif "mismatch" in message:
        advice = "its certificate is for another name: use that name in `server`, or set `tls-server-name`"
    elif "self-signed" in message or "self signed" in message or "local issuer" in message:
        advice = "`certificate-authority` of the kubeconfig is not the one that signed it; get the cluster's own"
    elif "not yet valid" in message:
        advice = "look at this machine's clock"
    else:
        advice = "look at `certificate-authority` in the kubeconfig"
    return f"the server's certificate is not trusted: {message}; {advice}"


def _tls(error: OSError) -> Failure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(_certificate(error), sent=False, lasting=True)
    reason = str(getattr(error, "reason", "") or error)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason:
        return Failure("the server does not speak TLS on this port; http:// instead of https://?", False, lasting=True)
    if "ALERT" in reason.upper() and "CERTIFICATE" in reason.upper():
        words = f"the server does not accept our client certificate ({reason.lower().replace('_', ' ')})"
        return Failure(words, sent=False, lasting=True)
    return Failure(f"TLS failed: {reason}", sent=False)
