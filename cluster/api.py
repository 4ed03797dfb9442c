"""As much of a client for the API server as bringing up a cluster needs."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError


class ApiError(ClusterError):
    def __init__(self, asked: str, status: int, said: str) -> None:
        super().__init__(f"{asked}: the API server answered {status}: {said}")
        self.status = status


class Api:
    """One connection, kept open; not for several threads."""

    def __init__(self, host: str, port: int, certificates: Path, timeout_s: float = 30.0) -> None:
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
        self._connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:
        """What the server answers, as data. OSError when it cannot be reached."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", **({"Content-Type": content} if data else {})}
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request opens it again
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        if response.status >= 400:
            raise ApiError(f"{method} {path}", response.status, _message(answer))
        return json.loads(answer) if answer.startswith(b"{") else answer.decode(errors="replace")

    def close(self) -> None:
        self._connection.close()


def healthy(url_host: str, port: int, path: str, certificates: Path) -> bool:
    api = Api(url_host, port, certificates, timeout_s=10.0)
    try:
        api.request("GET", path)
        return True
    except (OSError, ApiError):
        return False
    finally:
        api.close()


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")[:500].strip()
