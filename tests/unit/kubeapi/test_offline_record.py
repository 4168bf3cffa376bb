"""The files for a start without an API server: sealed, damaged, of others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubeletpy.base.api.times import Moment
from kubeletpy.base.host.program import Program, ProgramFailed, RunProgram
from kubeletpy.kubeapi.last_known import LastKnown
from kubeletpy.kubeapi.offline import ApiContact
from kubeletpy.kubeapi.offline_record import CONTACT, STATE, OfflineRecord

NOW = Moment(1_700_000_000.0, "boot", 50.0)
POD = {"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {"word": "hush"}}


class Machine:
    """systemd-creds with the key of one machine."""

    def __init__(self, key: int = 7) -> None:
        self._key = key

    async def __call__(
        self, program: Program, request: bytes, *, hidden: Sequence[str] = ()
    ) -> bytes:
        if program.args[0] == "encrypt":
            return bytes([self._key]) + bytes(each ^ self._key for each in request)
        if request[0] != self._key:
            raise ProgramFailed("exit status 1: Failed to decrypt", 1)
        return bytes(each ^ self._key for each in request[1:])


def record(root: Path, run: RunProgram | None = None, node: str = "n1") -> OfflineRecord:
    contact = ApiContact(lambda: NOW)
    return OfflineRecord(root, node, LastKnown(), contact, run)


async def written(root: Path, run: RunProgram | None = None) -> None:
    made = record(root, run)
    await made.load()
    made.known.note(("pods", "default", "web"), POD)
    made.known.contents.listed.add("pods")
    made.contact.pods_followed = True
    made.contact.heard(NOW)
    await made.close()


async def read(root: Path, run: RunProgram | None = None, node: str = "n1") -> OfflineRecord:
    made = record(root, run, node)
    await made.load()
    return made


def pods(made: OfflineRecord) -> list[str]:
    return [name for plural, _, name in made.known.contents.objects if plural == "pods"]


RUNS: list[RunProgram | None] = [None, Machine()]


@pytest.mark.parametrize("run", RUNS)
async def test_what_was_written_is_read(tmp_path: Path, run: RunProgram | None) -> None:
    await written(tmp_path, run)
    made = await read(tmp_path, run)
    assert pods(made) == ["web"]
    assert made.contact.before == made.contact.last == NOW
    for name in (STATE, CONTACT):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


async def test_a_sealed_file_shows_nothing(tmp_path: Path) -> None:
    await written(tmp_path, Machine())
    header, _, data = (tmp_path / STATE).read_bytes().partition(b"\n")
    assert json.loads(header)["key"]
    assert b"web" not in data and b"hush" not in data


async def test_a_first_start_has_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = await read(tmp_path)
    assert (pods(made), made.contact.before, caplog.records) == ([], None, [])


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def newer(path: Path) -> None:
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(json.dumps({**json.loads(first), "version": 2}).encode() + b"\n" + rest)


def expose(path: Path) -> None:
    path.chmod(0o640)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("where", [(name, run) for name in (STATE, CONTACT) for run in RUNS])
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (tear, ""),
        (empty, ""),
        (newer, "its version is 2, and this agent reads 1"),
        (expose, "others may read or write it"),
        (link, "others may read or write it"),
    ],
)
async def test_an_unusable_file_counts_as_absent(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: object,
    why: str,
    where: tuple[str, RunProgram | None],
) -> None:
    name, run = where
    await written(tmp_path, run)
    assert callable(spoil)
    spoil(tmp_path / name)
    made = await read(tmp_path, run)
    (warning,) = caplog.records
    assert warning.levelno == logging.ERROR and why in vars(warning)["why"]
    assert "hush" not in str(vars(warning))
    assert not pods(made) if name == STATE else made.contact.before is None
    await written(tmp_path, run)  # it is replaced
    assert pods(await read(tmp_path, run)) == ["web"]


async def test_the_record_of_another_node_counts_as_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await written(tmp_path)
    made = await read(tmp_path, node="n2")
    assert (pods(made), made.contact.before) == ([], None)
    assert [vars(each)["why"] for each in caplog.records] == ["it is of another node: n1"] * 2


async def test_a_lost_key_counts_as_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await written(tmp_path, Machine(7))
    made = await read(tmp_path, Machine(9))
    (warning,) = caplog.records
    assert pods(made) == [] and "does not open its key" in vars(warning)["why"]
    await written(tmp_path, Machine(9))
    assert pods(await read(tmp_path, Machine(9))) == ["web"]


async def test_a_full_disk_is_stated_once_and_makes_the_contact_no_newer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(tmp_path)
    made = await read(tmp_path)

    def refuse(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("kubeletpy.base.host.state_file.write_private", refuse)
    made.known.note(("pods", "default", "web"), None)
    made.contact.pods_followed = True
    made.contact.heard(Moment(NOW.at + 60, "boot", 110.0))
    await made.close()
    assert len(caplog.records) == 1
    assert (await read(tmp_path)).contact.before == NOW


async def test_without_systemd_creds_the_file_is_not_encrypted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def absent(program: Program, request: bytes, *, hidden: Sequence[str] = ()) -> bytes:
        raise ProgramFailed("could not be started: No such file or directory")

    await written(tmp_path, absent)
    assert [each.message for each in caplog.records] == [
        "offline state is not encrypted: systemd-creds does not work"
    ]
    assert pods(await read(tmp_path, absent)) == ["web"]


async def test_a_contact_counts_only_while_pods_are_followed() -> None:
    contact = ApiContact(lambda: NOW)
    contact.heard(NOW)
    assert contact.last is None
    await asyncio.sleep(0)
