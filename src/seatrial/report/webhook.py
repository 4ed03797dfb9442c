"""Posts the result of a run to a webhook: signed JSON with totals, causes and changes, with a few retries.

The receiver checks `X-Seatrial-Signature: sha256=HEX`, the HMAC-SHA256 of the body with the shared secret, and that
`sent_s` in the body is recent."""

import hashlib
import hmac
import json
import time
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from seatrial import __version__
from seatrial.report import ReportError
from seatrial.report.view.run import RunView
from seatrial.report.view.words import one_line

SECRET = "SEATRIAL_NOTIFY_SECRET"  # the environment variable
SIGNATURE = "X-Seatrial-Signature"
MOST_CAUSES = 50
_MOST_TEXT = 300
_TRY_S = 10.0  # timeout of one attempt
PAUSES_S = (1.0, 4.0, 10.0)  # between attempts
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


def payload(run: RunView, sent_s: float) -> dict[str, object]:
    causes = []
    for cause in run.causes[:MOST_CAUSES]:
        change = cause.news.change.value if cause.news else ""
        causes.append(cause.summary(_text) | {"change": change, "news": _text(cause.news_text)})
    return {
        "version": 1,
        "sent_s": sent_s,
        "run": _text(run.run),
        "suite": _text(run.suite),
        "commit": _text(run.commit),
        "verdict": run.verdict.value,
        "exit_code": int(run.exit_code),
        "interrupted": run.interrupted,
        "started_s": run.started_s,
        "seconds": run.seconds,
        "cells": len(run.cells),
        "counts": run.recorded_counts,
        "holes": len(run.excluded),
        "against": _text(run.against),
        "changes": run.changes,
        "new": [_text(sentence) for sentence in run.news],
        "causes": causes,
        "causes_left_out": max(0, len(run.causes) - MOST_CAUSES),
    }


def notify(url: str, run: RunView, secret: str, pauses_s: Sequence[float] = PAUSES_S) -> None:
    """Posts the payload. The response body is not read, redirects are not followed. Raises ReportError, which has only
    the host of the URL, because the rest may be a secret."""
    body = json.dumps(payload(run, time.time())).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"seatrial/{__version__}",
        SIGNATURE: f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}",
    }
    opener = urllib.request.build_opener(_NoRedirect)
    for pause_s in (*pauses_s, None):
        why, again = _try(opener, urllib.request.Request(url, body, headers, method="POST"))
        if not why:
            return
        if not again or pause_s is None:
            host = urlsplit(url)
            raise ReportError(f"cannot notify {host.scheme}://{one_line(host.hostname or '')}: {why}")
        time.sleep(pause_s)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _try(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> tuple[str, bool]:
    """The error, or "" on success, and whether a retry may help."""
    try:
        with opener.open(request, timeout=_TRY_S):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP status {error.code}", error.code in _AGAIN
    except urllib.error.URLError as error:
        return one_line(str(getattr(error.reason, "strerror", None) or error.reason)), True
    except (OSError, HTTPException) as error:
        return one_line(str(error)) or type(error).__name__, True


def _text(text: str) -> str:
    return one_line(text[: 10 * _MOST_TEXT])[:_MOST_TEXT]
