"""Doing it: the calls to the runtime, in order, each seen to its end."""
