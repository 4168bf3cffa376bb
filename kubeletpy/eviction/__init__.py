"""Pods that take more of the node than they may: who has to go, and why.

Limits of local storage live here: ``local_storage`` decides, ``keeper`` watches and ends. Must
never end a critical pod.
"""
