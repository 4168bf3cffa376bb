"""Builds the files of a release from a commit: the same commit gives the same bytes.

The product never imports it.
"""
