"""The files for a start without an API server: the last known objects, and the last contact.

``offline_state`` has one line of JSON (version, node, how it is sealed) and the compressed objects.
Where systemd-creds works, they are encrypted with a key that only this machine's TPM or host key
opens; else the file is readable by root only, like the pods' volumes. ``offline_contact`` is
written after the objects as of that time: an object that changed and was not written makes the
contact older, never newer. Must never log what an object holds.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import os
import secrets
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kubeletpy.base.api.times import Moment
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.program import Program, ProgramFailed, RunProgram
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct
from kubeletpy.kubeapi.last_known import Contents, LastKnown, from_json, to_json
from kubeletpy.kubeapi.offline import ApiContact

log = logging.getLogger(__name__)

STATE, CONTACT = "offline_state", "offline_contact"
VERSION = 1
SOON_S = 2.0
"""Changes within this time go into one write."""
CONTACT_EVERY_S = 30.0
"""Between two writes of the last contact. A start believes that it was so much earlier."""
MAX_BYTES = 64 << 20
"""Bytes of the objects as JSON."""
SEAL_S = 20.0
"""How long systemd-creds may take: a TPM is slow."""
_CREDS, _NAME = "systemd-creds", "kubeletpy-offline"


class Unusable(Exception):
    """A file can't be used; the text is for a log."""


class Key(HidesFields, Struct, frozen=True):
    """A key for the objects.

    Attributes:
        sealed: the key as only this machine can open it; empty: nothing is encrypted.
        key: of AES-256-GCM.
    """

    sealed: str = ""
    key: Hidden[bytes] = b""


async def new_key(run: RunProgram) -> Key:
    """A new key, sealed by the machine; without systemd-creds none."""
    key = secrets.token_bytes(32)
    try:
        sealed = await _systemd_creds("encrypt", key, run)
        if await _systemd_creds("decrypt", sealed, run) != key:
            raise ProgramFailed("another key came back")
    except (ProgramFailed, TimeoutError) as error:
        extra = {"why": str(error)}
        log.warning("offline state is not encrypted: systemd-creds does not work", extra=extra)
        return Key()
    return Key(base64.b64encode(sealed).decode(), key)


async def _systemd_creds(what: str, text: bytes, run: RunProgram) -> bytes:
    program = Program(_CREDS, (what, f"--name={_NAME}", "-", "-"))
    async with asyncio.timeout(SEAL_S):
        return await run(program, text)


