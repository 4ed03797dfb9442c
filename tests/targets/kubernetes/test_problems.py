"""Whose fault it is that a server refuses something."""

import pytest

from seatrial.job import Outcome
from seatrial.kubernetes import JOBS
from seatrial.kubernetes.errors import api_error
from seatrial.kubernetes.objects import ApiRequest
from seatrial.targets.kubernetes.errors import target_error

WEBHOOK = 'admission webhook "validate.kyverno.svc" denied the request: images must come from our registry'
POLICY = 'jobs.batch "x" is forbidden: ValidatingAdmissionPolicy "p" with binding "b" denied request: no'
QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1, used: 9, limited: 9'
RIGHT = 'jobs.batch is forbidden: User "a" cannot create resource "jobs" in API group "batch" in the namespace "n"'


@pytest.mark.parametrize(
    ("code", "message", "outcome"),
    [
        (400, WEBHOOK, Outcome.REFUSED),
        (403, WEBHOOK, Outcome.REFUSED),
        (403, POLICY, Outcome.REFUSED),
        (422, "spec.template: Invalid value", Outcome.REFUSED),
        (403, QUOTA, Outcome.INFRA),
        (403, RIGHT, Outcome.INFRA),
        (500, "failed calling webhook: connection refused", Outcome.INFRA),
    ],
)
def test_a_policy_refuses_for_good_a_quota_does_not(code: int, message: str, outcome: Outcome) -> None:
    body = b'{"kind":"Status","status":"Failure","message":%b}' % _json(message)
    assert target_error(api_error(ApiRequest("create", JOBS, "n"), code, body)).outcome is outcome


def _json(text: str) -> bytes:
    return b'"%b"' % text.replace('"', '\\"').encode()
