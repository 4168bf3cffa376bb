"""Builds the configs of sandboxes and containers for the runtime, in CRI terms.

Pure: so is every module here.
"""
