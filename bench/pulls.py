"""``python -m bench.pulls``: how well the time left of a pull is known, on a throttled registry.

A fresh containerd pulls twenty images of 1 to 12 layers at 2 to 20 MB/s, one after the other. The
layers contain random data, text, zeros, or thousands of small files. Some are also those of an
earlier image. One pull stalls at layer 3 of 7, one is canceled halfway and begins again, and one
has two users. A time left counts as right if it is within a quarter of the truth. Those of a pull's
first tenth do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import random
import signal
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from kubeletpy.base.clock import SystemClock
from kubeletpy.images.policy import PullProgress
from kubeletpy.images.progress import PullMonitor
from kubeletpy.images.reference import parse_reference
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.containerd import RemoteContent
from kubeletpy.remote.generated import api_pb2 as cri
from tools.env.containerd import Containerd, programs
from tools.env.registry import PacedRegistry

MB = 1_000_000
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 6, 8, 10, 12)
"""Layers of each image."""
RATES = (2, 5, 10, 20)
"""MB/s of the registry, in turn."""
KINDS = ("random", "text", "files", "zeros", "mixed")
STALLED, CANCELED, SHARED = 6, 8, 10
"""Positions of the images with these fates; the first of them has seven layers."""
STALL_S = 45.0
PERIOD_S = 0.5
NEAR, SKIPPED = 0.25, 0.1
_OCI = "application/vnd.oci.image"


@dataclass(slots=True)
class _Image:
    """One image; its layers are digests."""

    name: str
    rate: float
    layers: list[str]


def _layer(chance: random.Random, kind: str, size: int) -> tuple[bytes, str]:
    """A compressed layer of about this many bytes, and its digest without compression."""
    kind = chance.choice(KINDS[:4]) if kind == "mixed" else kind
    if kind == "random":
        files = [os.urandom(size)]
    elif kind == "text":  # half as large when it is compressed
        files = [os.urandom(size).hex().encode()]
    elif kind == "files":
        files = [os.urandom(2000) + bytes(2000) for _ in range(size // 2400)]
    else:  # 100 MB at most
        files = [os.urandom(size // 2), bytes(min(size * 10, 100 * MB))]
    archive = io.BytesIO()
    prefix = os.urandom(4).hex()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for number, content in enumerate(files):
            entry = tarfile.TarInfo(f"{prefix}/{number % 100}/{number}")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    plain = archive.getvalue()
    return gzip.compress(plain, 1, mtime=0), f"sha256:{hashlib.sha256(plain).hexdigest()}"


def _make_images(
    registry: PacedRegistry, rates: _Rates, seed: int, count: int, seconds: float
) -> list[_Image]:
    """Store images that arrive in so many seconds where they share no layers."""
    chance = random.Random(seed)
    images: list[_Image] = []
    known: list[tuple[str, int, str]] = []
    for position, layers in enumerate(COUNTS[:count]):
        rate = RATES[position % len(RATES)] * MB
        left = rate * seconds
        chosen: list[tuple[str, int, str]] = []
        if position % 3 == 0 and layers > 2 and position != STALLED:  # the base of an earlier one
            chosen = known[: layers // 2]
        while len(chosen) < layers:
            part = left / (layers - len(chosen)) * chance.uniform(0.3, 1.7)
            if len(chosen) == layers - 1:
                part = left
            left -= part
            kind = KINDS[(position // 2 + len(chosen)) % len(KINDS)]
            content, diff_id = _layer(chance, kind, max(int(part), 1000))
            chosen.append((registry.add_blob(content), len(content), diff_id))
        if position % 4 == 2:  # a layer that is there, but above others
            chosen[-1] = known[-1]
        known += chosen
        config = {
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [each[2] for each in chosen]},
        }
        stated = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": {
                "mediaType": f"{_OCI}.config.v1+json",
                "digest": registry.add_blob(stated),
                "size": len(stated),
            },
            "layers": [
                {"mediaType": f"{_OCI}.layer.v1.tar+gzip", "digest": digest, "size": size}
                for digest, size, _ in chosen
            ],
        }
        images.append(_Image(f"pulls/i{position}", rate, [each[0] for each in chosen]))
        registry.add_manifest(f"{images[-1].name}:1", manifest)
        rates.rates[images[-1].name] = rate
    if count > STALLED:
        rates.stalled = images[STALLED].layers[2]
    return images


class _Rates:
    """Sends at the rate of the image, for all its layers together; one layer stalls."""

    def __init__(self, state: Path) -> None:
        """``state`` is made when the stall begins."""
        self.state = state
        self.rates: dict[str, float] = {}
        self.stalled = ""
        self._turn = threading.Lock()
        self._next_at = 0.0

    def __call__(
        self, repository: str, digest: str, content: BinaryIO, end: int, out: BufferedIOBase
    ) -> None:
        sent, count = 0, end - content.tell()
        while piece := content.read(min(16384, count - sent)):
            if digest == self.stalled and sent >= count // 2:
                self.state.touch()
                time.sleep(STALL_S)
                self.stalled = ""
            with self._turn:
                now = time.monotonic()
                at = max(self._next_at, now - 0.05) + len(piece) / self.rates[repository]
                self._next_at = at
            time.sleep(max(at - now, 0.0))
            out.write(piece)
            sent += len(piece)


@contextmanager
def _serving(registry: PacedRegistry) -> Iterator[None]:
    """The registry in a process of its own, so that it shares no interpreter with the monitor."""
    process = multiprocessing.get_context("fork").Process(target=registry.serve_forever)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


@dataclass(slots=True)
class _Pull:
    """A finished pull: the monitor's progress, and when it ended."""

    name: str
    began: float
    ended: float
    samples: list[tuple[float, PullProgress | None]]

    def rated(self) -> list[tuple[float, float | None, bool]]:
        """Samples after the first tenth: the truth, the time left, whether it unpacks."""
        first = self.began + SKIPPED * (self.ended - self.began)
        return [
            (self.ended - at, each.left if each else None, bool(each and each.unpacking))
            for at, each in self.samples
            if at >= first
        ]


