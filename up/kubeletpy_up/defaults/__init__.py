"""Defaults that the API fills in.

Pure: so is every module here.
"""
