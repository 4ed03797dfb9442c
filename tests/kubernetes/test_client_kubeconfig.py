"""Kubeconfigs in the forms that people have, and in the forms that are wrong."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.http.relay import proxy_of
from seatrial.kubernetes import Access, KubeconfigError, Material, load_access
from seatrial.kubernetes.kubeconfig import in_cluster

PEM = "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443", **(cluster or {})}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **context}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


def loaded(tmp_path: Path, *args: Any, **context: Any) -> Access:
    return load_access(write(tmp_path / "config", config(*args, **context)))


def test_a_context_names_server_user_and_namespace(tmp_path: Path) -> None:
    access = loaded(tmp_path, {"tls-server-name": "kubernetes"}, {"token": "abc"}, namespace="trials")
    assert (access.server, access.namespace, access.context) == ("https://api.example:6443", "trials", "main")
    assert access.tls_server_name == "kubernetes"
    assert access.identity.token == "abc"
    assert not access.insecure


def test_files_of_the_list_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "ca.crt").write_text(PEM)
    first = config(user={"token": "first"})
    del first["current-context"], first["clusters"]
    second = config({"certificate-authority": "ca.crt"}, {"token": "second"})
    second["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "v"}})
    second["users"].append({"name": "v", "user": {"token": "third"}})
    files = [write(tmp_path / "a", first), tmp_path / "missing", write(tmp_path / "sub" / "b", second)]
    env = {"KUBECONFIG": os.pathsep.join(["", *map(str, files)]), "HOME": str(tmp_path)}
    access = load_access(env=env)
    assert access.identity.token == "first"
    assert access.authority == Material(file=tmp_path / "sub" / "ca.crt")  # relative to the file that says it
    assert load_access(context="other", env=env).identity.token == "third"


def test_without_kubeconfig_the_home_is_looked_in(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", config())
    assert load_access(env={"HOME": str(tmp_path)}).server == "https://api.example:6443"


def test_nothing_at_all_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"\.kube/config: kubeconfig not found, and this is not a pod"):
        load_access(env={"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match="named: kubeconfig not found"):
        load_access(tmp_path / "named")


def test_inside_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeconfigError, match="the pod has no service account token"):
        in_cluster(env, tmp_path)
    for name, text in (("token", "t"), ("ca.crt", PEM), ("namespace", "mine\n")):
        (tmp_path / name).write_text(text)
    access = in_cluster(env, tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "mine")
    assert access.identity.token_file == tmp_path / "token"


def test_inline_material_goes_before_files(tmp_path: Path) -> None:
    data = base64.b64encode(PEM.encode()).decode()
    access = loaded(tmp_path, {"certificate-authority-data": data, "certificate-authority": "nowhere"})
    assert access.authority == Material(data=PEM.encode())


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"team": ["x"]}}
    found = loaded(tmp_path, None, user).identity.impersonate
    assert found == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-team", "x"),
    )


@pytest.mark.parametrize(
    ("cluster", "user", "field", "problem"),
    [
        ({"server": ""}, {}, r"clusters\[0\].cluster \(c\).server", "missing; set the address"),
        ({"server": "ftp://x"}, {}, r"\(c\).server", "invalid address"),
        ({"server": "https://x:port"}, {}, r"\(c\).server", "invalid address"),
        ({"server": 5}, {}, r"\(c\).server", "expected `str`, got `int`"),
        ({"certificate-authority": "no.crt"}, {}, r"\(c\).certificate-authority", "file not found: .*/no.crt"),
        ({"certificate-authority-data": "%%%"}, {}, r"\(c\).certificate-authority-data", "invalid base64"),
        ({"certificate-authority-data": "aGVsbG8="}, {}, "certificate-authority-data", "invalid PEM"),
        ({"insecure-skip-tls-verify": "yes"}, {}, "insecure-skip-tls-verify", "expected `bool`, got `str`"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority": "x"},
            {},
            "certificate-authority",
            "file not found",
        ),
        ({"proxy-url": "gopher://x"}, {}, "proxy-url", "must begin with one of http://"),
        ({"proxy-url": "http://[*a]:3128"}, {}, "proxy-url", "use http://host:3128"),
        ({}, {"client-certificate-data": base64.b64encode(PEM.encode()).decode()}, "client-key", "missing; "),
        ({}, {"tokenFile": "none"}, r"users\[0\].user \(u\).tokenFile", "file not found"),
        ({}, {"token": 12345}, r"\(u\).token", "expected `str`, got `int`$"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "v9"}},
            r"\(u\).exec.apiVersion",
            "use client.authentication.k8s.io/v1 or",
        ),
        ({}, {"exec": {"command": "x"}}, r"\(u\).exec.apiVersion", "use client.authentication.k8s.io/v1 or"),
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "exec", "missing required field `command`"),
        (
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "args": [1]}},
            "args",
            "expected `str`",
        ),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider", "'gcp' was removed"),
        ({}, {"as-groups": ["x"]}, r"\(u\).as", "missing; "),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_field(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(KubeconfigError, match=rf"^{tmp_path}/config: .*{field}.*: .*{problem}"):
        loaded(tmp_path, cluster, user)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"current-context": "gone"}, "current-context: unknown context 'gone'; known: main"),
        ({"current-context": None}, "current-context: not set; choose a context: main"),
        (
            {"contexts": [{"name": "main", "context": {"cluster": "d"}}]},
            r"\(main\).cluster: unknown cluster 'd'; known: c",
        ),
        ({"users": []}, r"\(main\).user: unknown user 'u'; known: none"),
        ({"clusters": {"c": {}}}, "clusters: must be a list"),
        ({"clusters": ["c"]}, r"clusters\[0\]: must be a mapping with a name"),
    ],
)
def test_what_does_not_fit_together_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(KubeconfigError, match=problem):
        load_access(write(tmp_path / "config", {**config(), **change}))


def test_insecure_only_when_said_and_never_beside_an_authority(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"insecure-skip-tls-verify": True}).insecure
    data = base64.b64encode(PEM.encode()).decode()
    with pytest.raises(KubeconfigError, match="cannot be combined with certificate-authority"):
        loaded(tmp_path, {"insecure-skip-tls-verify": True, "certificate-authority-data": data})


@pytest.mark.parametrize("text", ["a: [secret-token", "\x00", "- list", "secret-token"])
def test_a_file_that_is_no_kubeconfig_is_told_without_its_content(tmp_path: Path, text: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        load_access(write(tmp_path / "config", text))
    assert "secret-token" not in str(caught.value)
    assert str(tmp_path / "config") in str(caught.value)


def test_no_secret_shows_in_what_is_printed(tmp_path: Path) -> None:
    user = {
        "token": "hush-1",
        "username": "u",
        "password": "hush-2",
        "client-certificate-data": base64.b64encode(PEM.encode()).decode(),
        "client-key-data": base64.b64encode(b"-----BEGIN hush-3").decode(),
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "x",
            "env": [{"name": "A", "value": "hush-4"}],
        },
    }
    assert "hush" not in repr(loaded(tmp_path, None, user))


@pytest.mark.parametrize(
    ("server", "env", "proxy"),
    [
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.example:6443", {"https_proxy": "p:1"}, "http://p:1"),
        ("http://api.example", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other, .example"}, ""),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example"}, ""),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "ample"}, "http://p:1"),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.example:443"}, "http://p:1"),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.example:6443"}, ""),
        ("https://10.1.2.3:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, ""),
        ("https://10.1.2.3:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.2.4"}, "http://p:1"),
        ("https://api.example:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
    ],
)
def test_the_proxy_is_the_one_that_kubectl_would_take(server: str, env: dict[str, str], proxy: str) -> None:
    assert proxy_of(server, env=env) == proxy
    assert proxy_of(server, "socks5://q", env) == "socks5://q"


BOMB = "\n".join(f"b{n}: &b{n} [{','.join([f'*b{n - 1}' if n else 'x'] * 9)}]" for n in range(9))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[" * 40_000 + "]" * 40_000, r"line \d+, column \d+: invalid YAML: nested too deeply \(limit 50 levels\)"),
        ("*b8", r"line \d+, column \d+: invalid YAML: too many values, including aliases \(limit 200,000\)"),
        ("x\n---\na: b", "expected one YAML document, got 2"),
        ("x" * (9 << 20), "larger than 8 MiB"),
    ],
    ids=["nesting", "alias bomb", "two documents", "large"],
)
def test_a_file_beyond_the_limits_is_refused(tmp_path: Path, value: str, why: str) -> None:
    text = f"{BOMB if value.startswith('*') else '#' + chr(10) * 9}\n{yaml.safe_dump(config())}extra: {value}\n"
    with pytest.raises(KubeconfigError, match=why):
        load_access(write(tmp_path / "config", text))
