"""``kubeletpy logs``."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from pathlib import Path

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.cli import pod_logs

POD = "shop_web_11111111-2222-3333-4444-555555555555"


def line(text: str, ago: float = 0.0) -> str:
    return f"{format_time(time.time() - ago)} stdout F {text}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pod with two runs; the last one has been rotated twice."""
    made = tmp_path / "pods"
    folder = made / POD / "main"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text(line("the run before", 7000))
    packed = folder / "1.log.20260101-000000.gz"
    packed.write_bytes(gzip.compress(line("oldest", 3600).encode()))
    os.utime(packed, (1, 1))
    rotated = folder / "1.log.20260102-000000"
    rotated.write_text(line("older", 600))
    os.utime(rotated, (2, 2))
    (folder / "1.log").write_text(line("old", 60) + line("new"))
    return made


def logs(root: Path, *arguments: str) -> int:
    return pod_logs.main(["--pod-logs-dir", str(root), *arguments])


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ((), ["oldest", "older", "old", "new"]),
        (("--tail", "3"), ["older", "old", "new"]),
        (("--tail", "-1"), ["oldest", "older", "old", "new"]),
        (("--tail", "0"), []),
        (("--since", "2m"), ["old", "new"]),
        (("--previous",), ["the run before"]),
        (("-c", "main", "--tail", "1"), ["new"]),
    ],
)
def test_files_are_read_in_order(
    arguments: tuple[str, ...], texts: list[str], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs(root, "-n", "shop", "web", *arguments) == 0
    assert capsys.readouterr().out.splitlines() == texts


@pytest.mark.parametrize("pod", ["shop/web", POD.rpartition("_")[2], "pod/web"])
def test_a_pod_has_three_spellings(
    pod: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs(root, pod, "-n", "shop", "--tail=1") == 0
    assert capsys.readouterr().out == "new\n"


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--tail=x", "argument --tail: x is not a number of lines"),
        ("--since=x", "argument --since: "),
    ],
)
def test_a_wrong_option_is_refused_in_words(
    option: str, error: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        logs(root, "shop/web", option)
    refusal = capsys.readouterr().err
    assert error in refusal
    assert "_" not in refusal.splitlines()[-1]


def test_the_newest_pod_of_a_name_is_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = root / "shop_web_0" / "main"
    newer.mkdir(parents=True)
    (newer / "0.log").write_text(line("replacement"))
    os.utime(newer.parent, (time.time() + 5, time.time() + 5))
    assert logs(root, "shop/web") == 0
    assert capsys.readouterr().out == "replacement\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("web",), "has no log of a pod default/web; use -n shop"),
        (("none",), "has no log of a pod default/none\n"),
        (("shop/web", "-c", "other"), "it has no log of other; use -c with one of main"),
        (("shop/web", "-c", "../main"), "use -c with one of main"),
    ],
)
def test_a_missing_log_is_named(
    arguments: tuple[str, ...], message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert logs(root, *arguments) == 1
    assert message in capsys.readouterr().err


def test_one_of_several_containers_has_to_be_chosen(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / POD / "side").mkdir()
    assert logs(root, "shop/web") == 1
    assert "it has several containers; use -c with one of main, side" in capsys.readouterr().err
    assert logs(root, "shop/web", "-c", "side") == 1
    assert "there is no log of a run in" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["pod", "container", "log", "rotation"])
def test_links_of_pods_are_not_followed(
    place: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod that mounts podLogsDir from the host can make them."""
    secret = tmp_path / "secret"
    secret.mkdir()
    for name in ("0.log", "1.log", "main"):
        if name == "main":
            (secret / name).mkdir()
            (secret / name / "0.log").write_text(line("hush"))
        else:
            (secret / name).write_text(line("hush"))
    folder = root / POD / "main"
    victim = {
        "pod": root / "shop_web_9",
        "container": root / POD / "other",
        "log": folder / "2.log",
        "rotation": folder / "1.log.20260103-000000",
    }[place]
    victim.symlink_to(secret / "0.log" if place in ("log", "rotation") else secret)
    logs(root, "shop/web")
    logs(root, "shop/web", "-c", "other")
    read = capsys.readouterr()
    assert "hush" not in read.out
    assert "new" in read.out


async def test_a_log_is_followed_until_the_container_restarts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, came = bytearray(), asyncio.Event()

    async def write(data: bytes) -> None:
        got.extend(data)
        came.set()

    monkeypatch.setattr(pod_logs, "_write", write)
    arguments = ["--pod-logs-dir", str(root), "shop/web", "-f", "--tail=1"]
    shown = asyncio.create_task(pod_logs.show(pod_logs.parser().parse_args(arguments)))
    async with asyncio.timeout(10):
        await came.wait()
        folder = root / POD / "main"
        with (folder / "1.log").open("a") as file:
            file.write(line("newest"))
        while not got.endswith(b"newest\n"):
            came.clear()
            await came.wait()
        (folder / "2.log").write_text(line("after the restart"))
        await shown
    assert bytes(got) == b"new\nnewest\n"
