"""What somebody could try against the dashboard, over real connections."""

import asyncio
import base64
import os
from pathlib import Path
from random import Random
from urllib.parse import quote

import msgspec
import pytest

from seatrial.checks import find_causes
from seatrial.job import CellResult, Finding, Verdict
from seatrial.record.history import open_history
from seatrial.web.access import CannotServe, WebAccess, host_name, read_token
from seatrial.web.files import slug
from web.conftest import Client, cell_result, finished_run, results, serving, write_results

SECRET = "root:x:0:0:this is outside of the runs"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover='alert(3)"
TOKEN = "a-token-of-32-characters-or-so-00"


async def raw(client: Client, request: bytes) -> bytes:
    """The answer to exactly these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request)
    await writer.drain()
    try:
        return await reader.read(1 << 20)
    finally:
        writer.close()
        await writer.wait_closed()


def asked(path: str, host: str = "127.0.0.1", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


TRAVERSALS = [
    "/r/../../secret.txt",
    "/r/%2e%2e",
    "/r/..%2f..%2fsecret.txt",
    "/r/%252e%252e%252fsecret.txt",
    "/r/nightly-1/file/../../../secret.txt",
    "/r/nightly-1/file/cells/00000001/1/../../../../../secret.txt",
    "/r/nightly-1/file/cells/00000001/1/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret.txt",
    "/r/nightly-1/file/cells/00000001/1/..%2f..%2f..%2f..%2fsecret.txt",
    "/r/nightly-1/file/cells/00000001/1/%252e%252e/secret.txt",
    "/r/nightly-1/file/cells/00000001/1/log.txt%00.html",
    "/r/nightly-1%00/file/cells/00000001/1/log.txt",
    "/r/nightly-1/file//etc/passwd",
    "/r/nightly-1/file/%2fetc%2fpasswd",
    "/r/nightly-1/file/cells/00000001/1//etc/passwd",
    "/r/nightly-1/file/cells/00000001/1/link.txt",
    "/r/nightly-1/file/cells/00000001/1/folder/secret.txt",
    "/r/nightly-1/file/cells/00000001/1/job.json",
    "/r/nightly-1/file/plan.json",
    "/r/nightly-1/file/journal.jsonl",
    "/r/linked/file/cells/00000001/1/log.txt",
    "/r/history.db",
    "/r/.begun-nightly",
    "/log/nightly-1/..%2f..%2f/1",
    "/log/nightly-1/00000001/1%2f..%2f..",
    "/log/%2e%2e/00000001/1",
    "/d/..%2fnightly-1..nightly-1",
    "/s/..%2f..%2fetc",
    "/assets/../../etc/passwd",
    "/\\..\\..\\secret.txt",
]


@pytest.fixture
async def attacked(runs: Path) -> Path:
    """A run, a secret beside the folder of runs, and links to it wherever a job or a user could put one."""
    folder = await finished_run(runs, "nightly-1", [cell_result("train", 1)])
    secret = runs.parent / "secret.txt"
    secret.write_text(SECRET)
    attempt = folder.attempt("00000001", 1)
    (attempt / "job.json").write_text(SECRET)
    (attempt / "link.txt").symlink_to(secret)
    (attempt / "folder").symlink_to(runs.parent)
    elsewhere = runs.parent / "elsewhere"
    outside = await finished_run(elsewhere, "linked", [cell_result("train", 1)])
    (outside.attempt("00000001", 1) / "log.txt").write_text(SECRET)
    (runs / "linked").symlink_to(elsewhere / "linked")
    return runs


async def test_no_path_leads_out_of_the_runs(attacked: Path) -> None:
    async with serving(attacked) as client:
        for path in TRAVERSALS:
            answer = await raw(client, asked(path))
            assert status(answer) in (400, 404), f"{path}: {answer[:80]!r}"
            assert SECRET.encode() not in answer, path
            assert b"Traceback" not in answer, path
        assert (await client.get("/r/nightly-1/file/cells/00000001/1/log.txt")).status == 200


async def test_a_pipe_in_place_of_a_log_is_not_waited_for(attacked: Path) -> None:
    path = attacked / "nightly-1" / "cells" / "00000001" / "1" / "log.txt"
    path.unlink()
    os.mkfifo(path)
    async with serving(attacked) as client:
        assert (await client.get("/r/nightly-1/file/cells/00000001/1/log.txt")).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "169.254.169.254", "a b", "[::1"]
)
async def test_another_host_is_refused(client: Client, host: str) -> None:
    assert status(await raw(client, asked("/", host=host))) in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8642", "[::1]:80", "LOCALHOST", "127.0.0.2"])
async def test_names_of_this_machine_are_taken(client: Client, host: str) -> None:
    assert status(await raw(client, asked("/", host=host))) == 200


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_a_log_that_is_none_is_nowhere_in_the_report(runs: Path, kind: str) -> None:
    folder = await finished_run(runs, "nightly-1", [cell_result("train", 1, Verdict.FAILED)])
    secret, path = runs.parent / "secret.txt", folder.attempt("00000001", 1) / "log.txt"
    secret.write_text(SECRET)
    path.unlink()
    path.symlink_to(secret) if kind == "link" else os.mkfifo(path)
    async with serving(runs) as client:
        for address in ("/r/nightly-1", "/r/nightly-1/piece/cell/00000001", "/r/nightly-1/piece/view/cells"):
            answer = await client.get(address)
            assert answer.status == 200
            assert SECRET not in answer.text
        for address in ("/log/nightly-1/00000001/1", "/r/nightly-1/file/cells/00000001/1/log.html"):
            assert (await client.get(address)).status == 404


async def test_a_request_without_a_host_is_refused(client: Client) -> None:
    assert status(await raw(client, b"GET / HTTP/1.0\r\n\r\n")) in (400, 421)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_only_get_is_answered(client: Client, method: str) -> None:
    for path in ("/", "/r/nightly-1", "/events", "/nothing"):
        answer = await raw(client, asked(path, method=method, more="Content-Length: 0\r\n"))
        assert status(answer) in (400, 405), path


async def test_head_has_no_body(client: Client) -> None:
    head, _, body = (await raw(client, asked("/", method="HEAD"))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


async def test_huge_requests_are_refused_and_nobody_else_minds(client: Client) -> None:
    big = "x" * 100_000
    for request in (
        asked(f"/r/{big}"),
        asked("/", more=f"X-Big: {big}\r\n"),
        asked("/", more="".join(f"X-{number}: y\r\n" for number in range(20_000))),
        asked(f"/s/{'y' * 5_000}"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0" * 5_000 + b"\r\n\r\n",
    ):
        answer = await raw(client, request)
        assert status(answer) != 200, request[:40]
        assert b"Traceback" not in answer
    assert (await client.get("/")).status == 200


async def test_requests_that_never_end_stop_nobody(client: Client) -> None:
    slow = [await asyncio.open_connection("127.0.0.1", client.port) for _ in range(50)]
    for _, writer in slow:
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    for path in ("/", "/s/nightly", "/r/nightly-1"):
        assert (await client.get(path)).status == 200
    for _, writer in slow:
        writer.close()


def hostile_cell() -> CellResult:
    base = cell_result("train", 1, Verdict.FAILED)
    finding = Finding(HOSTILE, HOSTILE, Verdict.FAILED, "x", HOSTILE, HOSTILE)
    return CellResult(
        HOSTILE,
        base.hash,
        {HOSTILE: HOSTILE},
        Verdict.FAILED,
        trial=HOSTILE,
        why=HOSTILE,
        attempts=base.attempts,
        findings=[finding],
        metrics={HOSTILE: {"value": 1.0, "unit": HOSTILE, "better": "lower", "source": HOSTILE}},
        benchmark=HOSTILE,
        fingerprint=HOSTILE,
    )


async def test_what_a_job_or_a_suite_says_is_text_on_every_page(runs: Path) -> None:
    for number in (1, 2):
        folder = await finished_run(runs, f"nightly-{number}", [hostile_cell()])
        found = results(folder.run, [hostile_cell()], 1_700_000_000.0 + number, suite=HOSTILE)
        found = msgspec.structs.replace(found, commit=HOSTILE, causes=find_causes(found.cells))
        write_results(folder, found, log=HOSTILE)
        open_history(runs / "history.db").add(found)
    async with serving(runs) as client:
        home = (await client.get("/")).text
        suite = home.partition('href="s/')[2].partition('"')[0]
        cell = (await client.get(f"/s/{suite}")).text.partition('href="../c/')[2].partition('"')[0]
        metric = (await client.get(f"/c/{cell}")).text.partition('href="../../f/')[2].partition('"')[0]
        paths = ["/", f"/s/{suite}", f"/c/{cell}", f"/f/{metric}", "/r/nightly-1", "/d/nightly-1..nightly-2"]
        paths += ["/r/nightly-1/piece/cell/00000001", "/log/nightly-1/00000001/1"]
        paths += ["/?range=all", "/search?q=script", f"/search?q={quote(HOSTILE)}", f"/?suite={quote(HOSTILE)}"]
        for path in paths:
            page = await client.get(path)
            assert page.status == 200, path
            assert "<script>alert" not in page.text, path
            assert "<img" not in page.text, path
            assert "onmouseover='" not in page.text, path
            policy = page.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert page.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["page.html", "page.HTML", "drawing.svg", "page.xhtml", "noname", "a.js", "a.xml", "a.pdf"]
)
async def test_a_page_that_a_job_made_is_never_one_of_ours(runs: Path, name: str) -> None:
    folder = await finished_run(runs, "nightly-1", [cell_result("train", 1)])
    kept = folder.attempt("00000001", 1) / "files"
    kept.mkdir()
    (kept / name).write_text("<html><script>alert(1)</script></html>")
    async with serving(runs) as client:
        answer = await client.get(f"/r/nightly-1/file/cells/00000001/1/files/{name}")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"] == "attachment"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox;")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_every_answer_has_the_headers(client: Client) -> None:
    for path in ("/", "/nothing", "/s/nope", "/r/nightly-1/file/cells/00000004/1/log.txt", "/r/nightly-1"):
        headers = (await client.get(path)).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["X-Frame-Options"] == "DENY", path
        assert headers["Referrer-Policy"] == "no-referrer", path
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
        assert "Access-Control-Allow-Origin" not in headers, path


async def test_a_token_is_asked_for_in_every_request(runs: Path) -> None:
    await finished_run(runs, "nightly-1", [cell_result("train", 1)])
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    async with serving(runs, token=TOKEN) as client:
        for path in ("/", "/r/nightly-1", "/events", "/r/nightly-1/file/cells/00000001/1/log.txt", "/nothing"):
            refused = await client.get(path)
            assert refused.status == 401, path
            assert refused.headers["WWW-Authenticate"].startswith("Basic"), path
            assert "nightly" not in refused.text
        for given in (f"Bearer {TOKEN}x", "Bearer ", "Basic !!!", f"Basic {basic[:-8]}", f"Digest {TOKEN}", TOKEN):
            assert (await client.get("/", headers={"Authorization": given})).status == 401, given
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            assert (await client.get("/", headers={"Authorization": given})).status == 200, given


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "host.example"):
        with pytest.raises(CannotServe, match="needs a token"):
            WebAccess.of(host)
        assert WebAccess.of(host, TOKEN).token == TOKEN
    with pytest.raises(CannotServe, match="minimum 16"):
        WebAccess.of("0.0.0.0", "short")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token({}, file) == TOKEN
    assert read_token({"SEATRIAL_SERVE_TOKEN": TOKEN}) == TOKEN
    for bad in ("", "two words\n"):
        file.write_text(bad)
        with pytest.raises(CannotServe, match="invalid token"):
            read_token({}, file)
    with pytest.raises(CannotServe, match="cannot read"):
        read_token({}, tmp_path / "none")


def test_hosts_are_read_as_browsers_write_them() -> None:
    assert [host_name(one) for one in ("a:1", "[::1]:2", "A.example.", "a:x", "u@a", "a/b", None)] == [
        "a",
        "::1",
        "a.example",
        None,
        None,
        None,
        None,
    ]
    far = WebAccess.of("0.0.0.0", TOKEN, ["dash.example"])
    assert far.knows_host("10.1.2.3:8642")
    assert far.knows_host("dash.example")
    assert not far.knows_host("rebound.example")


ROUTES = (
    "/{}",
    "/r/{}",
    "/r/{}/events",
    "/r/nightly-1/piece/{}",
    "/r/nightly-1/file/cells/{}",
    "/s/{}",
    "/c/nightly/{}",
)
ROUTES += ("/c/{}/00000001", "/f/{}/{}", "/d/{}..{}", "/d/nightly-1..{}", "/log/nightly-1/{}/{}", "/log/{}/00000001/1")
NASTY = (
    "..",
    "%00",
    "%2f",
    "%5c",
    "%ff",
    "%c3%28",
    "'",
    "%22",
    "<",
    "%0a",
    "%0d%0a",
    "#",
    "?",
    "*",
    "nightly-1",
    "{0}",
    "%s",
    "é",
)


async def test_no_address_breaks_a_page(attacked: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The same addresses every time."""
    random = Random(7)
    async with serving(attacked) as client:
        for number in range(400):
            parts = ["".join(random.choices(NASTY, k=random.randint(1, 4))) for _ in range(2)]
            path = ROUTES[number % len(ROUTES)].format(*parts)
            answer = await raw(client, asked(path))
            assert status(answer) in (200, 400, 404), f"{path}: {answer[:80]!r}"
            assert SECRET.encode() not in answer, path
    assert "Traceback" not in capfd.readouterr().err


