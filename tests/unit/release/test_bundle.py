"""The files of a release do not depend on where and when they are built."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tools.release import bundle
from tools.release.__main__ import SUMS, checksums, differences
from tools.release.sources import normalized

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def _archive(names: list[str], mtime: int, owner: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid = len(name), mtime, owner
            opened.addfile(member, io.BytesIO(name.encode()))
    return made.getvalue()


def test_a_source_distribution_depends_on_names_and_contents_alone() -> None:
    first = normalized(_archive(["b", "a"], 1, 0), 7)
    assert first == normalized(_archive(["a", "b"], 2, 1000), 7)
    with tarfile.open(fileobj=io.BytesIO(first)) as opened:
        members = opened.getmembers()
        assert [(each.name, each.mtime, each.uid) for each in members] == [("a", 7, 0), ("b", 7, 0)]
        content = opened.extractfile("b")
        assert content is not None
        assert content.read() == b"b"


def test_wheels_are_required_by_version_and_hash(tmp_path: Path) -> None:
    wheel = tmp_path / "kubeletpy-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert bundle.requirements([wheel]) == f"kubeletpy==0.1.0 --hash=sha256:{EMPTY}\n"


def test_records_of_the_installation_are_removed(tmp_path: Path) -> None:
    info = tmp_path / "kubeletpy-0.1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").touch()
    kept = "kubeletpy/cli/main.py,sha256=x,1\n"
    removed = f"../../../bin/kubeletpy,sha256=y,2\n{info.name}/direct_url.json,,\n"
    (info / "RECORD").write_text(removed + kept)
    bundle.forget_installation(tmp_path)
    assert (info / "RECORD").read_text() == kept
    assert [path.name for path in info.iterdir()] == ["RECORD"]


def test_glibc_is_that_of_the_most_demanding_package(tmp_path: Path) -> None:
    for name, tags in (
        ("a", ["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_5_x86_64"]),
        ("b", ["cp311-cp311-manylinux_2_28_x86_64"]),
        ("c", ["py3-none-any"]),
    ):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "WHEEL").write_text("".join(f"Tag: {tag}\n" for tag in tags))
    assert bundle.oldest_glibc(tmp_path) == "2.28"


def test_builds_are_compared_by_their_checksums(tmp_path: Path) -> None:
    for name, more in (("one", "1"), ("two", "2")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "same").write_text("same")
        (folder / "other").write_text(more)
        (folder / f"only-{name}").touch()
        (folder / SUMS).write_text(checksums(folder))
    found = differences(tmp_path / "one", tmp_path / "two")
    assert found == ["only-one", "only-two", "other"]
    assert f"{EMPTY}  only-one\n" in checksums(tmp_path / "one")
