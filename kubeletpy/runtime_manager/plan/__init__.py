"""Decides what to do about a pod, and why.

Pure: so is every module here.
"""
