"""What can go wrong between this client and a cluster: types with fields, their text made here and nowhere else.

`lasting` says whether asking the same again can help: a missing right stays missing, a server that starts does not.
"""

import msgspec

from seatrial.kubernetes.objects import Details, Status
from seatrial.kubernetes.resources import Resource
from seatrial.kubernetes.rights import Missing, missing_right

MOST_TEXT = 2000


class Asked(msgspec.Struct, frozen=True):
    """What was asked of the server, for messages."""

    verb: str
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.resource is None:
            return f"{self.verb} {self.path}"
        title = self.resource.title + (f"/{self.subresource}" if self.subresource else "")
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {title}{name}" + (f" in namespace {self.namespace}" if self.namespace else "")


class KubernetesError(Exception):
    """Something of this client failed."""

    lasting = False


class KubeconfigError(KubernetesError):
    """What says how to reach the cluster cannot be used."""

    lasting = True

    def __init__(self, file: str, field: str, problem: str) -> None:
        self.file, self.field, self.problem = file, field, problem
        where = f"{file}: {field}" if field else file
        super().__init__(f"{where}: {problem}")


class CredentialsError(KubernetesError):
    """No credentials could be had: a plugin failed, a token file cannot be read."""

    def __init__(self, source: str, problem: str, lasting: bool = False) -> None:
        self.source, self.problem, self.lasting = source, problem, lasting
        super().__init__(f"{source}: {problem}")


class Unreachable(KubernetesError):
    """No answer came. Whatever was asked was not begun, or can be asked again."""

    def __init__(self, server: str, asked: Asked, words: str, lasting: bool = False) -> None:
        self.server, self.asked, self.words, self.lasting = server, asked, words, lasting
        super().__init__(f"cannot {asked}: {words} ({server})")


class Closed(KubernetesError):
    """The client was closed under a request."""

    lasting = True

    def __init__(self) -> None:
        super().__init__("the client is closed")


class Uncertain(KubernetesError):
    """The connection broke after something was asked that must not be asked twice: it may have been done."""

    def __init__(self, server: str, asked: Asked, words: str) -> None:
        self.server, self.asked, self.words = server, asked, words
        super().__init__(f"not known whether it was done: {asked}: {words} ({server}); look before asking again")


class ProtocolError(KubernetesError):
    """What answered does not speak as an API server does."""

    def __init__(self, asked: Asked, problem: str) -> None:
        self.asked, self.problem = asked, problem
        super().__init__(f"cannot {asked}: {problem}")


class Incomplete(KubernetesError):
    """A stream out of a pod ended before its end: what came is not all."""

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"{what}: {problem}")


class CommandFailed(KubernetesError):
    """A command inside a pod ended with another exit code than 0."""

    lasting = True

    def __init__(self, what: str, exit_code: int, stderr: str) -> None:
        self.what, self.exit_code, self.stderr = what, exit_code, stderr
        super().__init__(f"{what} ended with exit code {exit_code}" + (f": {stderr.strip()}" if stderr.strip() else ""))


class ApiError(KubernetesError):
    """The server answered, and refused."""

    def __init__(self, asked: Asked, code: int, reason: str, message: str, details: Details | None = None) -> None:
        self.asked, self.code, self.reason, self.message, self.details = asked, code, reason, message, details
        self.lasting = 400 <= code < 500 and code not in (408, 409, 429)
        self.uncertain = False  # an earlier try of the same request may have been done
        super().__init__(self.text())

    def text(self) -> str:
        reason = f"{self.code} {self.reason}".strip()
        return f"cannot {self.asked}: {self.message or 'the server gave no reason'} ({reason})"


class NotFound(ApiError):
    """404: no such object, or no such kind on this cluster."""


class AlreadyExists(ApiError):
    """409: the name is taken."""


class Conflict(ApiError):
    """409: the object changed meanwhile."""


class Gone(ApiError):
    """410: the resourceVersion is too old for the server to go on from."""


class Invalid(ApiError):
    """400 or 422: the server does not take this object."""


class TooManyRequests(ApiError):
    """429, again and again."""


class ServerFailed(ApiError):
    """5xx."""


class Unauthorized(ApiError):
    """401: the server does not know who asks."""

    def __init__(self, asked: Asked, code: int, reason: str, message: str, details: Details | None = None) -> None:
        self.source = ""  # where the credentials come from, when that is known
        super().__init__(asked, code, reason, message, details)

    def text(self) -> str:
        source = f" The credentials come from {self.source}: renew them." if self.source else ""
        return f"cannot {self.asked}: the server does not accept the credentials (401 {self.message}).{source}"


class Forbidden(ApiError):
    """403. `missing` is the right that RBAC wants; None when a quota or an admission check refused."""

    missing: Missing | None

    def __init__(self, asked: Asked, code: int, reason: str, message: str, details: Details | None = None) -> None:
        self.missing = missing_right(message)
        super().__init__(asked, code, reason, message, details)
        # A quota frees itself when others end; a right does not come by waiting.
        self.lasting = not self.of_quota

    @property
    def of_quota(self) -> bool:
        return self.missing is None and "exceeded quota" in self.message

    def text(self) -> str:
        if self.missing is None:
            return super().text()
        return (
            f"cannot {self.asked}: the right to {self.missing.right} is missing for user {self.missing.user!r}.\n"
            f"Who administers the cluster grants it with `kubectl apply -f -` and:\n{self.missing.yaml()}"
        )


BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(asked: Asked, code: int, body: bytes) -> ApiError:
    """The error of an answer: from its Status where it is one, else from its text (a proxy, a load balancer)."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:MOST_TEXT].decode(errors="replace").strip())
    return status_error(asked, status, code)


def status_error(asked: Asked, status: Status, code: int = 0) -> ApiError:
    code = code or status.code or 500
    kind = BY_CODE.get(code, ServerFailed if code >= 500 else ApiError)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    if status.reason == "Expired":
        kind = Gone
    return kind(asked, code, status.reason, status.message[:MOST_TEXT], status.details)
