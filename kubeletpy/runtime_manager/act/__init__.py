"""Carrying it out: the calls to the runtime, in order, each seen through to its end."""
