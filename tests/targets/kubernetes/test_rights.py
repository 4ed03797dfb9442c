"""The documented Role is enough for everything that the target does, and it asks for nothing that it does not use."""

import asyncio
import contextlib
import re
from pathlib import Path

import pytest
import yaml
from on_cluster import job, nothing_left

from cluster.cluster import Cluster
from seatrial.job import Input, Limits, Port, Ready
from seatrial.targets import DiagnosticLevel, TargetError
from seatrial.targets.kubernetes import kind
from seatrial.targets.kubernetes.errors import needed
from seatrial.targets.kubernetes.target import KubernetesTarget
from targets.contract import WAIT_S, log_of, until_exit

pytestmark = pytest.mark.cluster
PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"


def documented_role() -> str:
    """The YAML of the page that has a Role in it."""
    found = [text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "kind: Role\n" in text]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def no_rights(real_cluster: Cluster, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig of a service account that may do nothing."""
    real_cluster.kubectl("create", "serviceaccount", "seatrial", "-n", namespace)
    token = real_cluster.kubectl("create", "token", "seatrial", "-n", namespace).stdout.strip()
    config = yaml.safe_load(Path(real_cluster.kubeconfig).read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def with_rights(real_cluster: Cluster, namespace: str, no_rights: Path, tmp_path: Path) -> Path:
    """The same, when an administrator has applied what the page says."""
    role = tmp_path / "role.yaml"
    role.write_text(documented_role().replace("namespace: trials", f"namespace: {namespace}"))
    real_cluster.kubectl("apply", "-f", str(role))
    return no_rights


def target_of(kubeconfig: Path, namespace: str) -> KubernetesTarget:
    return kind.open("cluster", kind.options(kubeconfig=kubeconfig, namespace=namespace, pull="Never"))


async def until_allowed(target: KubernetesTarget) -> None:
    """A right counts a moment after it was given."""
    problems: list[str] = ["not examined yet"]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            while problems:
                problems = [one.why for one in await target.examine() if one.level is DiagnosticLevel.PROBLEM]
    assert problems == []


async def test_with_the_documented_role_everything_works(
    real_cluster: Cluster, namespace: str, with_rights: Path, tmp_path: Path
) -> None:
    target = target_of(with_rights, namespace)
    await until_allowed(target)
    assert {diagnostic.level for diagnostic in await target.examine()} == {DiagnosticLevel.OK}
    await target.open()
    try:
        wanted = job("echo answer; cat test.py > $SEATRIAL_FILES/kept", inputs=(Input(__file__, "test.py"),),
                     secrets={"TOKEN": "token"}, hosts=2)  # fmt: skip
        await target.verify(wanted)
        handle = await target.submit(wanted, {"TOKEN": "hush" * 3})
        assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
        assert b"answer" in await log_of(target, handle)
        assert await target.fetch(handle, "files", tmp_path / "files")
        assert (tmp_path / "files" / "kept").read_bytes() == Path(__file__).read_bytes()
        await target.remove(handle)
        served = job("python3 -m http.server $SEATRIAL_PORT", limits=Limits(run_s=600, grace_s=0.5),
                     ports=(Port("http"),), ready=Ready("http"))  # fmt: skip
        handle = await target.submit(served, {})
        async for event in target.watch():
            if event.time and event.time.stage == "ready":
                break
        async with target.endpoint(handle, "http") as address:
            assert await _answers(address)
        await target.cancel(handle)
        assert (await until_exit(target, handle))[-1].exit.outcome == "cancelled"  # type: ignore[union-attr]
        assert [found.handle for found in await target.list()] == [handle]
        await target.remove(handle)
    finally:
        await target.close()
    await nothing_left(real_cluster, namespace)


async def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read(100)
    writer.close()
    return answer.startswith(b"HTTP/1.0 200")


def test_the_documented_role_has_exactly_the_rights_that_the_target_names(namespace: str) -> None:
    role = next(one for one in yaml.safe_load_all(documented_role()) if one["kind"] == "Role")
    granted = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    wanted = {(right.verb, right.group, right.resource) for right in needed(kind.options(), namespace)}
    assert granted == wanted


async def test_doctor_says_which_rights_are_missing_and_its_yaml_grants_exactly_those(
    real_cluster: Cluster, namespace: str, no_rights: Path, tmp_path: Path
) -> None:
    target = target_of(no_rights, namespace)
    (missing,) = [diagnostic for diagnostic in await target.examine() if diagnostic.level is DiagnosticLevel.PROBLEM]
    assert "create jobs.batch" in missing.why
    grant = tmp_path / "grant.yaml"
    grant.write_text(missing.fix.partition("\n")[2])
    real_cluster.kubectl("apply", "-f", str(grant))
    await until_allowed(target)


async def test_a_right_that_is_missing_is_named_with_what_grants_it(
    real_cluster: Cluster, namespace: str, no_rights: Path
) -> None:
    target = target_of(no_rights, namespace)
    await target.open()
    try:
        with pytest.raises(TargetError, match=r"create.*jobs") as caught:
            await target.submit(job("true"), {})
        assert "kind: Role" in str(caught.value)
    finally:
        await target.close()