class OfflineRecord(Component):
    """Keeps both files up to date."""

    root: Path
    node_name: str
    known: LastKnown
    contact: ApiContact
    run: RunProgram | None
    """Runs systemd-creds; None: nothing is encrypted."""

    def __post_init__(self) -> None:
        self._key = Key()
        self._captured: tuple[Contents, Contents] | None = None
        problem = "the record for a start without an API server can't be written; trying again"
        self._state = StateFile(
            self.root / STATE, self._capture, problem, soon_s=SOON_S, stored=self._stored
        )
        self._contact = StateFile(self.root / CONTACT, self._capture_contact, problem)
        self._written: Moment | None = None
        self.known.changed = self._state.write_soon

    async def load(self) -> None:
        """Read both files. Whatever is wrong with one is logged, and it counts as absent."""
        try:
            header, data = await asyncio.to_thread(_read_state_file, self.root / STATE)
            self._key = await self._open_key(header)
            self.known.contents = await asyncio.to_thread(self._decode, header, data)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, Unusable) as error:
            self._reject(STATE, error)
        if not self._key.sealed and self.run is not None:
            self._key = await new_key(self.run)
        try:
            self.contact.before = self.contact.last = await asyncio.to_thread(self._read_contact)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, Unusable) as error:
            self._reject(CONTACT, error)

    async def run_contact(self) -> None:
        """Write the last contact now and then, until cancelled."""
        while True:
            await asyncio.sleep(SOON_S if self._written is None else CONTACT_EVERY_S)
            await self._write_contact()

    async def close(self) -> None:
        """Write what is not in the files yet."""
        await self._write_contact()
        await self._state.close()
        await self._contact.close()

    async def _write_contact(self) -> None:
        last = self.contact.last
        if last is None or last == self._written or not await self._state.store():
            return
        self._written = last
        self._contact.note_change()
        await self._contact.store()

    def _reject(self, name: str, error: Exception) -> None:
        extra = {"file": str(self.root / name), "why": str(error)}
        log.error("a record of the API can't be used: the node starts without it", extra=extra)

    # -- the objects ----------------------------------------------------------------------------

    def _capture(self) -> Callable[[], bytes]:
        captured, select, key = self.known.contents.copy(), self.known.needed(), self._key

        def render() -> bytes:
            kept = select()
            self._captured = captured, kept
            return self._encode(kept, key)

        return render

    def _stored(self) -> None:
        if self._captured is not None:
            self.known.forget(*self._captured)
            self._captured = None

    def _encode(self, kept: Contents, key: Key) -> bytes:
        text = msgspec.json.encode(to_json(kept))
        if len(text) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"the objects have more than {MAX_BYTES} bytes")
        header = json.dumps(
            {"version": VERSION, "node": self.node_name, "key": key.sealed}
        ).encode()
        data = zlib.compress(text, 1)
        if key.sealed:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            nonce = secrets.token_bytes(12)
            data = nonce + AESGCM(key.key).encrypt(nonce, data, header)
        return header + b"\n" + data

    def _decode(self, header: JSON, data: bytes) -> Contents:
        if self._key.sealed:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            try:
                text = json.dumps(header).encode()
                data = AESGCM(self._key.key).decrypt(data[:12], data[12:], text)
            except InvalidTag:
                raise Unusable("it is damaged, or sealed with another key") from None
        if header["node"] != self.node_name:
            raise Unusable(f"it is of another node: {header['node']}")
        decompress = zlib.decompressobj()
        try:
            text = decompress.decompress(data, MAX_BYTES)
            if not decompress.eof:
                raise Unusable("it is damaged: its end is missing")
            return from_json(msgspec.json.decode(text))
        except (zlib.error, msgspec.DecodeError):
            raise Unusable("it is damaged") from None

    async def _open_key(self, header: JSON) -> Key:
        sealed = header["key"]
        if not sealed:
            return Key()
        if self.run is None:
            raise Unusable("it is encrypted")
        try:
            return Key(sealed, await _systemd_creds("decrypt", base64.b64decode(sealed), self.run))
        except (ProgramFailed, TimeoutError) as error:
            why = f"this machine does not open its key (systemd-creds decrypt: {error})"
            raise Unusable(why) from error

    # -- the last contact -----------------------------------------------------------------------

    def _capture_contact(self) -> Callable[[], bytes]:
        last = self._written
        assert last is not None, "written after a contact"
        found = {"version": VERSION, "node": self.node_name, "at": last.at}
        text = json.dumps({**found, "bootID": last.boot_id, "sinceBoot": last.since_boot})
        return text.encode

    def _read_contact(self) -> Moment:
        found = json.loads(_read_private(self.root / CONTACT))
        _check(found)
        if found["node"] != self.node_name:
            raise Unusable(f"it is of another node: {found['node']}")
        try:
            return Moment(float(found["at"]), str(found["bootID"]), float(found["sinceBoot"]))
        except (KeyError, TypeError) as error:
            raise Unusable("it is damaged") from error


def _read_state_file(path: Path) -> tuple[JSON, bytes]:
    """The header and the rest of the file of the objects."""
    first, newline, data = _read_private(path).partition(b"\n")
    try:
        header = json.loads(first)
    except ValueError:
        raise Unusable("it is damaged") from None
    if not newline:
        raise Unusable("it is damaged: its end is missing")
    _check(header)
    return header, data


def _read_private(path: Path) -> bytes:
    """The content of a file that only root may read or write, and did."""
    found = path.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise Unusable("others may read or write it: it should be a file of mode 0600")
    return read_state(path)


def _check(header: Any) -> None:
    if not isinstance(header, dict) or not isinstance(header.get("version"), int):
        raise Unusable("it is damaged")
    if header["version"] != VERSION:
        raise Unusable(f"its version is {header['version']}, and this agent reads {VERSION}")
    if not (isinstance(header.get("node"), str) and isinstance(header.get("key", ""), str)):
        raise Unusable("it is damaged")
