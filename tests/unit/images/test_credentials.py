"""The keyring: which credentials match which image, in which order."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from kubeletpy.images.credentials import (
    MAX_GLOBS,
    MAX_KEYS,
    Config,
    Credential,
    Keyring,
    MalformedPullSecret,
    SecretSource,
    decode_pull_secret,
    distinct,
    find_credentials,
    parse_docker_config,
)

KINDS = "kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg"


def of_node(*configs: Config) -> Keyring:
    """A keyring of the node's own documents."""
    return Keyring((each, None) for each in configs)


def entry(name: str) -> dict[str, object]:
    return {"username": name, "password": "p"}


@pytest.mark.parametrize(
    ("registry", "repository", "fits"),
    [
        ("https://index.docker.io/v1/", "docker.io/library/busybox", True),
        ("docker.io", "docker.io/library/busybox", True),
        ("docker.io/library", "docker.io/library/busybox", True),
        ("docker.io/other", "docker.io/library/busybox", False),
        ("reg.example.com", "reg.example.com/a/b", True),
        ("http://reg.example.com/v2/", "reg.example.com/a/b", True),
        ("reg.example.com", "reg.example.com:5000/a", False),
        ("reg.example.com:5000", "reg.example.com:5000/a", True),
        ("reg.example.com:5000", "reg.example.com/a", False),
        ("*.example.com", "reg.example.com/a", True),
        ("*.example.com", "a.reg.example.com/a", False),
        ("*.*.example.com", "a.reg.example.com/a", True),
        ("*", "reg.example.com/a", False),
        ("reg.example.com/team", "reg.example.com/team/app", True),
        ("reg.example.com/team", "reg.example.com/other/app", False),
        ("reg.example.com/team", "reg.example.com/team", True),
        ("reg.example.com/team", "reg.example.com/teams/app", False),
        ("reg.example.com/team", "reg.example.com/team-b", False),
        ("reg.example.com/team", "reg.example.com/team-b/app", False),
        ("reg.example.com/team/app", "reg.example.com/team", False),
        ("reg.example.com/team/../other", "reg.example.com/other/app", False),
        ("reg.example.com/..", "reg.example.com/other/app", False),
        ("reg.example.com//team", "reg.example.com/team/app", False),
        ("reg.example.com/v1/v2/app", "reg.example.com/app", False),
        ("https://reg.example.com/team/", "reg.example.com/team/app", True),
        ("reg.example.com/Team", "reg.example.com/team/app", False),
        ("Reg.Example.com/team", "reg.example.com/team/app", True),
        ("reg.example.com/team", "REG.example.com/team/app", True),
        ("ftp://reg.example.com", "reg.example.com/team/app", False),
        ("reg.example.com.evil", "reg.example.com/a", False),
        ("evil.com/reg.example.com", "reg.example.com/a", False),
        ("reg.example.com/team/", "reg.example.com/team/app", True),
        ("reg.example.com/team/", "reg.example.com/teams/app", False),
        ("127.0.0.1:5000", "127.0.0.1:5000/busybox", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("[::1]:5000", "1:5000/a", False),
        ("reg.example.com:*", "reg.example.com:5000/a", False),
        ("[^r]eg.example.com", "reg.example.com/a", False),
        ("[^r]eg.example.com", "beg.example.com/a", True),
        ("[!b]eg.example.com", "reg.example.com/a", False),
        ("[!b]eg.example.com", "beg.example.com/a", True),
        ("reg.example.com/team*", "reg.example.com/team-b/app", False),
        ("https://index.docker.io/v1/other", "docker.io/library/busybox", False),
        ("index.docker.io/library", "docker.io/library/busybox", True),
        ("index.docker.io", "reg.example.com/a", False),
        ("index.docker.io:5000", "docker.io/library/busybox", False),
        ("", "reg.example.com/a", False),
    ],
)
def test_match(registry: str, repository: str, fits: bool) -> None:
    assert bool(of_node({registry: entry("u")}).lookup(repository)) is fits


def test_globs_made_to_cost_time_are_left_out() -> None:
    many = {"[!b]" * 60 + f"*{number:08}": entry("u") for number in range(MAX_GLOBS)}
    plain = {f"{number}.example.com": entry("u") for number in range(MAX_KEYS // 2)}
    keyring = of_node(many, {"*.example.com": entry("late"), **plain})
    assert not keyring.lookup("reg.example.com/a"), "the glob that is one too many"
    assert keyring.lookup("999.example.com/a"), "plain names are not counted with them"
    assert not of_node({"*" * 256: entry("u")}).lookup("reg/a")


def test_globs_and_registries_are_bounded() -> None:
    globs = {f"*.{number}.example": entry("u") for number in range(MAX_GLOBS)}
    keyring = of_node({**globs, "*.io": entry("late")})
    assert keyring.lookup(f"a.{MAX_GLOBS - 1}.example/x")
    assert not keyring.lookup("reg.io/x")
    plain = {f"{number}.example": entry("u") for number in range(MAX_KEYS + 1)}
    keyring = of_node(plain)
    assert keyring.lookup(f"{MAX_KEYS - 1}.example/x")
    assert not keyring.lookup(f"{MAX_KEYS}.example/x")


@pytest.mark.parametrize("field", ["username", "password", "identitytoken"])
def test_a_login_that_no_message_can_encode_is_left_out(field: str) -> None:
    assert not of_node({"r.io": {"username": "me", field: "\ud800"}}).lookup("r.io/a")


def test_most_specific_first_and_pods_before_the_nodes() -> None:
    pod = of_node({"r.io": entry("host"), "r.io/a/b": entry("deep")}, {"r.io/a": entry("mid")})
    node = of_node({"r.io/a/b/c": entry("node"), "r.io": entry("host")})
    found = find_credentials([pod, node], "r.io/a/b/c")
    assert [c.username for c in found] == ["deep", "mid", "host", "node", "host"]
    assert [c.username for c in distinct(found)] == ["deep", "mid", "host", "node"]


def test_a_longer_path_comes_before_an_exact_host() -> None:
    logins = {name: entry(name) for name in ("r.io", "*.io", "*.io/a", "[r].io/a/b")}
    assert [c.username for c in of_node(logins).lookup("r.io/a/b/c")] == [
        "[r].io/a/b",
        "*.io/a",
        "r.io",
        "*.io",
    ]


def test_credentials_contain_their_source() -> None:
    first, second = SecretSource("u1", "ns", "a"), SecretSource("u2", "ns", "b")
    same = {"r.io": entry("u")}
    own = Keyring([(same, first), (same, second)])
    found = find_credentials([own, of_node(same)], "r.io/x")
    assert [c.source for c in found] == [first, second, None]
    assert [c.source for c in distinct(found)] == [first]


@pytest.mark.parametrize(
    ("credential", "json_text"),
    [
        (Credential("u", "p"), b'{"username":"u","password":"p"}'),
        (Credential("", "p"), b'{"password":"p"}'),
        (Credential("ü", 'a"b\\c'), '{"username":"ü","password":"a\\"b\\\\c"}'.encode()),
        (Credential("<&>", "\u2028"), rb'{"username":"\u003c\u0026\u003e","password":"\u2028"}'),
    ],
)
def test_fingerprints_are_the_kubelets(credential: Credential, json_text: bytes) -> None:
    """The kubelet hashes its own JSON of the login, so its records stay valid."""
    assert credential.fingerprint == hashlib.sha256(json_text).hexdigest()


def test_forms_of_an_entry() -> None:
    def one(value: object) -> list[Credential]:
        return of_node({"r.io": value}).lookup("r.io/x")

    auth = base64.b64encode(b"me:se:cret").decode()
    assert one({"auth": auth}) == [Credential("me", "se:cret")]
    assert one({"auth": auth.rstrip("="), "username": "other"}) == [Credential("me", "se:cret")]
    assert one({"identitytoken": "t"}) == [Credential("", "", "t")]
    assert one({"username": "u"}) == [Credential("u")]
    assert one({"password": "p"}) == [Credential("", "p")]
    assert one({"auth": "", "username": "u"}) == one({"auth": 5, "username": "u"})
    assert one({"auth": "", "username": "u"}) == [Credential("u")]
    garbage = f"{auth[:4]}%%%%{auth[4:]}"
    for nonsense in (
        None,
        3,
        {},
        {"auth": garbage},
        {"auth": "%%"},
        {"auth": "bm9jb2xvbg=="},
        {"username": 5},
    ):
        assert one(nonsense) == []


def test_a_complete_document_is_accepted() -> None:
    assert of_node({"auths": {"r.io": entry("u")}}).lookup("r.io/x")


def test_nothing_secret_is_shown() -> None:
    login = Credential("me", "hunter2", "tok-hunter2")
    assert "hunter2" not in repr(login)
    assert login.secrets == ("hunter2", "tok-hunter2")
    assert Credential("me", "hunter2").secrets == ("hunter2",)


def test_secret_formats() -> None:
    auths = {"r.io": entry("u")}

    def secret(kind: str, key: str, document: object) -> dict[str, object]:
        data = base64.b64encode(json.dumps(document).encode()).decode()
        return {"type": f"kubernetes.io/{kind}", "data": {key: data}}

    modern = secret("dockerconfigjson", ".dockerconfigjson", {"auths": auths})
    assert decode_pull_secret(modern) == auths
    assert decode_pull_secret(secret("dockercfg", ".dockercfg", auths)) == auths
    assert parse_docker_config(json.dumps({"auths": auths})) == auths
    assert parse_docker_config(json.dumps(auths)) == auths


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (None, None, f"type is None, not {KINDS}"),
        ("Opaque", {".dockercfg": "e30="}, f"type is 'Opaque', not {KINDS}"),
        ("kubernetes.io/dockercfg", None, "data has no .dockercfg"),
        ("kubernetes.io/dockercfg", [".dockercfg"], "data has no .dockercfg"),
        ("kubernetes.io/dockercfg", {".dockercfg": 5}, "data has no .dockercfg"),
        ("kubernetes.io/dockercfg", {".dockercfg": "%%%"}, ".dockercfg is not base64"),
        ("kubernetes.io/dockercfg", {".dockercfg": "%%%%e30="}, ".dockercfg is not base64"),
        ("kubernetes.io/dockercfg", {".dockercfg": "aHVudGVyMg=="}, ".dockercfg is not JSON"),
        ("kubernetes.io/dockercfg", {".dockercfg": "WzFd"}, ".dockercfg is not a JSON object"),
        ("kubernetes.io/dockerconfigjson", {}, "data has no .dockerconfigjson"),
        (
            "kubernetes.io/dockerconfigjson",
            {".dockerconfigjson": base64.b64encode(b'{"auths": ["hunter2"]}').decode()},
            ".dockerconfigjson: auths is not a JSON object",
        ),
    ],
)
def test_malformed_secret_is_named_but_not_quoted(kind: object, data: object, problem: str) -> None:
    with pytest.raises(MalformedPullSecret) as caught:
        decode_pull_secret({"type": kind, "data": data})
    assert str(caught.value) == problem
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_how_long_a_document_may_be() -> None:
    longest = "{}".ljust(1 << 20)
    assert parse_docker_config(longest) == {}
    with pytest.raises(MalformedPullSecret, match=r"^docker config is longer than 1048576 bytes$"):
        parse_docker_config(f"{longest} ")
