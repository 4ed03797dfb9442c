"""Requests over connections that break, servers that are busy, and what is said about it."""

import asyncio
import socket
import time

import pytest
import yaml
from api_stub import Request, Stub, Wire

from seatrial.kubernetes import PODS, AlreadyExists, ApiError, Forbidden, KubernetesError, NotFound, Tree, Unreachable
from seatrial.kubernetes.objects import ApiRequest


def pod(name: str = "", prefix: str = "", **labels: str) -> dict[str, object]:
    named = {"name": name} if name else {"generateName": prefix}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, "labels": labels}}


async def test_a_busy_server_is_asked_again_when_it_says(stub: Stub) -> None:
    busy = [("1", 429), ("0", 429), ("0", 503), ("Fri, 01 Jan 2021 00:00:00 GMT", 500)]
    at: list[float] = []

    async def answer(request: Request, wire: Wire) -> None:
        at.append(time.monotonic())
        if not busy:
            raise KeyError
        after, status = busy.pop(0)
        wire.error(status, "too busy", Retry_After=after)

    stub.override = answer
    async with stub.client() as client:
        made = await client.create(pod("one"))
    assert made.metadata.name == "one"
    assert len(stub.requests) == 5
    assert at[1] - at[0] >= 1.0  # what the server said, by its own clock