def _near(truth: float, left: float | None) -> bool:
    return left is not None and abs(left - truth) <= NEAR * truth


class _Puller:
    def __init__(self, runtime: RemoteRuntime, monitor: PullMonitor, server: str) -> None:
        self._runtime, self._monitor, self._server = runtime, monitor, server

    async def pull(self, image: _Image, *, until: float = 1.0) -> _Pull:
        """Pull an image, or cancel when this part of it has arrived."""
        name = f"{self._server}/{image.name}:1"
        reference = parse_reference(name)
        samples: list[tuple[float, PullProgress | None]] = []
        began = time.monotonic()
        with self._monitor.watching(name, reference, lambda _: None):
            call = asyncio.create_task(self._runtime.pull_image(cri.ImageSpec(image=name)))
            while not (await asyncio.wait({call}, timeout=PERIOD_S))[0]:
                progress = self._monitor.progress(name)
                samples.append((time.monotonic(), progress))
                if until < 1 and progress and progress.done >= until * progress.total:
                    call.cancel()
                    with suppress(asyncio.CancelledError):
                        await call
                    return _Pull(image.name, began, time.monotonic(), samples)
            await call
        return _Pull(image.name, began, time.monotonic(), samples)


async def _measure(
    images: Sequence[_Image], server: str, runtime: Containerd, state: Path
) -> list[_Pull]:
    client = RemoteRuntime(runtime.endpoint)
    await client.connect()
    content = RemoteContent(client.image_connection, client.image_fs_info)
    monitor = PullMonitor(content, SystemClock(), lambda _: None)
    watching = asyncio.create_task(monitor.run())
    puller = _Puller(client, monitor, server)
    pulls: list[_Pull] = []
    began, used = time.monotonic(), time.process_time()
    for position, image in enumerate(images):
        if position == CANCELED:
            half = await puller.pull(image, until=0.5)
            print(f"{image.name}: canceled after {half.ended - half.began:.1f} s")
        together = [puller.pull(image) for _ in range(2 if position == SHARED else 1)]
        done = await asyncio.gather(*together)
        pulls += done
        for pull in done:
            print(_describe(pull, image), flush=True)
        if position == STALLED:
            stalled = (await asyncio.to_thread(state.stat)).st_mtime
            print(_describe_stall(done[0], stalled - time.time() + time.monotonic()))
            pulls.pop()  # the end of a stall can't be foreseen
    used, took = time.process_time() - used, time.monotonic() - began
    print(f"this process: {used / took:.2%} of a core, with a measurement every {PERIOD_S} s")
    watching.cancel()
    await client.close()
    return pulls


def _describe(pull: _Pull, image: _Image) -> str:
    rated = pull.rated()
    near = sum(_near(truth, left) for truth, left, _ in rated)
    return (
        f"{pull.name}: {len(image.layers)} layers, {image.rate / MB:.0f} MB/s, "
        f"{pull.ended - pull.began:.1f} s, {near} of {len(rated)} near"
    )


def _describe_stall(pull: _Pull, began: float) -> str:
    seen = [(at - began, each) for at, each in pull.samples if each and each.stuck_layer]
    if not seen:
        return "  the stall was not seen"
    at, each = seen[0]
    last = seen[-1][1]
    return (
        f"  stall seen after {at:.1f} s at layer {each.stuck_layer} of {each.layers}; "
        f"at its end: stuck for {last.stuck_for:.0f} s at layer {last.stuck_layer}"
    )


def _summary(pulls: list[_Pull]) -> str:
    rated = [each for pull in pulls for each in pull.rated()]
    parts = {
        "all": rated,
        "arriving": [each for each in rated if not each[2]],
        "unpacking": [each for each in rated if each[2]],
    }
    lines = []
    for name, chosen in parts.items():
        near = sum(_near(truth, left) for truth, left, _ in chosen)
        unknown = sum(left is None for _, left, _ in chosen)
        off = [abs(left - truth) for truth, left, _ in chosen if left is not None]
        lines.append(
            f"{name}: {near} of {len(chosen)} samples within a quarter "
            f"({near / max(len(chosen), 1):.0%}), {unknown} unknown, "
            f"median distance {statistics.median(off) if off else 0:.1f} s"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure with the given arguments, and print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pulls",
        description="Measure how well the time left of pulls is known.",
    )
    parser.add_argument("--images", type=int, default=len(COUNTS), metavar="N", help="the first N")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of their sizes")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="S", help="for the download of an image (30)"
    )
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2, help="major version")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to this file")
    supplied = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="kpb-", dir="/tmp") as name:
        directory = Path(name)
        rates = _Rates(directory / "stalled")
        registry = PacedRegistry(directory / "blobs", rates)
        images = _make_images(registry, rates, supplied.seed, supplied.images, supplied.seconds)
        os.sync()
        runtime = Containerd(directory / "r", programs(supplied.containerd))
        try:
            runtime.start()
            runtime.trust(registry.address)
            with registry, _serving(registry):
                pulls = asyncio.run(_measure(images, registry.address, runtime, rates.state))
        finally:
            runtime.remove()
    print(_summary(pulls))
    if supplied.json:
        rated = {f"{pull.name}": pull.rated() for pull in pulls}
        supplied.json.write_text(json.dumps(rated) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
