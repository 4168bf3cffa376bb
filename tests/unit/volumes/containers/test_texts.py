"""Texts that the agent writes and parses: downward values, env files, hosts files."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.host.mount_table import MountPoint, is_shared, parse
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.containers.container_mounts import hosts_text, is_managed, write_hosts
from kubeletpy.volumes.containers.environment import EnvFileError, parse_env_file
from kubeletpy.volumes.files.disk import mount, mounts_below, share, unmount
from kubeletpy.volumes.pod_volumes.payload import format_map, quoted


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("plain", '"plain"'),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("a\nb\tc\r", '"a\\nb\\tc\\r"'),
        ("a\\b", '"a\\\\b"'),
        ('a"b', '"a\\"b"'),
        ("\x00\x1f\x7f", '"\\x00\\x1f\\x7f"'),
        ("\x80\uffff\U0001d173", '"\\u0080\\uffff\\U0001d173"'),
        ("grün 日本", '"grün 日本"'),
        ("\u200b\U000e0001", '"\\u200b\\U000e0001"'),
    ],
)
def test_quoted(text: str, literal: str) -> None:
    assert quoted(text) == literal


def test_maps_are_sorted_lines() -> None:
    assert format_map({"b": "2", "a": "1"}) == 'a="1"\nb="2"'
    assert format_map({}) == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K='v'", "v"),
        ("  \tK='v' # comment\n", "v"),
        ("# c\n\n   \nA='1'\nK='v'\n", "v"),
        ("K='first'\nK='second'", "first"),
        ("K='one\ntwo'\n", "one\ntwo"),
        ("A='x\nK='\nK='v'", "v"),
        ("K='a#b\\n$X'", "a#b\\n$X"),
        ("K=''", ""),
        ("K= 'v'", ""),
        ("A= junk\nK='v'", "v"),
        ("A='1'\r\nK='v'\r\n", "v"),
        ("A='1'", None),
        ("", None),
    ],
)
def test_env_files(text: str, value: str | None) -> None:
    assert parse_env_file(text).get("K") == value


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("K", "line 1: '=' is missing"),
        ("\n\n='v'", "line 3: the name is empty"),
        ("K ='v'", "line 1: whitespace before '='"),
        ("A='x\ny'\nK=v", "line 3: the value must be in single quotes"),
        ("K=", "line 1: the value must be in single quotes"),
        ("A='1'\nK='v", "line 2: the single quote is not closed"),
        ("K='v' x", "line 1: there is text after"),
    ],
)
def test_malformed_env_files(text: str, where: str) -> None:
    with pytest.raises(EnvFileError) as caught:
        parse_env_file(text).get("K")
    assert where in str(caught.value)


def test_an_env_file_is_read_up_to_where_it_is_malformed() -> None:
    found = parse_env_file("A='1'\nB=2\nC='3'\n")
    assert found.get("A") == "1"
    with pytest.raises(EnvFileError, match="line 2"):
        found.get("C")


def make_pod(**spec: Any) -> Pod:
    metadata = {"name": "web-0", "namespace": "ns", "uid": "u"}
    return Pod(cast(Any, {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}))


LOCAL = """# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
ALIASES = [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}, {"ip": "::5", "hostnames": ["c"]}]
ALIAS_TEXT = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n::5\tc\n"


@pytest.mark.parametrize(
    ("spec", "ips", "text"),
    [
        ({}, ("10.0.0.1",), LOCAL + "10.0.0.1\tweb-0\n"),
        ({}, ("10.0.0.1", "fd00::1"), LOCAL + "10.0.0.1\tweb-0\nfd00::1\tweb-0\n"),
        (
            {"hostname": "h", "subdomain": "s"},
            ("10.0.0.1",),
            LOCAL + "10.0.0.1\th.s.ns.svc.cluster.local\th\n",
        ),
        ({"hostAliases": ALIASES}, ("10.0.0.1",), LOCAL + "10.0.0.1\tweb-0\n" + ALIAS_TEXT),
        (
            {"hostNetwork": True, "hostAliases": ALIASES},
            ("192.0.2.1",),
            "# Kubernetes-managed hosts file (host network).\nof the node\n" + ALIAS_TEXT,
        ),
    ],
)
def test_hosts_files(spec: dict[str, Any], ips: tuple[str, ...], text: str) -> None:
    assert hosts_text(make_pod(**spec), ips, "cluster.local", "of the node\n") == text