async def alert(runs: Path) -> str:
    """The address of a metric with an alert in run nightly-1 and a hostile name."""
    cells = [cell_result("train", 0, Verdict.SLOWER)]
    await finished_run(runs, "nightly-1", cells)
    return f"/f/{slug(cells[0].benchmark)}/step_time"


GIVEN = {"run": "nightly-1", "label": "false-alarm", "reason": HOSTILE, "by": "ann"}


async def test_alerts_cannot_be_reviewed_unless_it_is_allowed(runs: Path) -> None:
    path = await alert(runs)
    async with serving(runs) as client:
        page = await client.get(path)
        assert 'method="post"' not in page.text
        assert "--allow-review" in page.text
        answer = await client.get(path, method="POST", data={**GIVEN, "token": ""})
        assert answer.status == 405
    assert open_history(runs / "history.db").marks() == []


async def test_a_review_needs_the_token_of_its_form_and_all_fields(runs: Path) -> None:
    path, history = await alert(runs), open_history(runs / "history.db")
    async with serving(runs, review_token="its-token") as client:
        form = {**GIVEN, "token": "its-token"}
        refused = [
            (403, {**form, "token": ""}, {}),
            (403, {**form, "token": "its-tokeN"}, {}),
            (403, {**form, "token": "\udcff"}, {}),
            (403, form, {"Sec-Fetch-Site": "cross-site"}),
            (403, form, {"Sec-Fetch-Site": "same-site"}),
            (421, form, {"Host": "evil.example"}),
            (400, {**form, "run": "nightly-2"}, {}),
            (400, {**form, "label": "fixed"}, {}),
            (400, {**form, "reason": "  \x1b[0m"}, {}),
            (400, {**form, "by": ""}, {}),
            (413, {**form, "reason": "x" * 20_000}, {}),
        ]
        for status_, fields, headers in refused:
            body = "&".join(f"{name}={quote(value, errors='replace')}" for name, value in fields.items())
            headers |= {"Content-Type": "application/x-www-form-urlencoded"}
            assert (await client.get(path, method="POST", data=body, headers=headers)).status == status_, fields
        for other in ("/", "/r/nightly-1", "/f/none/none"):
            assert (await client.get(other, method="POST", data=form)).status in (404, 405)
        assert history.marks() == []
        answer = await client.get(path, method="POST", data=form, allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, path)
        page = (await client.get(path)).text
    (mark,) = history.marks()
    assert (mark.run, mark.label, mark.reason, mark.by) == ("nightly-1", "false-alarm", HOSTILE, "ann (dashboard)")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page


async def test_a_review_needs_the_token_of_the_server_too(runs: Path) -> None:
    path = await alert(runs)
    async with serving(runs, TOKEN, review_token="its-token") as client:
        form = {**GIVEN, "token": "its-token"}
        assert (await client.get(path, method="POST", data=form)).status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = await client.get(path, method="POST", data=form, headers=headers, allow_redirects=False)
        assert answer.status == 303
