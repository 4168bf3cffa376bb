"""Freed memory does not remain in one arena per thread."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

_THREADS = """
import ctypes, sys, threading
if sys.argv[1] == "ours":
    from kubeletpy.cli.process import keep_little_freed_memory
    keep_little_freed_memory()
barrier = threading.Barrier(6)
def work():
    libc.malloc(5000)
    barrier.wait()
libc = ctypes.CDLL(None)
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
stdout = libc.fdopen
stdout.restype = ctypes.c_void_p
libc.malloc_info.argtypes = (ctypes.c_int, ctypes.c_void_p)
libc.fflush.argtypes = (ctypes.c_void_p,)
out = stdout(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


def arenas(which: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS, which],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return len(re.findall(r"<heap nr=", done.stdout))


@pytest.mark.parametrize(
    ("which", "environment", "least", "most"),
    [("the library's", {}, 4, 7), ("ours", {}, 1, 2), ("ours", {"MALLOC_ARENA_MAX": "5"}, 4, 5)],
)
def test_arenas(which: str, environment: dict[str, str], least: int, most: int) -> None:
    assert least <= arenas(which, **environment) <= most


_BLOCKS = """
import ctypes, re, sys
from kubeletpy.cli.process import keep_little_freed_memory  # both with what it imports
if sys.argv[1] == "ours":
    keep_little_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)
libc.free(libc.malloc(8 << 20))  # from now on glibc takes blocks of 8 MiB for small ones
blocks = [libc.malloc(2 << 20) for _ in range(6)]
for block in blocks: ctypes.memset(block, 1, 2 << 20)
for block in blocks: libc.free(block)
print(int(re.search("RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


def test_large_blocks_are_returned_to_the_kernel() -> None:
    found = {}
    for which in ("the library's", "ours"):
        command = [sys.executable, "-c", _BLOCKS, which]
        found[which] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found["the library's"] - found["ours"] >= 8, "MiB"


_PAGES = """
import asyncio, re
from kubeletpy.cli.process import give_back_freed_memory
def mebibytes():
    return int(re.search("RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
async def main():
    blocks = [bytes(4000) for _ in range(10000)]
    del blocks[::2], blocks[1::2]  # pages that are free between others
    before = mebibytes()
    giving_back = asyncio.ensure_future(give_back_freed_memory(0.01))
    while mebibytes() > before - 10:
        await asyncio.sleep(0.01)
    giving_back.cancel()
asyncio.run(main())
"""


def test_free_pages_are_returned_to_the_kernel() -> None:
    subprocess.run([sys.executable, "-c", _PAGES], check=True, timeout=60)