@pytest.mark.parametrize(
    ("spec", "mounts", "ips", "managed"),
    [
        ({}, [], ("10.0.0.1",), True),
        ({}, [], (), False),
        ({"hostNetwork": True}, [], (), True),
        ({}, [{"name": "v", "mountPath": "/etc/hosts"}], ("10.0.0.1",), False),
    ],
)
def test_containers_with_a_managed_hosts_file(
    spec: dict[str, Any], mounts: list[Any], ips: tuple[str, ...], managed: bool
) -> None:
    assert is_managed(make_pod(**spec), {"volumeMounts": mounts}, ips) is managed


@pytest.mark.usefixtures("strict_umask")
def test_a_hosts_file_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pod" / "etc-hosts"
    write_hosts(str(path), "one long text\n")
    inode = path.stat().st_ino
    write_hosts(str(path), "two\n")
    assert (path.read_text(), path.stat().st_ino) == ("two\n", inode)
    assert path.stat().st_mode & 0o777 == 0o644


def mount_table() -> list[MountPoint]:
    return parse(Path("/proc/self/mountinfo").read_bytes())


def test_a_directory_is_shared_once_and_hides_nothing(tmp_path: Path) -> None:
    root, full = tmp_path / "root", tmp_path / "full"
    (full / "below").mkdir(parents=True)
    root.mkdir()
    mount("tmpfs", str(full / "below"), "tmpfs")
    machine = is_shared(mount_table(), str(tmp_path))
    try:
        share(str(root))
        mounted = mounts_below(str(root))
        share(str(root))
        assert mounts_below(str(root)) == mounted
        assert is_shared(mount_table(), str(root / "pods"))
        with nullcontext() if machine else pytest.raises(OSError, match="mounts below"):
            share(str(full))
        assert mounts_below(str(full)) == [str(full / "below")]
    finally:
        for point in mounts_below(str(tmp_path)):
            unmount(point)


# Files of environment variables, line by line.


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("\n\n", {}),
        ("# K='v'\n  # K='v'\n", {}),
        ("K='v'", {"K": "v"}),
        ("K='v'\n", {"K": "v"}),
        ("K='v'\r\nL='w'\r\n", {"K": "v", "L": "w"}),
        ("  K='v'", {"K": "v"}),
        ("K=''", {"K": ""}),
        ("K='v'\nK='w'", {"K": "v"}),
        ("K='v' # says why\nL='w'# so", {"K": "v", "L": "w"}),
        ("K='v'  \nL='w'", {"K": "v", "L": "w"}),
        ("K= 'v'\nL='w'", {"K": "", "L": "w"}),
        ("K=\t'v'", {"K": ""}),
        ("K='a\nb'\nL='w'", {"K": "a\nb", "L": "w"}),
        ("K='# no'", {"K": "# no"}),
        ("K='a=b'", {"K": "a=b"}),
    ],
)
def test_files_that_are_well_made(text: str, values: dict[str, str]) -> None:
    found = parse_env_file(text)
    assert (dict(found.values), found.problem) == (values, "")
    assert found.get("none") is None


MISSING, EMPTY = "'=' is missing", "the name is empty"
BLANKS, QUOTES = "whitespace before '=' is not allowed", "the value must be in single quotes"
OPEN, MORE = "the single quote is not closed", "there is text after the closing quote"


@pytest.mark.parametrize(
    ("text", "line", "what", "values"),
    [
        ("K", 1, MISSING, {}),
        ("K='v'\nL", 2, MISSING, {"K": "v"}),
        ("\n\n# x\nL", 4, MISSING, {}),
        ("K= x\nL", 2, MISSING, {"K": ""}),
        ("K='a\nb\nc'\nL", 4, MISSING, {"K": "a\nb\nc"}),
        ("K='a\nb'\n\n='x'", 4, EMPTY, {"K": "a\nb"}),
        (" ='x'", 1, EMPTY, {}),
        ("K ='x'", 1, BLANKS, {}),
        ("K=", 1, QUOTES, {}),
        ("K=x", 1, QUOTES, {}),
        ('K="x"', 1, QUOTES, {}),
        ("K='x", 1, OPEN, {}),
        ("K='", 1, OPEN, {}),
        ("K='x\nL=", 1, OPEN, {}),
        ("K='x'y", 1, MORE, {}),
        ("K='x' y", 1, MORE, {}),
        ("K='a\nb'c", 1, MORE, {}),
        ("K='x''", 1, MORE, {}),
    ],
)
def test_where_a_file_is_malformed(text: str, line: int, what: str, values: dict[str, str]) -> None:
    found = parse_env_file(text)
    assert dict(found.values) == values
    assert found.problem == f"invalid environment variable format at line {line}: {what}"
    for name, value in values.items():
        assert found.get(name) == value
    with pytest.raises(EnvFileError, match=f"at line {line}: "):
        found.get("none")
