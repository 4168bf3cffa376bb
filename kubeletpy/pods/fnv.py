"""FNV hashes (http://www.isthe.com/chongo/tech/comp/fnv): names for things, never for security."""

from __future__ import annotations


def fnv1a_32(data: bytes) -> int:
    """32-bit FNV-1a."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def fnv1a_64(data: bytes) -> int:
    """64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
