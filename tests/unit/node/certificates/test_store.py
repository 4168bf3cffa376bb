"""Pairs on disk: the kubelet's paths, complete at any moment, private."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.node.certificates import store as store_module
from kubeletpy.node.certificates.store import KEPT, CertificateStore
from tests.kit.certificates import Signer

NAMES = Names("system:node:n", ("system:nodes",))
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def store(tmp_path: Path) -> CertificateStore:
    return CertificateStore(tmp_path / "pki", "kubelet-client")


def made(signer: Signer, life: float = 100.0) -> tuple[bytes, bytes]:
    key = x509.new_key()
    return signer.certificate(key, NAMES, NOW, NOW + life), key


def test_paths_and_modes(store: CertificateStore, signer: Signer) -> None:
    assert store.load() is None
    pair = store.update(*made(signer), NOW)
    link = store.directory / "kubelet-client-current.pem"
    assert link.readlink() == store.directory / "kubelet-client-2027-01-15-08-00-00.pem"
    assert stat.S_IMODE(link.stat().st_mode) == 0o600
    assert pair.files == KeyPair(link, link)
    assert pair.certificate.not_after == NOW + 100
    assert pair.certificate.names == NAMES
    found = store.load()
    assert found == pair


def test_a_new_pair_is_used_and_old_ones_are_removed(
    store: CertificateStore, signer: Signer
) -> None:
    pairs = [store.update(*made(signer), NOW + n) for n in range(5)]
    assert len({pair.stamp for pair in pairs}) == 5
    assert len([p for p in store.directory.iterdir() if not p.is_symlink()]) == KEPT
    again = store.update(*made(signer), NOW + 4)  # the same second
    assert again.stamp != pairs[-1].stamp
    assert store.load() == again


def test_a_mismatched_pair_changes_nothing(store: CertificateStore, signer: Signer) -> None:
    before = store.update(*made(signer), NOW)
    (certificate, _), (_, other_key) = made(signer), made(signer)
    for pem, key in [(certificate, other_key), (b"", other_key), (certificate, b"")]:
        with pytest.raises(CertificateError):
            store.update(pem, key, NOW)
    assert store.load() == before


def test_a_plain_file_instead_of_the_link_is_reported(
    store: CertificateStore, signer: Signer
) -> None:
    store.directory.mkdir()
    store.current_path.write_text("mine")
    with pytest.raises(CertificateError, match="move it away"):
        store.update(*made(signer), NOW)
    assert store.current_path.read_text() == "mine"


def test_the_order_of_locations(tmp_path: Path, signer: Signer) -> None:
    def put(pair: KeyPair) -> KeyPair:
        certificate, key = made(signer)
        pair.certificate.write_bytes(certificate)
        pair.key.write_bytes(key)
        return pair

    supplied = KeyPair.named(tmp_path, "given")
    store = CertificateStore(tmp_path, "kubelet-server", supplied)
    last = put(KeyPair.named(tmp_path, "kubelet-server"))
    found = store.load()
    assert found is not None
    assert found.files == last
    put(supplied)
    found = store.load()
    assert found is not None
    assert found.files == supplied
    found = store.update(*made(signer), NOW)
    assert store.load() == found


def three(store: CertificateStore, signer: Signer) -> list[Path]:
    """Dated files, oldest first; each is valid for a day."""
    for n in range(3):
        store.update(*made(signer, 86400), NOW + n)
    return sorted(each for each in store.directory.iterdir() if not each.is_symlink())


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN CERTIFICATE-----\nMII", None])
def test_a_broken_pair_is_replaced_by_the_previous_one(
    store: CertificateStore, signer: Signer, broken: bytes | None
) -> None:
    oldest, older, newest = three(store, signer)
    assert store.repair_link(NOW + 9) is None
    assert store.current_path.resolve() == newest
    if broken is None:
        newest.unlink()
    else:
        newest.write_bytes(broken)
    assert store.repair_link(NOW + 9) == older
    assert store.current_path.readlink() == older
    found = store.load()
    assert found is not None
    assert found.files == KeyPair(store.current_path, store.current_path)
    older.write_bytes(oldest.read_bytes()[:-100])  # power was lost, twice
    assert store.repair_link(NOW + 9) == oldest
    oldest.write_bytes(b"")
    assert store.repair_link(NOW + 9) is None


def test_a_clock_that_is_not_set_does_not_prevent_a_repair(
    store: CertificateStore, signer: Signer
) -> None:
    _, older, newest = three(store, signer)
    newest.write_bytes(b"")
    assert store.repair_link(60.0) == older


def test_an_expired_pair_is_not_restored(store: CertificateStore, signer: Signer) -> None:
    newest = three(store, signer)[-1]
    newest.write_bytes(b"")
    assert store.repair_link(NOW + 86400) is None
    assert store.current_path.readlink() == newest


def test_manual_changes_of_the_link_are_kept(store: CertificateStore, signer: Signer) -> None:
    assert store.repair_link(NOW) is None, "no directory yet"
    newest = three(store, signer)[-1]
    store.current_path.unlink()
    assert store.repair_link(NOW + 9) is None
    assert not store.current_path.exists(), "an administrator removed the link"
    store.current_path.write_text("mine")
    assert store.repair_link(NOW + 9) is None
    assert store.current_path.read_text() == "mine"
    store.current_path.unlink()
    (store.directory / "kubelet-client-updated.pem").symlink_to(newest)
    assert store.repair_link(NOW + 9) is None
    assert store.current_path.readlink() == newest, "the kubelet was killed as it turned the link"


class Killed(BaseException):
    """kill -9, as far as a test in one process can."""


def test_a_kill_at_any_step_leaves_a_complete_pair(
    store: CertificateStore, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.update(*made(signer), NOW)
    certificate, key = made(signer)
    steps = ("replace", "symlink_to", "unlink")

    def dying(method: str, at: int, count: Any) -> Callable[..., Any]:
        real = getattr(Path, method)

        def step(self: Path, *args: Any, **more: Any) -> Any:
            if next(count) == at:
                raise Killed
            return real(self, *args, **more)

        return step

    for at in range(10):
        with monkeypatch.context() as patch:
            count = itertools.count()
            for method in steps:
                patch.setattr(Path, method, dying(method, at, count))
            try:
                new = store.update(certificate, key, NOW + 1)
            except Killed:
                new = None
        found = store.load()
        assert found is not None
        assert found.certificate.names == NAMES
        assert found.files.certificate.read_bytes() in (
            old.files.certificate.read_bytes(),
            certificate + key,
        )
        if new is not None:
            break
    else:
        pytest.fail("it never came to its end")
    assert at > 3
    assert store_module.load_pair(found.files).stamp == found.stamp


def test_the_key_of_a_request_waits_on_disk(store: CertificateStore, signer: Signer) -> None:
    key = store.pending_key()
    assert stat.S_IMODE(store.key_path.stat().st_mode) == 0o600
    assert CertificateStore(store.directory, "kubelet-client").pending_key() == key
    store.drop_pending_key()
    other = store.pending_key()
    assert other != key
    # killed between the certificate and the removal of its key: that key is used up
    store.update(signer.certificate(other, NAMES, NOW, NOW + 9), other, NOW)
    assert store.pending_key() != other
    store.key_path.write_text("garbage")
    assert x509.public_key(store.pending_key())
