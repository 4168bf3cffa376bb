"""All targets, one file for each kind of source."""

from tests.fuzz.subjects import checkpoints, kernel, objects, streams

__all__ = ["checkpoints", "kernel", "objects", "streams"]
