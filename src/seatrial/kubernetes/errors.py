"""What can go wrong between this client and a cluster: types with fields, their text made here and nowhere else.

`lasting` says whether asking the same again can help: a missing right stays missing, a server that starts does not.
"""

import msgspec

from seatrial.kubernetes.objects import UNDECODABLE, ApiRequest, Details, Status
from seatrial.kubernetes.rights import Missing, missing_right

ERROR_CHARACTERS = 2000
OF_QUOTA = ("exceeded quota", "status unknown for quota")


class KubernetesError(Exception):
    """This client failed. Not a subclass: the answer is not one of an API server, or ended too early."""

    lasting = False


class KubeconfigError(KubernetesError):
    """What says how to reach the cluster cannot be used."""

    lasting = True

    def __init__(self, file: str, field: str, problem: str) -> None:
        super().__init__(": ".join(filter(None, (file, field, problem))))


class CredentialsError(KubernetesError):
    """No credentials could be had: a plugin failed, a token file cannot be read."""

    def __init__(self, source: str, problem: str, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(f"{source}: {problem}")


class Unreachable(KubernetesError):
    """No answer came. Whatever was asked was not begun, or can be asked again."""

    def __init__(self, server: str, request: ApiRequest, problem: str, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(f"cannot {request}: {problem} ({server})")


class Closed(KubernetesError):
    """The client was closed under a request."""

    lasting = True


class Uncertain(KubernetesError):
    """The connection broke after something was asked that must not be asked twice: it may have been done."""

    def __init__(self, server: str, request: ApiRequest, problem: str) -> None:
        super().__init__(f"not known whether it was done: {request}: {problem} ({server}); check before asking again")


class TooLarge(KubernetesError):
    """What was to be fetched is larger than it may be."""

    lasting = True

    def __init__(self, what: str, most_bytes: int) -> None:
        super().__init__(f"{what} is larger than {most_bytes} bytes")


class CommandFailed(KubernetesError):
    """A command inside a pod ended with another exit code than 0."""

    lasting = True

    def __init__(self, what: str, exit_code: int, stderr: str) -> None:
        super().__init__(f"{what} ended with exit code {exit_code}" + (f": {stderr.strip()}" if stderr.strip() else ""))


class ApiError(KubernetesError):
    """The server answered, and refused."""

    def __init__(
        self, request: ApiRequest, code: int, reason: str, message: str, details: Details | None = None
    ) -> None:
        self.request, self.code, self.reason, self.message, self.details = request, code, reason, message, details
        self.lasting = 400 <= code < 500 and code not in (408, 409, 429)
        self.uncertain = False  # an earlier try of the same request may have been done
        super().__init__(self.text())

    def text(self) -> str:
        reason = f"{self.code} {self.reason}".strip()
        return f"cannot {self.request}: {self.message or 'the server gave no reason'} ({reason})"


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


class Unauthorized(ApiError):
    """401: the server does not know who asks."""

    source = ""  # where the credentials come from, when that is known

    def text(self) -> str:
        source = f" The credentials come from {self.source}: renew them." if self.source else ""
        return f"cannot {self.request}: the server does not accept the credentials (401 {self.message}).{source}"


class Forbidden(ApiError):
    """403. `missing` is the right that RBAC wants; None when a quota or an admission check refused."""

    @property
    def missing(self) -> Missing | None:
        return missing_right(self.message)

    @property
    def of_quota(self) -> bool:
        """One that is full, or that was just made and is not counted yet."""
        return self.missing is None and any(text in self.message for text in OF_QUOTA)

    def text(self) -> str:
        if self.missing is None:
            return super().text()
        return (
            f"cannot {self.request}: the right to {self.missing.right} is missing for user {self.missing.user!r}.\n"
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
}
BY_REASON: dict[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Gone}


def api_error(request: ApiRequest, code: int, body: bytes) -> ApiError:
    """The error of an answer: from its Status where it is one, else from its text (a proxy, a load balancer)."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        status = Status(message=body[:ERROR_CHARACTERS].decode(errors="replace").strip())
    return status_error(request, status, code)


def status_error(request: ApiRequest, status: Status, code: int = 0) -> ApiError:
    code = code or status.code or 500
    kind = BY_REASON.get(status.reason) or BY_CODE.get(code, ApiError)
    error = kind(request, code, status.reason, status.message[:ERROR_CHARACTERS], status.details)
    # A quota frees itself when others end; a right does not come by waiting.
    error.lasting = error.lasting and not (isinstance(error, Forbidden) and error.of_quota)
    return error
