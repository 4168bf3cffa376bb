"""Checks of objects with the API's own messages: one module per subject.

Pure: so is every module here.
"""
