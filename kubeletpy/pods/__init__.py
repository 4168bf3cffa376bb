"""Data types for pods: their objects, their runtime status and what components share about them.

Pure, as is every module here.
"""
