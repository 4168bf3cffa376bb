"""Data types for pods: their objects, their runtime status and the values that components share.

Pure, as is every module here.
"""
