"""The node's certificates and kubeconfig on disk, and what follows changes of such files.

A certificate and its key are dated files and the ``-current.pem`` symlink, as in the kubelet. A
kill at any point leaves either the old pair or the new one. Every file is written completely (mode
0600) before the link is switched, and the key of a pending request survives in a file of its own.
Blocking, except :class:`FileFollower` and :func:`repair_link`: call it on a thread. Must never log
a key, or anything that is in a kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from kubeletpy.base.host.files import KeyPair, Stamp, flush_directory, stamp, write_private
from kubeletpy.base.host.inotify import DirectoryWatch
from kubeletpy.base.host.pki import Certificate, CertificateError
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import first_line
from kubeletpy.config import NodeFlags
from kubeletpy.kubeapi.kubeconfig import CurrentContext, KubeconfigError, read_kubeconfig

KEPT = 3
"""Dated files to keep, including the current one."""
_DATED = r"-\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d\.pem"
_KEY = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----\n.*?-----END \1-----\n?", re.DOTALL)


class StoredPair(Struct, frozen=True):
    """A certificate with its key: where the files are, and the certificate's fields.

    ``stamp`` differs once the files have changed.
    """

    files: KeyPair
    certificate: Certificate
    stamp: tuple[Stamp, ...]


class CertificateStore(Component):
    """The pair for one purpose.

    Args:
        directory: created when first written to.
        prefix: ``kubelet-client`` or ``kubelet-server``.
        fallback: a pair to use until we have our own.
        algorithm: that of new keys, by its name in the configuration.
    """

    directory: Path
    prefix: str
    fallback: KeyPair | None = None
    algorithm: str = "ECDSA-P256"

    @property
    def current_path(self) -> Path:
        """The link to the pair in use."""
        return self.directory / f"{self.prefix}-current.pem"

    @property
    def key_path(self) -> Path:
        """The key of the pending request."""
        return self.directory / f"{self.prefix}.key.tmp"

    def candidates(self) -> list[KeyPair]:
        """Where a pair may be; the first one that exists counts."""
        pairs = [KeyPair(self.current_path, self.current_path)]
        if self.fallback is not None:
            pairs.append(self.fallback)
        return [*pairs, KeyPair.named(self.directory, self.prefix)]

    def load(self) -> StoredPair | None:
        """The pair in use, or None if there is none.

        Raises:
            CertificateError: a file exists but can't be used.
            OSError: it can't be read.
        """
        for pair in self.candidates():
            if pair.certificate.exists() and pair.key.exists():
                return load_pair(pair)
        return None

    def update(self, certificates: bytes, key: bytes, now: float) -> StoredPair:
        """Store a new pair and make it the one in use.

        Args:
            certificates: PEM, leaf first.
            key: PEM, stored unchanged.
            now: Unix seconds; names the file.

        Raises:
            CertificateError: they don't belong together, or the link is a regular file.
            OSError: the directory can't be written.
        """
        from kubeletpy.base.host import x509

        found = x509.certificates_of(certificates)
        match = _KEY.search(key.decode("ascii", "replace"))
        if not found or match is None:
            raise CertificateError("it does not hold a certificate and its key")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        link = self.current_path
        if link.exists() and not link.is_symlink():
            raise CertificateError(f"{link} is a file and not a link: move it away")
        made = self.directory / f".{self.prefix}-new.pem"
        write_private(made, b"".join(found) + match.group(0).encode())
        load_pair(KeyPair(made, made))
        dated = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(now))
        file = (self.directory / f"{self.prefix}-{dated}.pem").absolute()
        made.replace(file)
        self._turn_link(file)
        self._forget_old(file)
        return load_pair(KeyPair(link, link))

    def repair_link(self, now: float) -> Path | None:
        """If the link leads to nothing usable, point it to the newest pair that is.

        For startup, before anybody reads the link: a full disk or a power cut may have left less
        than a pair. A missing link is left alone (an administrator requests a new certificate),
        unless the kubelet was interrupted while switching it; so is a regular file, which is not
        ours.

        Args:
            now: Unix seconds; an older pair must still be valid.

        Returns:
            The dated file that is in use again; None if nothing was to be done, or could be.

        Raises:
            OSError: the directory can't be read or written.
        """
        link, updated = self.current_path, self._updated_path
        if updated.is_symlink() and not link.is_symlink() and not link.exists():
            updated.replace(link)
        if not link.is_symlink() or _usable(link) is not None:
            return None
        for file in reversed(self._dated()):
            certificate = _usable(file)
            # not yet valid: the clock has not been set since the machine booted
            if certificate is not None and now < certificate.not_after:
                self._turn_link(file.absolute())
                return file
        return None

    @property
    def _updated_path(self) -> Path:
        return self.directory / f"{self.prefix}-updated.pem"

    def _turn_link(self, file: Path) -> None:
        self._updated_path.unlink(missing_ok=True)
        self._updated_path.symlink_to(file)
        self._updated_path.replace(self.current_path)
        flush_directory(self.directory)

    def _dated(self) -> list[Path]:
        """Oldest first."""
        pattern = re.compile(re.escape(self.prefix) + _DATED)
        return sorted(each for each in self.directory.iterdir() if pattern.fullmatch(each.name))

    def _forget_old(self, current: Path) -> None:
        for old in self._dated()[:-KEPT]:
            if old.absolute() != current:
                with contextlib.suppress(OSError):
                    old.unlink()

    def pending_key(self) -> bytes:
        """The key for the next request: that of the pending one, else a new one.

        Raises:
            CertificateError, OSError.
        """
        from kubeletpy.base.host import x509

        with contextlib.suppress(OSError, CertificateError):
            found = self.key_path.read_bytes()
            x509.public_key(found)
            if not self._in_use(found):
                return found
        key = x509.new_key(self.algorithm)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        write_private(self.key_path, key)
        return key

    def _in_use(self, key: bytes) -> bool:
        """Whether the pair in use has this key: a kill came after the link was switched."""
        with contextlib.suppress(OSError):
            return key.strip() in self.current_path.read_bytes()
        return False

    def drop_pending_key(self) -> None:
        """Drop the key, so that the next request has a new one. Raises OSError."""
        self.key_path.unlink(missing_ok=True)


def load_pair(files: KeyPair) -> StoredPair:
    """Load a pair from two files (or one, given twice). Raises CertificateError."""
    from kubeletpy.base.host import x509

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
        certificate = x509.read_certificate(files.certificate.read_bytes())
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"{files.certificate}, {files.key}: {error}") from error
    return StoredPair(files, certificate, stamp_of(files))


def _usable(file: Path) -> Certificate | None:
    """The certificate in a file that also has its key; None if there is no such pair."""
    try:
        return load_pair(KeyPair(file, file)).certificate
    except CertificateError:
        return None


def stamp_of(files: KeyPair) -> tuple[Stamp, ...]:
    """Identifies the state of the files without reading them, to notice changes."""
    return tuple(filter(None, map(stamp, (files.certificate, files.key))))


def certificate_dir(flags: NodeFlags) -> Path:
    """--cert-dir; by default the certificates live below the root directory."""
    default = NodeFlags().cert_dir
    return Path(flags.root_dir) / "pki" if flags.cert_dir == default else Path(flags.cert_dir)


log = logging.getLogger(__name__)


async def repair_link(store: CertificateStore, now: float) -> None:
    """At startup, replace a broken stored certificate by the one before it, and log that.

    Must come before anybody reads the certificate: a kubeconfig may name the link itself. Continues
    if nothing can be done. ``now``: Unix seconds.
    """
    try:
        file = await asyncio.to_thread(store.repair_link, now)
    except OSError as error:
        log.warning(
            "stored certificates can't be read",
            extra={"directory": str(store.directory), "why": str(error)},
        )
        return
    if file is not None:
        log.warning(
            "the stored certificate is broken; the one before it is in use again",
            extra={"link": str(store.current_path), "file": str(file)},
        )


# The node's kubeconfig. Connections are made elsewhere.


def kubeconfig_problem(path: Path, now: float) -> str:
    """Why a kubeconfig yields no client certificate that is valid at ``now``; empty: it does.

    Args:
        now: Unix seconds.
    """
    from kubeletpy.base.host import x509

    try:
        context = read_kubeconfig(path)
        inline, files = context.inline_certificate(), context.certificate_files()
        if inline is not None:
            pem = inline[0]
        elif files is not None:
            files.key.stat()
            pem = files.certificate.read_bytes()
        else:
            return "it names no client certificate"
        for each in x509.certificates_of(pem) or [pem]:
            if now > x509.read_certificate(each).not_after:
                return "its client certificate has ended"
    except (KubeconfigError, CertificateError, OSError) as error:
        return first_line(error)
    return ""


def write_kubeconfig(path: Path, like: CurrentContext, pair: Path) -> None:
    """Write a node's kubeconfig: the cluster of another kubeconfig, with the node's certificate.

    Args:
        like: the kubeconfig that was used to request the certificate.
        pair: file with the certificate and its key.

    Raises:
        OSError: it can't be written.
    """
    user = {"client-certificate": str(pair), "client-key": str(pair)}
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": like.cluster}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "preferences": {},
        "users": [{"name": "default-auth", "user": user}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # through JSON: what YAML parsed as dates or the like becomes text again
    write_private(path, yaml.safe_dump(json.loads(json.dumps(content, default=str))))


# Files that others may change.

CHECK_S = 60.0
SETTLE_S = 0.2
"""A program that writes a certificate and then its key has this long between the two."""

Stamps = dict[Path, Stamp | None]


class FileFollower(Component):
    """Notices when files of credentials have changed, whoever changed them.

    inotify reports that something happened nearby, the files' stamps show whether it matters, and a
    periodic check makes certain. Never reads their contents.

    Args:
        paths: the files; called again after each change, as one file may name the others.
        changed: called after a change; if it raises KubeconfigError, it is called again later.
    """

    paths: Callable[[], Iterable[Path]]
    changed: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._followed: list[Path] = []
        self._watches: dict[Path, DirectoryWatch] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Follow the files until cancelled."""
        try:
            await self._follow()
        finally:
            for watch in self._watches.values():
                watch.close()

    async def _follow(self) -> None:
        seen: Stamps | None = await asyncio.to_thread(self._reload_changed)
        while True:
            self._watch_directories()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._woken.wait()
                    await asyncio.sleep(SETTLE_S)
            self._woken.clear()
            found = await asyncio.to_thread(self._reload_changed)
            if found == seen:
                continue
            try:
                await self.changed()
                seen = found
            except KubeconfigError as error:
                seen = None
                log.warning(
                    "changed credentials can't be used; the old ones stay in use",
                    extra={"why": str(error)},
                )

    def _reload_changed(self) -> Stamps:
        self._followed = list(self.paths())
        return {path: stamp(path) for path in self._followed}

    def _watch_directories(self) -> None:
        desired = {path.parent for path in self._followed}
        for directory in desired:
            watch = self._watches.setdefault(directory, DirectoryWatch(directory, self._woken.set))
            watch.start()
        for directory in self._watches.keys() - desired:
            self._watches.pop(directory).close()
