"""Files of containerd's content store, and the bytes that it has written."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeletpy.remote.connection import GrpcChannel
from kubeletpy.remote.content import RemoteContent
from kubeletpy.remote.generated import api_pb2 as cri

BLOB, INGEST = f"sha256:{1:064x}", f"sha256:{2:064x}"


def content(folder: Path, socket: Path) -> RemoteContent:
    async def file_systems() -> cri.ImageFsInfoResponse:
        snapshots = cri.FilesystemIdentifier(mountpoint=f"{folder}/snapshots")
        return cri.ImageFsInfoResponse(image_filesystems=[cri.FilesystemUsage(fs_id=snapshots)])

    return RemoteContent(GrpcChannel(f"unix://{socket}"), file_systems)


async def test_the_first_bytes_of_blobs_and_ingests(tmp_path: Path) -> None:
    store = content(tmp_path, tmp_path / "socket")
    assert await store.head(BLOB, 4) == b""
    folder = tmp_path / "io.containerd.content.v1.content"
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "blobs" / BLOB.replace(":", "/")).write_bytes(b"complete")
    for number, ref in enumerate((f"k8s.io/1/layer-{BLOB}", f"k8s.io/7/layer-{INGEST}")):
        (folder / f"ingest/{number}").mkdir(parents=True)
        (folder / f"ingest/{number}/ref").write_text(ref)
        (folder / f"ingest/{number}/data").write_bytes(b"arriving")
    assert await store.head(BLOB, 4) == b"comp"
    assert await store.head(INGEST, 5) == b"arriv"
    assert await store.head(f"sha256:{3:064x}", 5) == b""
    await store.connection.close()


async def test_bytes_that_the_runtime_has_written(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    store = content(tmp_path, socket)
    assert await store.written() is None
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), socket)
    before = await store.written()
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    after = await store.written()
    assert before is not None
    assert after is not None
    assert after >= before + (1 << 20)
    server.close()
    await store.connection.close()