async def test_a_server_that_stays_busy_is_told_as_such(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(429, "too many requests", "TooManyRequests", Retry_After="1")

    stub.override = answer
    async with stub.client(patience_s=0.5) as client:
        with pytest.raises(ApiError, match=r"cannot get pods x in namespace ns: too many requests \(429"):
            await client.get(PODS, "x")


async def test_a_failed_webhook_is_asked_a_few_times_and_then_told(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(500, 'failed calling webhook "x"', "InternalError")

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(ApiError, match=r"failed calling webhook .*\(500"):
            await client.create(pod("one"))
    assert len(stub.requests) == 4


async def test_a_create_that_is_cut_at_any_byte_of_its_answer_makes_one_object(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.kubernetes.connection.backoff_s", lambda attempt: 0.0)
    cut = 0
    while True:
        name, before = f"cut-{cut}", stub.connections
        stub.budgets = [cut]
        async with stub.client() as client:
            made = await client.create(pod(name, run="r", n=str(cut)))
        assert made.metadata.labels == {"run": "r", "n": str(cut)}
        assert made.metadata.uid == stub.objects[name]["metadata"]["uid"]
        if stub.connections == before + 1:
            break  # the whole answer fits
        cut += 5
    assert cut > 150
    assert len(stub.objects) == cut / 5 + 1


async def test_the_object_of_somebody_else_is_not_taken_for_ours(stub: Stub) -> None:
    async with stub.client() as client:
        stub.put("taken", run="other")
        stub.budgets = [5]
        with pytest.raises(AlreadyExists, match="already exists"):
            await client.create(pod("taken", run="mine"))
        with pytest.raises(AlreadyExists):  # no cut: no doubt
            await client.create(pod("taken", run="other"))


async def test_a_create_without_a_name_is_never_asked_twice(stub: Stub) -> None:
    stub.budgets = [5]
    async with stub.client() as client:
        with pytest.raises(Unreachable, match="the request may have taken effect: create pods in namespace ns"):
            await client.create(pod(prefix="some-"))
    assert len(stub.objects) == 1


async def test_a_patch_that_was_cut_is_asked_again(stub: Stub) -> None:
    stub.put("one")
    stub.budgets = [5]
    async with stub.client() as client:
        assert (await client.patch(PODS, "one", {"metadata": {}})).metadata.name == "one"


async def test_deleting_what_is_gone_is_no_error_nor_is_a_delete_that_was_cut(stub: Stub) -> None:
    stub.put("one")
    stub.budgets = [5]
    async with stub.client() as client:
        await client.delete(PODS, "one")
        assert not stub.objects
        assert await client.delete(PODS, "one") is False


async def test_a_server_that_comes_up_late_is_waited_for(stub: Stub) -> None:
    late, place = Stub(), socket.socket()
    place.bind(("127.0.0.1", 0))  # without listening: connections are refused, and nobody else gets the port

    async def begin() -> asyncio.Server:
        await asyncio.sleep(0.5)
        return await asyncio.start_server(late.serve, sock=place)

    async with stub.client(server=f"http://127.0.0.1:{place.getsockname()[1]}") as client:
        server, version = await asyncio.gather(begin(), client.version())
        assert version == "v1.35.4"
        server.close()


@pytest.mark.parametrize(
    ("status", "reason", "kind", "lasting"),
    [
        (400, "BadRequest", ApiError, True),
        (404, "NotFound", NotFound, True),
        (409, "Conflict", ApiError, False),
        (410, "Expired", ApiError, True),
        (422, "Invalid", ApiError, True),
    ],
)
async def test_each_refusal_has_its_type(
    stub: Stub, status: int, reason: str, kind: type[ApiError], lasting: bool
) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(status, "because of this", reason)

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(kind, match="cannot get pods x in namespace ns: because of this") as caught:
            await client.get(PODS, "x")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.lasting, caught.value.expired) == (status, lasting, status == 410)


async def test_a_missing_right_is_told_with_the_yaml_that_grants_it(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        user = "system:serviceaccount:ci:robot"
        refused = f'User "{user}" cannot list resource "jobs" in API group "batch" in the namespace "ns"'
        message = f"jobs.batch is forbidden: {refused}"
        wire.error(403, message, "Forbidden")

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(Forbidden) as caught:
            [item async for item in client.list(PODS)]
    text = str(caught.value)
    assert "user 'system:serviceaccount:ci:robot' lacks permission to list jobs.batch in namespace ns" in text
    role, binding = yaml.safe_load_all(text.partition("can grant it: kubectl apply -f -\n")[2])
    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]
    assert role["metadata"]["namespace"] == "ns"
    assert role["metadata"]["name"].startswith("seatrial-"), "it must not replace a Role that is there"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


async def test_a_create_that_collides_with_others_in_a_quota_is_tried_again_and_a_patch_is_not(stub: Stub) -> None:
    asked: list[str] = []

    async def answer(request: Request, wire: Wire) -> None:
        asked.append(request.method)
        if len(asked) == 2:
            wire.json(201, pod("x"))
        else:
            wire.error(409, 'Operation cannot be fulfilled on resourcequotas "q": it has been modified', "Conflict")

    stub.override = answer
    async with stub.client() as client:
        await client.create(pod("x"))
        with pytest.raises(ApiError, match="it has been modified"):
            await client.patch(PODS, "x", {})
    assert asked == ["POST", "POST", "PATCH"]


async def test_a_quota_is_no_missing_right(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.error(403, 'pods "x" is forbidden: exceeded quota: gpus, requested: 8, used: 0, limited: 4', "Forbidden")

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(Forbidden, match="exceeded quota: gpus") as caught:
            await client.create(pod("x"))
    assert caught.value.missing is None
    assert caught.value.of_quota
    assert not caught.value.lasting
    assert "kubectl apply" not in str(caught.value)


async def test_a_login_page_is_not_taken_for_an_api_server(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.json(200, b"<html><body>Please log in</body></html>")

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(KubernetesError, match=r"not that of an API server.*Please log in"):
            await client.get(PODS, "x")

    async def elsewhere(request: Request, wire: Wire) -> None:
        wire.json(302, b"", Location="https://login.example/")

    stub.override = elsewhere
    async with stub.client() as client:
        with pytest.raises(KubernetesError, match=r"redirects to https://login.example/"):
            await client.get(PODS, "x")


async def test_an_object_that_is_not_understood_is_not_shown(stub: Stub) -> None:
    """It may be a Secret."""

    async def answer(request: Request, wire: Wire) -> None:
        wire.json(200, {"metadata": "wrong", "data": {"password": "hush"}})

    stub.override = answer
    async with stub.client() as client:
        with pytest.raises(KubernetesError, match="not that of an API server") as caught:
            await client.get(PODS, "x")
    assert "hush" not in str(caught.value)


async def test_what_is_not_http_is_told_as_such(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        wire.send(b"220 mail.example ESMTP\r\n\r\n")

    stub.override = answer
    async with stub.client(patience_s=0.2) as client:
        with pytest.raises(Unreachable, match=r"the answer is not HTTP.*is this an API server"):
            await client.get(PODS, "x")


async def test_a_server_that_never_answers_runs_out_of_time(stub: Stub) -> None:
    async def answer(request: Request, wire: Wire) -> None:
        await asyncio.sleep(60)

    stub.override = answer
    async with stub.client(patience_s=0) as client:
        with pytest.raises(Unreachable, match="no answer within the time limit"):
            await client.connection.request(ApiRequest("get", bare_path="/x"), timeout_s=-4.5)
    assert stub.requests[0].query["timeout"] == "1s"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("http://127.0.0.1:1", r"connection refused; .*\(http://127.0.0.1:1\)"),
        ("http://no-such-host.invalid:1", "unknown host name .*no-such-host"),
    ],
)
async def test_a_server_that_is_not_there_is_told_in_plain_words(stub: Stub, server: str, words: str) -> None:
    async with stub.client(server=server, patience_s=0) as client:
        with pytest.raises(Unreachable, match=words):
            await client.version()


async def test_a_list_is_read_in_pages_and_each_object_comes_once(stub: Stub) -> None:
    for number in range(25):
        stub.put(f"pod-{number}")
    stub.expire_continue = 1
    async with stub.client() as client:
        names = [item.metadata.name async for item in client.list(PODS, page=10)]
    assert names == [f"pod-{number}" for number in range(25)]
    asked = [(request.query.get("limit"), request.query.get("continue")) for request in stub.requests]
    assert asked == [("10", None), ("10", "10"), ("10", None), ("10", "10"), ("10", "20")]


async def test_a_list_that_always_expires_is_at_last_read_in_one_piece(stub: Stub) -> None:
    for number in range(25):
        stub.put(f"pod-{number}")
    stub.expire_continue = 10**6
    async with stub.client() as client:
        assert len([item async for item in client.list(PODS, page=10)]) == 25
    assert "limit" not in stub.requests[-1].query


async def test_who_wants_metadata_alone_asks_for_no_more(stub: Stub) -> None:
    stub.put("one")
    async with stub.client() as client:
        await client.get(PODS, "one")
        await client.get(PODS, "one", Tree)
    assert stub.requests[0].headers["accept"].startswith("application/json;as=PartialObjectMetadata;")
    assert stub.requests[1].headers["accept"] == "application/json"


async def test_delete_some_must_be_told_which(stub: Stub) -> None:
    async with stub.client() as client:
        with pytest.raises(ValueError, match="would delete everything"):
            await client.delete_some(PODS, labels="")
